"""Units: the blocks of a stored text, detected by layout: markdown, reStructuredText, a program or plain text."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

UnitKind = Literal["heading", "markup", "paragraph", "step", "item", "term", "header", "row", "code"]

BODY: frozenset[UnitKind] = frozenset({"paragraph", "step", "item", "term", "row", "code"})
"""Kinds with content; the others are structure."""

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_HEADING = re.compile(r"#{1,6}\s+\S")
_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{2,}\s*$")
_RULE = re.compile(r"(?:[-*_=~+:|]\s*){3,}$")
_FENCE = re.compile(r"(`{3,}|~{3,}|:{3,})")
_MARK = re.compile(r"(?:(?P<step>(?:\d{1,3}|[a-z]|#)[.)])|(?P<item>[-*+•]))(?:\s+(?=\S)|$)")
_ROW = re.compile(r"\|.*\|$")
_DEFINITION = re.compile(r":\s{1,3}\S")
_DIRECTIVE = re.compile(r"\.\.\s+(?:([\w:-]+)::(?:\s|$)|_[^:]*:|\[|\|)|\.\.\s*$|\.\.\s")
_OPTION = re.compile(r":[\w-]+:(?:\s|$)")
_ADMONITION = frozenset(
    ("note", "tip", "hint", "important", "warning", "caution", "danger", "attention", "error", "admonition", "seealso",
     "versionadded", "versionchanged", "deprecated", "topic", "sidebar")
)  # fmt: skip
_CONTAINERS = frozenset(
    ("list-table", "table", "container", "only", "tabs", "tab", "tab-set", "tab-item", "dropdown", "collapse",
     "details", "grid", "grid-item", "card", "rst-class")
)  # fmt: skip
"""Directives with text in them."""
_CSV = "csv-table"
_CODE = frozenset(("code", "code-block", "sourcecode", "parsed-literal", "prompt", "console"))
_FRONT = re.compile(r"---[ \t]*\r?\n(?=[\w-]+[ \t]*:)(?:[^\n]*\n)*?(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)")
_COMMENT = re.compile(r"<!--.*?-->\s*$")
_LINK_DEFINITION = re.compile(
    r"^\[[^\[\]\n]+\]:[ \t]*(?:<[^<>\n]*>|(?:https?://|\.{0,2}/|#|mailto:)\S*)[^\n]*$", re.MULTILINE
)
_LINK = re.compile(r"!?\[[^\[\]]*\]\([^()\s]*\)|</?[a-z][^<>]*>", re.IGNORECASE)
_WORD = re.compile(r"\w")


@dataclass(frozen=True)
class Unit:
    """The block `text` from `start` to `end` (characters) of a larger text; `indent` is in columns.

    A step, an item or a term includes its continuation lines; nested blocks follow as units with a greater indent.
    """

    kind: UnitKind
    start: int
    end: int
    text: str
    indent: int

    @property
    def opens(self) -> bool:
        """Whether it introduces the next block."""
        return self.kind in ("paragraph", "item", "step", "term") and self.text.rstrip("*_ ").endswith(":")


@dataclass
class _Open:
    kind: UnitKind
    start: int
    indent: int
    end: int


@lru_cache(maxsize=8_000)
def units(text: str, program: bool = False, first: bool = False) -> tuple[Unit, ...]:
    """Return the units of a text in order. `program`: source code, split at blank lines only. `first`: the beginning of
    a document, which may have front matter."""
    if program:
        return tuple(_program(text))
    return tuple(_Reader(text, first).read())


def _program(text: str) -> list[Unit]:
    found, start, end = [], None, 0
    for line in [*_LINE.finditer(text), None]:
        if line is not None and line[0].strip():
            start, end = line.start() if start is None else start, line.start() + len(line[0].rstrip())
        elif start is not None:
            body = text[start:end]
            found.append(Unit("code", start, end, body, len(body) - len(body.lstrip(" "))))
            start = None
    return found


class _Reader:
    def __init__(self, text: str, first: bool) -> None:
        self._text = text
        self._lines = [(line.start(), line[0].rstrip()) for line in _LINE.finditer(text)]
        self._found: list[Unit] = []
        self._open: _Open | None = None
        self._at = 0
        self._columns = False
        if first and (front := _FRONT.match(text)):
            self._add("markup", 0, len(front[0].rstrip()), 0)
            self._at = text.count("\n", 0, front.end())

    def read(self) -> list[Unit]:
        blank = True
        while self._at < len(self._lines):
            start, line = self._lines[self._at]
            body = line.lstrip()
            indent = len(line) - len(body)
            quoted = body.startswith(">")
            if quoted:
                body = body.lstrip("> ")
            if not body:
                if not quoted or self._open is None or self._open.kind == "paragraph":
                    blank = True
                    self._columns = False
                    self._blank()
            else:
                self._line(start, line, body, indent, blank)
                blank = False
            self._at += 1
        self._close()
        return self._found

    def _line(self, start: int, line: str, body: str, indent: int, blank: bool) -> None:
        end = start + len(line)
        if fence := _FENCE.match(body):
            self._fence(fence[1], start, indent)
        elif _DIRECTIVE.match(body):
            self._directive(body, start, indent)
        elif _HEADING.match(body) or self._underlined(body, blank):
            self._close()
            underlined = not _HEADING.match(body)
            self._at += underlined
            last, text = self._lines[self._at]
            self._add("heading", start, last + len(text), indent)
        elif _COMMENT.match(body) or ((_ADORNMENT.match(body) or _RULE.match(body)) and not _WORD.search(body)):
            if "|" in body and self._open is not None and "|" in self._text[self._open.start : self._open.end]:
                self._open.kind = "header"
                self._columns = True
            self._close()
            if self._found and self._found[-1].kind == "row" and _ROW.match(body):
                head = self._found.pop()
                self._found.append(Unit("header", head.start, head.end, head.text, head.indent))
            self._add("markup", start, end, indent)
        elif _ROW.match(body) or (self._columns and "|" in body):
            self._close()
            self._add("row", start, end, indent)
        elif mark := _MARK.match(body):
            self._close()
            self._open = _Open("step" if mark["step"] else "item", start, indent, end)
        elif _DEFINITION.match(body):
            if self._open is None and self._found and self._found[-1].kind == "paragraph":
                last_unit = self._found.pop()
                self._open = _Open("term", last_unit.start, last_unit.indent, end)
            elif self._open is not None:
                self._open.kind, self._open.end = "term", end
            else:
                self._open = _Open("term", start, indent, end)
        elif _OPTION.match(body) and self._found and self._found[-1].kind == "markup" and self._open is None:
            self._add("markup", start, end, indent)
        else:
            self._prose(start, end, indent, blank)

    def _prose(self, start: int, end: int, indent: int, blank: bool) -> None:
        block = self._open
        if block is not None and block.kind in ("step", "item", "term") and (indent > block.indent or not blank):
            block.end = end
        elif block is not None and block.kind == "paragraph" and not blank:
            if (
                indent > block.indent
                and block.end - block.start < 100
                and "\n" not in self._text[block.start : block.end]
            ):
                block.kind = "term"
            block.end = end
        elif blank and indent >= 4 and (block is None or indent > block.indent) and not self._nested(indent):
            self._close()
            self._literal(start, indent)
        else:
            self._close()
            self._open = _Open("paragraph", start, indent, end)

    def _nested(self, indent: int) -> bool:
        """Whether a block with this indent belongs to a list and is not a code block."""
        for unit in reversed(self._found):
            if unit.kind in ("step", "item", "term"):
                return not self._ends_in_code(unit)
            if unit.indent < indent and unit.kind != "code":
                return unit.kind == "markup"
        return False

    def _ends_in_code(self, unit: Unit) -> bool:
        return unit.text.rstrip().endswith("::")

    def _blank(self) -> None:
        block = self._open
        if block is None:
            return
        if block.kind in ("step", "item", "term") and self._continues(block.indent):
            return
        literal = block.kind == "paragraph" and self._text[block.start : block.end].endswith("::")
        indent = block.indent
        self._close()
        following = self._peek()
        if literal and following is not None and following[1] > indent:
            self._at = following[0]
            self._literal(self._lines[self._at][0], following[1])

    def _continues(self, indent: int) -> bool:
        following = self._peek()
        return (
            following is not None and following[1] > indent and not _MARK.match(self._lines[following[0]][1].lstrip())
        )

    def _peek(self) -> tuple[int, int] | None:
        for n in range(self._at, len(self._lines)):
            line = self._lines[n][1]
            if line.strip():
                return n, len(line) - len(line.lstrip())
        return None

    def _literal(self, start: int, indent: int) -> None:
        """Read an indented code block, to its last line that is not blank."""
        last = self._at
        for n in range(self._at, len(self._lines)):
            line = self._lines[n][1]
            if line.strip() and len(line) - len(line.lstrip()) < indent:
                break
            last = n if line.strip() else last
        self._at = last
        self._add("code", start, self._lines[last][0] + len(self._lines[last][1]), indent)

    def _fence(self, mark: str, start: int, indent: int) -> None:
        last = len(self._lines) - 1
        for n in range(self._at + 1, len(self._lines)):
            body = self._lines[n][1].lstrip().lstrip("> ")
            if body.startswith(mark) and not body.strip(mark[0]).strip():
                last = n
                break
        if mark[0] == ":":
            self._close()
            self._add("markup", start, start + len(self._lines[self._at][1]), indent)
            return
        self._at = last
        end = self._lines[last][0] + len(self._lines[last][1])
        held = self._open
        if held is not None and held.kind in ("step", "item", "term") and indent > held.indent:
            held.end = end
            return
        self._close()
        self._add("code", start, end, indent)

    def _directive(self, body: str, start: int, indent: int) -> None:
        self._close()
        found = _DIRECTIVE.match(body)
        name = (found[1] or "").lower() if found else ""
        line = self._lines[self._at][1]
        self._add("markup", start, start + len(line), indent)
        if name.rpartition(":")[2] in _ADMONITION:
            admonition = body.partition("::")[2].strip()
            if admonition:
                self._found.pop()
                self._open = _Open("paragraph", start, indent, start + len(line))
            return
        if name in _CONTAINERS:
            return
        self._at += 1
        while (following := self._peek()) is not None and _OPTION.match(self._lines[following[0]][1].lstrip()):
            if following[1] <= indent:
                break
            if name == _CSV and self._lines[following[0]][1].lstrip().startswith(":header:"):
                self._add_line("header", *following)
            self._at = following[0] + 1
        if name == _CSV:
            self._csv_rows(indent)
            return
        following = self._peek()
        if following is not None and following[1] > indent:
            self._at = following[0]
            kind: UnitKind = "code" if name in _CODE else "markup"
            self._literal(self._lines[self._at][0], following[1])
            last = self._found.pop()
            self._found.append(Unit(kind, last.start, last.end, last.text, last.indent))
        else:
            self._at -= 1

    def _csv_rows(self, indent: int) -> None:
        """Read the indented lines of a table of comma-separated values."""
        while (following := self._peek()) is not None and following[1] > indent:
            self._add_line("row", *following)
            self._at = following[0] + 1
        self._at -= 1

    def _add_line(self, kind: UnitKind, at: int, indent: int) -> None:
        start, line = self._lines[at]
        self._add(kind, start, start + len(line), indent)

    def _underlined(self, body: str, blank: bool) -> bool:
        if self._at + 1 >= len(self._lines) or (
            not blank and self._open is not None and self._open.kind != "paragraph"
        ):
            return False
        below = self._lines[self._at + 1][1]
        adorned = _ADORNMENT.match(below)
        if adorned is None or _ADORNMENT.match(body) or not _WORD.search(body):
            return False
        return self._open is None and len(below) >= min(len(body), 4)

    def _add(self, kind: UnitKind, start: int, end: int, indent: int) -> None:
        body = self._text[start:end]
        if kind in ("paragraph", "item", "row") and not _WORD.search(_LINK.sub("", _LINK_DEFINITION.sub("", body))):
            kind = "markup"
        lead = len(body) - len(body.lstrip())
        self._found.append(Unit(kind, start + lead, start + len(body.rstrip()), body.strip(), indent))

    def _close(self) -> None:
        if self._open is not None:
            block, self._open = self._open, None
            self._add(block.kind, block.start, block.end, block.indent)
