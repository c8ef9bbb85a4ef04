"""Tier interface: changes of records are applied, the newest version wins; the position is stored with them; a tier can
be dropped.

The record in PostgreSQL is the only truth. The content of a tier was read from there and can be read again.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from counterpoint.memory.embedding.model import Vectors
from counterpoint.proto.errors import ErrorCode, Permanent, Problem


@dataclass(frozen=True, slots=True)
class RecordChange:
    """Current state of a record: at a version, or removed (no `body`). `vector` if the tier searches by vectors."""

    project: str
    store: str
    id: str
    version: int
    seq: int
    author: str
    label: int
    task_id: str | None = None
    integrity: int = 2
    body: Mapping[str, Any] | None = None
    vector: Vectors | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TierPosition:
    """Position of a tier in a project: it has every change up to `seq` of this `life` of the project. A project of the
    same name in another database has another life."""

    life: str
    seq: int


@dataclass(frozen=True, slots=True)
class TierScope:
    """Visibility of a query: stores of one project, and a maximum label."""

    project: str
    stores: tuple[str, ...]
    clearance: int


@dataclass(frozen=True, slots=True)
class TierHit:
    """A hit: a record and its cosine, from -1 to 1."""

    store: str
    id: str
    version: int
    score: float


class Tier(ABC):
    """One tier, for all projects.

    Projects are separate, down to the engine's statistics. A `draft` is a second copy of a project that is built while
    the first one is queried, and then swapped in. Every method raises `Away` when the engine fails.
    """

    name: str

    @abstractmethod
    async def position(self, project: str, *, draft: bool = False) -> TierPosition | None:
        """Return the position in a project; None if the tier has no content of it, or unreadable content."""

    @abstractmethod
    async def apply(
        self, project: str, changes: Sequence[RecordChange], position: TierPosition, *, draft: bool = False
    ) -> None:
        """Apply these changes, in any order and any number of times, and store the position. A version older than the
        stored one changes nothing."""

    @abstractmethod
    async def drop(self, project: str, *, draft: bool = False) -> None:
        """Delete a project."""

    @abstractmethod
    async def swap(self, project: str) -> None:
        """Replace a project by its draft."""

    @abstractmethod
    async def close(self) -> None:
        """Close the engine; the content is kept."""


class SearchingTier(Tier):
    """A tier that searches records by vectors, all of one model."""

    model: str
    dimensions: int

    @abstractmethod
    async def search(self, scope: TierScope, vector: Vectors, where: Mapping[str, Any], k: int) -> list[TierHit]:
        """Return the `k` nearest records in scope whose fields match `where`; fewer only if there are fewer."""

    def fits(self, vector: Vectors | None) -> Vectors:
        """Return a vector as float32. Raises `Permanent` `vector` with both lengths if it is of another length than the
        tier's."""
        shape = None if vector is None else vector.shape
        if vector is None or shape != (self.dimensions,):
            size = "no vector" if shape is None else f"{'x'.join(map(str, shape))} numbers"
            problem = f"{size}, but {self.model} has {self.dimensions} dimensions"
            raise Permanent(ErrorCode.VECTOR, (Problem(field=f"{self.name}.vector", problem=problem),))
        return vector


def newest(changes: Sequence[RecordChange], stored: Mapping[tuple[str, str], int]) -> list[RecordChange]:
    """Return the newest change of each record that is newer than the stored one."""
    found: dict[tuple[str, str], RecordChange] = {}
    for change in changes:
        key = (change.store, change.id)
        known = found.get(key)
        if change.version > (stored.get(key, 0) if known is None else known.version):
            found[key] = change
    return list(found.values())
