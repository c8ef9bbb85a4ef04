"""AsciiDoc to markdown: headings, lists, blocks of code, admonitions and tables. Pure.

Attributes that the document sets itself are replaced; includes, conditions and comments are left out.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

_SUFFIXES = frozenset({".adoc", ".asciidoc"})
_HEADING = re.compile(r"(={1,6})[ \t]+(\S.*)")
_ATTRIBUTE = re.compile(r":!?([\w-]+)!?:(?:[ \t](.*))?")
_REFERENCE = re.compile(r"\{([\w-]+)\}")
_LEFT_OUT = re.compile(r"//(?!/)|(?:include|ifdef|ifndef|ifeval|endif|image|toc)::")
_OPTIONS = re.compile(r"\[[^\[\]]*\]|\[\[[^\[\]]*\]\]")
_ADMONITION = re.compile(r"\[(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\b[^\]]*\]")
_LANGUAGE = re.compile(r"\[(?:source|,)[ ,]{0,9}(\w+)")
_COLUMNS = re.compile(r"\bcols=(?:\"([^\"]+)\"|(\d+))")
_TITLE = re.compile(r"\.([^\s.].*)")
_ITEM = re.compile(r"[ \t]*(\.{1,5}|\*{1,5}|-|\d{1,3}\.)[ \t]+(\S.*)")
_TERM = ":: "
_CELL = re.compile(r"(?<!\\)\|")
_CELL_OPTIONS = re.compile(r"(?:^|[ \t])(?:\d{1,3}\*|[\d.]{1,9}\+)?[<^>]?[aehlmsd]?$")
_LINK = re.compile(
    r"(xref:|link:|)((?:https?://|ftp://|mailto:|(?<=xref:)|(?<=link:))[^\s\[\]]{1,300})\[([^\[\]\n]{1,300})\]"
)
_ANCHOR = re.compile(r"<<([^<>,\n]+)(?:,([^<>\n]+))?>>")
_BLANK_LINES = re.compile(r"\n{3,}")
_CODE, _TABLE, _COMMENT, _INDENT = frozenset({"-", "."}), "|===", "////", "   "


def is_asciidoc(name: str) -> bool:
    """Return whether a document is AsciiDoc, by its name."""
    return PurePosixPath(name).suffix.lower() in _SUFFIXES


def asciidoc(source: str) -> str:
    """Return the document as markdown."""
    lines = _Lines(source.removeprefix("\ufeff").splitlines()).markdown()
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip("\n") + "\n"


class _Lines:
    """Lines of a document with the state that the next line depends on: the options of a block, the list that it
    continues, and whether it is attached to the last item of that list by a `+`."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = iter(lines)
        self._attributes: dict[str, str] = {}
        self._options = ""
        self._numbers: list[int] = []
        self._attached = self._after_blank = False

    def markdown(self) -> Iterator[str]:
        """Yield the lines of the markdown."""
        for line in self._lines:
            text = line.rstrip()
            if not text:
                self._attached, self._after_blank = False, True
                yield ""
            elif (attribute := _ATTRIBUTE.fullmatch(text)) is not None:
                self._attributes[attribute[1]] = self._inline((attribute[2] or "").strip())
            elif (admonition := _ADMONITION.fullmatch(text)) is not None:
                yield f"**{admonition[1].title()}:**"
            elif _OPTIONS.fullmatch(text):
                self._options = text
            elif text == _COMMENT:
                list(self._until(_COMMENT))
            elif not _LEFT_OUT.match(text):
                yield from self._block(text)
                self._after_blank = False

    def _block(self, text: str) -> Iterator[str]:
        options, self._options = self._options, ""
        mark = text[0] if len(text) >= 4 and set(text) == {text[0]} else ""
        if text.startswith(_TABLE):
            yield from ("", *_table([self._inline(line) for line in self._until(text)], options), "")
        elif mark in _CODE:
            language = _LANGUAGE.match(options)
            body = (f"{self._margin}{line}".rstrip() for line in self._until(text))
            yield from (f"{self._margin}```{language[1] if language else ''}", *body, f"{self._margin}```")
        elif mark in ("=", "*", "_", "+") or text == "--":
            yield ""
        elif text == "+":
            self._attached = True
            yield ""
        else:
            yield from self._text(text)

    def _text(self, text: str) -> Iterator[str]:
        if heading := _HEADING.fullmatch(text):
            self._numbers = []
            yield from ("", f"{'#' * len(heading[1])} {self._inline(heading[2])}", "")
        elif item := _ITEM.fullmatch(text):
            yield self._item(item[1], self._inline(item[2]))
        elif _TERM in f"{text} ":
            term, _, definition = f"{text} ".partition(_TERM)
            self._numbers = [0]
            yield f"- **{self._inline(term.strip())}**: {self._inline(definition.strip())}".rstrip()
        elif title := _TITLE.fullmatch(text):
            yield from ("", f"**{self._inline(title[1])}**", "")
        else:
            if self._after_blank and not self._attached:
                self._numbers = []
            yield f"{self._margin}{self._inline(text.strip() if self._margin else text)}"

    def _item(self, mark: str, text: str) -> str:
        """Return an item of a list, whose mark is repeated for each level."""
        is_numbered = mark[0] not in "*-"
        depth = 1 if mark[0].isdigit() else len(mark)
        number = (*self._numbers, *[0] * depth)[depth - 1] + 1 if is_numbered else 0
        above = (*self._numbers, *[0] * depth)[: depth - 1]
        self._numbers = [*above, number]
        return f"{_INDENT * (depth - 1)}{f'{number}.' if is_numbered else '-'} {text}"

    @property
    def _margin(self) -> str:
        """The indent of a block that is attached to an item of a list."""
        return _INDENT * len(self._numbers) if self._attached else ""

    def _until(self, end: str) -> Iterator[str]:
        for line in self._lines:
            if line.rstrip() == end:
                return
            yield line.rstrip()

    def _inline(self, text: str) -> str:
        text = _REFERENCE.sub(lambda match: self._attributes.get(match[1], match[0]), text)
        text = _ANCHOR.sub(lambda match: (match[2] or match[1]).strip(), text)
        return _LINK.sub(_link, text)


def _link(match: re.Match[str]) -> str:
    return match[3] if match[1] == "xref:" else f"[{match[3]}]({match[2]})"


def _table(lines: Sequence[str], options: str) -> Iterator[str]:
    """Yield the rows of a table. Its columns are those of `cols`, or the cells of its first line."""
    cells, columns, header = list[str](), _column_count(options), "header" in options
    for n, line in enumerate(lines):
        before, *others = _CELL.split(line)
        if cells and not others:
            header |= n == 1 and not line
            cells[-1] += f" {line.strip()}"
            continue
        if cells:
            cells[-1] += f" {_CELL_OPTIONS.sub('', before)}"
        cells += (_CELL_OPTIONS.sub("", cell) for cell in others[:-1])
        cells += others[-1:]
        columns = columns or len(others)
    plain = [" ".join(cell.split()) for cell in cells]
    rows = [plain[at : at + columns] for at in range(0, len(plain), max(columns, 1))]
    first, *body = rows if header else [[""] * columns, *rows]
    for row in (first, ["---"] * columns, *body):
        yield f"| {' | '.join(row)} |"


def _column_count(options: str) -> int:
    found = _COLUMNS.search(options)
    if found is None:
        return 0
    parts = (found[1] or found[2]).split(",")
    counts = (re.match(r"(\d+)\*", part.strip()) for part in parts)
    return sum(int(count[1]) if count else 1 for count in counts) if found[1] else int(found[2])
