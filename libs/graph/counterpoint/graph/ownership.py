"""Ownership tables: rows of documents that name owners. Pure functions."""

import re
from collections.abc import Iterator, Sequence

from counterpoint.proto.messages import Shape

_ENGLISH = ("owner", "owners", "ownership", "owned", "maintainer", "maintainers", "steward", "team", "squad")
_GERMAN = ("verantwortlich", "verantwortliche", "verantwortlicher", "zuständig", "zuständige", "besitzer", "eigentümer")
OWNER_COLUMNS = frozenset((*_ENGLISH, *_GERMAN, "responsible", "accountable", "inhaber"))
"""Words in the header of a column of owners, in English and German."""

_CELL = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"\s*:?-{2,}:?\s*")
_WORD = re.compile(r"[^\W\d_]+")
_IN_BRACKETS = re.compile(r"(?<!\s)\s++\([^()]*\)")
_EMPTY = frozenset({"", "-", "–", "—", "?", "n/a", "tbd", "none"})
_HEAD_WORDS = 4


class OwnershipRow(Shape):
    """A row of a table: the subjects in its first column without text in brackets, their owners, the other cells by
    column, and the row itself."""

    subjects: tuple[str, ...]
    owners: tuple[str, ...]
    properties: dict[str, str]
    quote: str


def ownership_rows(text: str) -> tuple[OwnershipRow, ...]:
    """Return the rows of all Markdown tables in a text that have a column of owners."""
    return tuple(row for table in _tables(text.splitlines()) for row in _rows(table))


def _tables(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the blocks of lines with cells that have a header and a rule below it."""
    table: list[str] = []
    for line in (*lines, ""):
        if len(_cells(line)) > 1:
            table.append(line)
            continue
        if len(table) > 2 and all(_RULE.fullmatch(cell) for cell in _cells(table[1])):
            yield table
        table = []


def _rows(table: Sequence[str]) -> Iterator[OwnershipRow]:
    heads = [_plain(cell) for cell in _cells(table[0])]
    owner = next((n for n, head in enumerate(heads) if n > 0 and _names_owners(head)), None)
    if owner is None:
        return
    for line in table[2:]:
        cells = [_plain(cell) for cell in _cells(line)]
        if len(cells) != len(heads) or cells[owner].lower() in _EMPTY or cells[0].lower() in _EMPTY:
            continue
        others = {heads[n]: cell for n, cell in enumerate(cells) if n not in (0, owner) and heads[n] and cell}
        yield OwnershipRow(
            subjects=_several(_IN_BRACKETS.sub("", cells[0])),
            owners=_several(cells[owner]),
            properties=others,
            quote=line.strip(),
        )


def _cells(line: str) -> list[str]:
    stripped = line.strip()
    if "|" not in stripped:
        return []
    return _CELL.split(stripped.removeprefix("|").removesuffix("|"))


def _plain(cell: str) -> str:
    """Return the text of a cell; underscores inside a name are kept."""
    text = re.sub(r"(?<!\w)[`*_]{1,3}|[`*_]{1,3}(?!\w)", "", re.sub(r"\[([^\[\]]*)\]\([^)]{0,500}\)", r"\1", cell))
    return re.sub(r"<[^<>]*>", "", text).replace("\\|", "|").strip()


def _names_owners(head: str) -> bool:
    words = _WORD.findall(head.lower())
    return 0 < len(words) <= _HEAD_WORDS and not OWNER_COLUMNS.isdisjoint(words)


def _several(cell: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in re.split(r"[,;]\s+", cell) if part.strip()))
