"""Tables with a header line (CSV, TSV) to markdown, so that a row is quoted with its headers."""

import csv
from io import StringIO
from itertools import islice
from pathlib import PurePosixPath

TABLE_LIMIT_ROWS = 5_000
"""Longer tables are data and no documentation."""

_SUFFIXES = frozenset({".csv", ".tsv"})
_DELIMITERS = ",;\t"


def is_table(name: str) -> bool:
    """Return whether a document is a table, by its name."""
    return PurePosixPath(name).suffix.lower() in _SUFFIXES


def table(source: str) -> str | None:
    """Return the table as markdown; None if its rows have not the same number of cells, at least two, or are too
    many."""
    source = source.removeprefix("\ufeff")
    first = next((line for line in source.splitlines() if line.strip()), "")
    reader = csv.reader(StringIO(source, newline=""), delimiter=max(_DELIMITERS, key=first.count), strict=True)
    try:
        rows = list(islice((cells for cells in reader if any(map(str.strip, cells))), TABLE_LIMIT_ROWS + 2))
    except csv.Error:
        return None
    widths = set(map(len, rows))
    if not 2 <= len(rows) <= TABLE_LIMIT_ROWS + 1 or len(widths) != 1 or max(widths) < 2:
        return None
    header, *body = map(_line, rows)
    return "\n".join((header, "|---" * max(widths) + "|", *body)) + "\n"


def _line(cells: list[str]) -> str:
    escaped = (" ".join(cell.split()).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"
