"""Episodic memory in Qdrant: earlier attempts and their outcomes, searched by meaning.

Each project has a collection of its own per model, so that no other project's points are in the index or in its
counts. A removed record stays as a point that no search returns, so that an older version cannot replace it.
"""

import hashlib
import json
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID, uuid5

from counterpoint.memory.embedding.model import DIMENSIONS, Vectors
from counterpoint.memory.projection.tier import RecordChange, SearchingTier, TierHit, TierPosition, TierScope, newest
from counterpoint.proto.errors import Away, ErrorCode, Permanent, Problem

FACET_CHARS = 200
"""Length limit of filterable texts, in characters."""
DIGITS = 6
"""Decimals of a cosine. Further ones depend on the memory layout of the vectors."""
TIES = 16
"""More than are asked for, so that which of equals is shown does not depend on the order they came in."""

_NAME, _OTHER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}"), re.compile(r"[^A-Za-z0-9_-]")
_NAMESPACE = UUID("5f0f3c0e-9d0b-5c3e-8a53-0d1c3f6f7a11")


@dataclass(frozen=True, slots=True)
class Point:
    """Point of a record: its vector and its filterable fields."""

    id: str
    vector: list[float]
    payload: dict[str, Any]


class Points(Protocol):
    """The points of one project in one engine."""

    async def payloads(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """The payloads of those that there are."""

    async def upsert(self, points: Sequence[Point]) -> None:
        """Write points, over those that were there."""

    async def nearest(
        self, vector: list[float], stores: Sequence[str], facets: Sequence[str], clearance: int, k: int
    ) -> list[tuple[dict[str, Any], float]]:
        """Payload and cosine of the nearest, filtered while the engine looks for them."""

    async def place(self) -> TierPosition | None:
        """Storage of the points of one project."""

    async def settle(self, place: TierPosition) -> None:
        """Keep all that was written, and then where the points are."""


class Episodic(SearchingTier):
    """Episodic memory on an engine that gives each project its points."""

    name = "episodic"

    def __init__(self, model: str, dimensions: int = DIMENSIONS) -> None:
        self.model = model
        self.dimensions = dimensions

    @abstractmethod
    def opened(self, project: str, draft: bool) -> AbstractAsyncContextManager[Points]:
        """The points of a project. Raises `Away`."""

    async def place(self, project: str, *, draft: bool = False) -> TierPosition | None:
        """Return the position of the projection in a project."""
        async with self.opened(project, draft) as points:
            return await points.place()

    async def apply(
        self, project: str, changes: Sequence[RecordChange], place: TierPosition, *, draft: bool = False
    ) -> None:
        """Take changes. Raises `Permanent` `vector` for a vector of another length."""
        for change in changes:
            if change.body is not None:
                self.fits(change.vector)
        async with self.opened(project, draft) as points:
            ids = list({point_id(change.store, change.id) for change in changes})
            held = {(p["store"], p["id"]): p["version"] for p in await points.payloads(ids)} if ids else {}
            fresh = newest(changes, held)
            if fresh:
                await points.upsert([point(change, self.dimensions) for change in fresh])
            await points.settle(place)

    async def search(self, scope: TierScope, vector: Vectors, where: Mapping[str, Any], k: int) -> list[TierHit]:
        """The nearest records. Raises `Away`, or `Permanent` for what cannot be searched or filtered by."""
        wanted = [facet(name, value) for name, value in where.items()]
        asked = self.fits(vector).tolist()
        async with self.opened(scope.project, False) as points:
            if await points.place() is None:
                raise Away(f"{self.name} has no data of {scope.project} yet")
            found = await points.nearest(asked, scope.stores, wanted, scope.clearance, k + TIES)
        hits = [TierHit(payload["store"], payload["id"], payload["version"], round(s, DIGITS)) for payload, s in found]
        return sorted(hits, key=lambda hit: (-hit.score, hit.store, hit.id))[:k]


def name_of(model: str) -> str:
    """Return the model's name as it may appear in folders and collections."""
    if _NAME.fullmatch(model):
        return model
    return f"{_OTHER.sub('-', model)[:60]}-{hashlib.sha256(model.encode()).hexdigest()[:8]}"


def point_id(store: str, record_id: str) -> str:
    """The point of a record."""
    return str(uuid5(_NAMESPACE, f"{store}/{record_id}"))


def point(change: RecordChange, dimensions: int = DIMENSIONS) -> Point:
    """A record as a point; a removed one has a direction, as every point must, and is never looked at."""
    payload: dict[str, Any] = {
        "store": change.store,
        "id": change.id,
        "version": change.version,
        "label": change.label,
        "removed": "no" if change.body is not None else "yes",
        "facets": facets(change),
    }
    vector = [1.0] + [0.0] * (dimensions - 1) if change.vector is None else change.vector.tolist()
    return Point(point_id(change.store, change.id), vector, payload)


def facets(change: RecordChange) -> list[str]:
    """Return the filterable fields of a record: author, task and the plain fields of its body."""
    if change.body is None:
        return []
    fields = {**change.body, "author": change.author, "task_id": change.task_id}
    return sorted(facet(name, value) for name, value in fields.items() if _plain(value))


def facet(name: str, value: Any) -> str:
    """A field and its value as one keyword. Raises `Permanent` for a value that is not filtered by.

    As text, for the engine in process takes true for 1.
    """
    if not _plain(value):
        problem = f"must be text of at most {FACET_CHARS} characters, a whole number, true or false"
        raise Permanent(ErrorCode.INVALID, (Problem(field=f"where.{name[:40]}", problem=problem),))
    return f"{name}={json.dumps(value, ensure_ascii=False)}"


def matches(change: RecordChange, where: Mapping[str, Any]) -> bool:
    """Whether a record is as `where` says. Raises `Permanent` as `facet` does."""
    return {facet(name, value) for name, value in where.items()} <= set(facets(change))


def _plain(value: Any) -> bool:
    return isinstance(value, bool | int) or (isinstance(value, str) and len(value) <= FACET_CHARS)
