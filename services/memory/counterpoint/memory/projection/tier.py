"""A tier: changes of records go in, newest version wins; how far it has come is kept with it; it can be dropped.

The record in PostgreSQL is the only truth. What a tier holds was read from there and can be read from there again.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from counterpoint.memory.embedding.model import Vectors
from counterpoint.proto.errors import ErrorCode, Permanent, Problem


@dataclass(frozen=True, slots=True)
class RecordChange:
    """A record as it is now: at a version, or removed (no `body`). `vector` where the tier searches by meaning."""

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
    """Position of a tier in a project: every change up to `seq` of this `life` of it is in the tier.

    A project of the same name in another database has another life.
    """

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
    """A record found, and how near it is, from -1 to 1."""

    store: str
    id: str
    version: int
    score: float


class Tier(ABC):
    """One tier, for all projects. Each project is apart from all others, down to what the engine counts and ranks by.

    A `draft` is a second copy of a project that is built while the first one answers, and then put in its place. Every
    method raises `Away` when the engine does not do what it should.
    """

    name: str

    @abstractmethod
    async def place(self, project: str, *, draft: bool = False) -> TierPosition | None:
        """Return the position in a project; None if the tier has nothing of it, or cannot read it."""

    @abstractmethod
    async def apply(
        self, project: str, changes: Sequence[RecordChange], place: TierPosition, *, draft: bool = False
    ) -> None:
        """Take these changes, in any order and as often as one likes, and be at `place`.

        An older version than is held changes nothing.
        """

    @abstractmethod
    async def drop(self, project: str, *, draft: bool = False) -> None:
        """Forget a project."""

    @abstractmethod
    async def swap(self, project: str) -> None:
        """Put the draft of a project in its place."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of everything; what is kept stays."""


class SearchingTier(Tier):
    """A tier that finds records by meaning. Its vectors are all of one model."""

    model: str
    dimensions: int

    @abstractmethod
    async def search(self, scope: TierScope, vector: Vectors, where: Mapping[str, Any], k: int) -> list[TierHit]:
        """The `k` nearest records in scope whose fields are as `where` says; fewer only when there are fewer."""

    def fits(self, vector: Vectors | None) -> Vectors:
        """A vector that may be kept or searched by. Raises `Permanent` `vector` with what was given and is kept."""
        shape = None if vector is None else vector.shape
        if vector is None or shape != (self.dimensions,):
            given = "no vector" if shape is None else f"{'x'.join(map(str, shape))} numbers"
            problem = f"{given}, but {self.model} has {self.dimensions} dimensions"
            raise Permanent(ErrorCode.VECTOR, (Problem(field=f"{self.name}.vector", problem=problem),))
        return vector


def newest(changes: Sequence[RecordChange], held: Mapping[tuple[str, str], int]) -> list[RecordChange]:
    """Return the newest change of each record that is newer than the stored one."""
    found: dict[tuple[str, str], RecordChange] = {}
    for change in changes:
        key = (change.store, change.id)
        known = found.get(key)
        if change.version > (held.get(key, 0) if known is None else known.version):
            found[key] = change
    return list(found.values())
