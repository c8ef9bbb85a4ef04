"""Tables of the lists: on a narrow terminal cells fold and columns are left out, but an id stays whole."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

CELL_CHARS = 100
"""What is longer is cut in tables; JSON has all of it."""
FOLDED_CHARS = 12
"""What is left at least of a column that folds anywhere."""
_IDS = frozenset({"task", "id"})
_FOLDED = frozenset({"about", "tried", "name", "namespace", "roles", "projects", "subject"})
_SPARED = ("submitted", "when", "created", "revoked", "by", "state", "kind")
"""What is left out first."""
_GAP = 2


@dataclass(frozen=True)
class Rows:
    """Rows under their heads, as wide as the terminal allows."""

    heads: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    truncated: bool

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.table import Table
        from rich.text import Text

        places, widths = self._fitting(options.max_width)
        shown = Table(
            box=None, pad_edge=False, caption="there is more" if self.truncated else None, caption_justify="left"
        )
        for place, width in zip(places, widths, strict=True):
            shown.add_column(self.heads[place], overflow="fold", width=width)
        for row in self.cells:
            shown.add_row(*(Text(row[place]) for place in places))
        yield shown

    def _fitting(self, most: int) -> tuple[list[int], list[int | None]]:
        """Which columns are shown and how wide each is; None leaves it to the terminal."""
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
        """The width below which a column says nothing: an id's is its own, and words are not broken."""
        whole, head = self._whole(place), self.heads[place]
        if head in _IDS:
            return whole
        if head in _FOLDED:
            return min(whole, FOLDED_CHARS)
        return max(len(word) for cell in self._column(place) for word in cell.split() or [""])

    def _column(self, place: int) -> tuple[str, ...]:
        return (self.heads[place], *(row[place] for row in self.cells))


def table(
    heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], nothing: str, truncated: bool = False
) -> "RenderableType":
    """Rows under their heads, or `nothing` when there are none."""
    if not rows:
        return nothing
    cells = tuple(tuple(shorten(cell, CELL_CHARS, placeholder=" …") for cell in row) for row in rows)
    return Rows(heads, cells, truncated)


def when(moment: Any) -> str:
    """A moment as HTTP gives it, to the second."""
    return str(moment or "")[:19].replace("T", " ")
