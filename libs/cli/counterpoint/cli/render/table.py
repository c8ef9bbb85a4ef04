"""Tables: on a narrow terminal cells fold and columns are omitted. An id is never broken; a title without enough room
is printed below its row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import shorten, wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

CELL_CHARS = 100
"""Maximum length of a cell; longer texts are cut. JSON is complete."""
FOLDED_CHARS = 12
"""Minimum width of a column that folds anywhere."""
_IDS = frozenset({"task", "id"})
_TIMES = frozenset({"submitted", "when", "created", "revoked"})
_FOLDED = frozenset({"about", "tried", "name", "namespace", "roles", "projects", "subject"})
_SENTENCES = frozenset({"about", "tried"})
_SENTENCE_CHARS = 40
"""Minimum width of a column of sentences; a narrower one is printed below its row."""
_SPARED = ("kind", "submitted", "when", "created", "revoked", "by", "state")
"""Columns in the order in which they are left out."""
_GAP, _INDENT = 2, 4


@dataclass(frozen=True)
class TableRows:
    """Rows with headers, as wide as the terminal allows."""

    heads: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    truncated: bool

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.table import Table
        from rich.text import Text

        below = self._below(options.max_width)
        if below is not None:
            yield Text("\n".join(self._stacked(below, options.max_width)))
            return
        places, widths = self._fitting(options.max_width)
        shown = Table(
            box=None, pad_edge=False, caption="there is more" if self.truncated else None, caption_justify="left"
        )
        for place, width in zip(places, widths, strict=True):
            shown.add_column(self.heads[place], overflow="fold", width=width)
        for row in self.cells:
            shown.add_row(*(Text(row[place]) for place in places))
        yield shown

    def _below(self, most: int) -> int | None:
        """Return the column that goes below its row, None where it has room beside the others."""
        place = next((at for at, head in enumerate(self.heads) if head in _SENTENCES), None)
        if place is None or self._whole(place) <= _SENTENCE_CHARS // 2:
            return None
        others = [at for at in range(len(self.heads)) if at != place]
        room = most - self._sum(others, self._whole) - _GAP
        return place if room < min(self._whole(place), _SENTENCE_CHARS) else None

    def _stacked(self, below: int, most: int) -> list[str]:
        """Return the rows as lines, each with the cell of column `below` beneath it."""
        rest = TableRows(
            tuple(_without(self.heads, below)), tuple(tuple(_without(row, below)) for row in self.cells), False
        )
        places, fitting = rest._fitting(most)
        widths = [rest._least(place) if width is None else width for place, width in zip(places, fitting, strict=True)]
        lines = rest._line(rest.heads, places, widths)
        for row, cells in zip(self.cells, rest.cells, strict=True):
            indent = " " * _INDENT
            lines += rest._line(cells, places, widths)
            lines += wrap(row[below], most, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
        return [*lines, *(["there is more"] if self.truncated else [])]

    @staticmethod
    def _line(row: Sequence[str], places: Sequence[int], widths: Sequence[int]) -> list[str]:
        folded = [wrap(row[at], width, break_on_hyphens=False) for at, width in zip(places, widths, strict=True)]
        deep = max(map(len, folded), default=0)
        rows = [[cell[at] if at < len(cell) else "" for cell in folded] for at in range(deep)]
        gap = " " * _GAP
        return [gap.join(c.ljust(width) for c, width in zip(row, widths, strict=True)).rstrip() for row in rows]

    def _fitting(self, most: int) -> tuple[list[int], list[int | None]]:
        """Return the visible columns and their widths; None leaves the width to the terminal."""
        places = list(range(len(self.heads)))
        for spared in _SPARED:
            if self._sum(places, self._least) <= most:
                break
            places = [place for place in places if self.heads[place] != spared]
        left = most - self._sum(places, self._least)
        if left < 0:
            return places, [None] * len(places)
        widths = {}
        for place in sorted(places, key=lambda place: self.heads[place] in _FOLDED):
            more = min(left, self._whole(place) - self._least(place))
            widths[place], left = self._least(place) + more, left - more
        return places, [widths[place] for place in places]

    def _sum(self, places: Sequence[int], width: Callable[[int], int]) -> int:
        return sum(map(width, places)) + _GAP * (len(places) - 1)

    def _whole(self, place: int) -> int:
        return max(map(len, self._column(place)))

    def _least(self, place: int) -> int:
        """Return the minimum width of a column: ids, times and words are not broken."""
        whole, head = self._whole(place), self.heads[place]
        if head in _IDS | _TIMES:
            return whole
        if head in _FOLDED:
            return min(whole, FOLDED_CHARS)
        return max(len(word) for cell in self._column(place) for word in cell.split() or [""])

    def _column(self, place: int) -> tuple[str, ...]:
        return (self.heads[place], *(row[place] for row in self.cells))


def _without(row: Sequence[str], place: int) -> list[str]:
    return [cell for at, cell in enumerate(row) if at != place]


def table(
    heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], nothing: str, truncated: bool = False
) -> "RenderableType":
    """Return a table, or the text `nothing` without rows."""
    from counterpoint.proto.titles import TITLE_CHARS

    if not rows:
        return nothing
    limits = [TITLE_CHARS if head in _SENTENCES else CELL_CHARS for head in heads]
    cells = tuple(tuple(map(_shortened, row, limits)) for row in rows)
    return TableRows(heads, cells, truncated)


def _shortened(cell: str, limit: int) -> str:
    return shorten(cell, limit, placeholder=" …")
