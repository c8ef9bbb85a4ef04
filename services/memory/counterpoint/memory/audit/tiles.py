"""The stored tree: tiles of 256 hashes (C2SP tlog-tiles), full ones in the record, the right edge in RAM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from counterpoint.memory.audit.tree import Range, Subtree, complete_root, covering, folded, paired

WIDTH = 256
HEIGHT = 8
HASH_BYTES = 32


Nodes = tuple[Sequence[bytes], ...]
"""The nodes of a full tile by their height in it: its 256 hashes, and last the root of them."""


class TileId(NamedTuple):
    """Id of a tile: its level (0 holds the nodes of leaves) and its number from the left."""

    level: int
    number: int


class SubtreeLocation(NamedTuple):
    """Location of the nodes of a subtree: `width` hashes of a tile from `begin` on; their root is the subtree's."""

    tile: TileId
    begin: int
    width: int


def locate(subtree: Subtree) -> SubtreeLocation:
    """Return the location of a complete subtree."""
    level, below = divmod(subtree.height, HEIGHT)
    first = subtree.number << below
    return SubtreeLocation(TileId(level, first // WIDTH), first % WIDTH, 1 << below)


def tiles_of(parts: Sequence[Range]) -> set[TileId]:
    """Return the tiles of a proof or a root."""
    return {locate(subtree).tile for part in parts for subtree in covering(part)}


@dataclass(frozen=True)
class RightEdge:
    """The right edge of the tree: its number of leaves, and by level the hashes after the last full tile."""

    size: int = 0
    levels: tuple[tuple[bytes, ...], ...] = ()
    _roots: dict[Subtree, bytes] = field(default_factory=dict, compare=False, repr=False)
    """Roots that were computed; an edge never changes, it is replaced."""

    def full(self, level: int) -> int:
        """Return the number of full tiles of a level."""
        return self.size >> (HEIGHT * (level + 1))

    def extended(self, nodes: Sequence[bytes]) -> "tuple[RightEdge, dict[TileId, bytes]]":
        """Return the edge after more leaves with these nodes, and the tiles that became full."""
        levels: list[tuple[bytes, ...]] = []
        filled: dict[TileId, bytes] = {}
        level, coming = 0, list(nodes)
        while level < len(self.levels) or coming:
            waiting = [*(self.levels[level] if level < len(self.levels) else ()), *coming]
            number, coming = self.full(level), []
            for start in range(0, len(waiting) - len(waiting) % WIDTH, WIDTH):
                tile = waiting[start : start + WIDTH]
                filled[TileId(level, number)] = b"".join(tile)
                coming.append(complete_root(tile))
                number += 1
            levels.append(tuple(waiting[len(waiting) - len(waiting) % WIDTH :]))
            level += 1
        return RightEdge(self.size + len(nodes), tuple(levels)), filled

    def missing(self, wanted: set[TileId]) -> set[TileId]:
        """Return those of the tiles that are full, and so in the record."""
        return {place for place in wanted if place.number < self.full(place.level)}

    def root_of(self, subtree: Subtree, full: Mapping[TileId, Nodes]) -> bytes:
        """Return the root of a complete subtree. Raises `KeyError` for a missing tile."""
        tile, start, count = locate(subtree)
        if tile.number < self.full(tile.level):
            below = subtree.height % HEIGHT
            return full[tile][below][start >> below]
        if subtree not in self._roots:
            here = self.levels[tile.level][start : start + count] if tile.level < len(self.levels) else ()
            if len(here) < count:
                raise KeyError(tile)
            self._roots[subtree] = complete_root(here)
        return self._roots[subtree]

    def root(self, size: int, full: Mapping[TileId, Nodes]) -> bytes:
        """Return the root of the tree with `size` leaves. Raises `KeyError` like `root_of`."""
        return folded(self.root_of(subtree, full) for subtree in covering(Range(0, size)))


def hashes(tile: bytes) -> list[bytes]:
    """Return the hashes of a tile."""
    return [tile[at : at + HASH_BYTES] for at in range(0, len(tile), HASH_BYTES)]


def nodes(tile: bytes) -> Nodes:
    """Return all nodes of a full tile."""
    found = [hashes(tile)]
    while len(found[-1]) > 1:
        found.append(paired(found[-1]))
    return tuple(found)
