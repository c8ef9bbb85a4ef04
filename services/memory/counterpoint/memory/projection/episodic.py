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
"""More than requested, so that the choice among equals does not depend on the order of the points."""

_NAME, _OTHER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}"), re.compile(r"[^A-Za-z0-9_-]")
_NAMESPACE = UUID("5f0f3c0e-9d0b-5c3e-8a53-0d1c3f6f7a11")


@dataclass(frozen=True, slots=True)
class Point:
    """Point of a record: its vector and its filterable fields."""

    id: str
    vector: list[float]
    payload: dict[str, Any]


class Points(Protocol):
    """Points of one project in one engine."""

    async def payloads(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """Return the payloads of the points that exist."""

    async def upsert(self, points: Sequence[Point]) -> None:
        """Write points, replacing existing ones."""

    async def nearest(
        self, vector: list[float], stores: Sequence[str], facets: Sequence[str], clearance: int, k: int
    ) -> list[tuple[dict[str, Any], float]]:
        """Return payload and cosine of the nearest points, filtered during the search."""

    async def position(self) -> TierPosition | None:
        """Return the stored position; None for no points."""

    async def settle(self, position: TierPosition) -> None:
        """Flush everything written, and then store the position."""


class Episodic(SearchingTier):
    """Episodic memory on an engine that gives each project its points."""

    name = "episodic"

    def __init__(self, model: str, dimensions: int = DIMENSIONS) -> None:
        self.model = model
        self.dimensions = dimensions

    @abstractmethod
    def opened(self, project: str, draft: bool) -> AbstractAsyncContextManager[Points]:
        """Return the points of a project. Raises `Away`."""

    async def position(self, project: str, *, draft: bool = False) -> TierPosition | None:
        """Return the position of the projection in a project."""
        async with self.opened(project, draft) as points:
            return await points.position()

    async def apply(
        self, project: str, changes: Sequence[RecordChange], position: TierPosition, *, draft: bool = False
    ) -> None:
        """Apply changes. Raises `Permanent` `vector` for a vector of another length."""
        for change in changes:
            if change.body is not None:
                self.fits(change.vector)
        async with self.opened(project, draft) as points:
            ids = list({point_id(change.store, change.id) for change in changes})
            stored = {(p["store"], p["id"]): p["version"] for p in await points.payloads(ids)} if ids else {}
            fresh = newest(changes, stored)
            if fresh:
                await points.upsert([point(change, self.dimensions) for change in fresh])
            await points.settle(position)

    async def search(self, scope: TierScope, vector: Vectors, where: Mapping[str, Any], k: int) -> list[TierHit]:
        """Return the nearest records. Raises `Away`, or `Permanent` for an invalid vector or filter."""
        facets = [facet(name, value) for name, value in where.items()]
        query_vector = self.fits(vector).tolist()
        async with self.opened(scope.project, False) as points:
            if await points.position() is None:
                raise Away(f"{self.name} has no data of {scope.project} yet")
            found = await points.nearest(query_vector, scope.stores, facets, scope.clearance, k + TIES)
        hits = [TierHit(payload["store"], payload["id"], payload["version"], round(s, DIGITS)) for payload, s in found]
        return sorted(hits, key=lambda hit: (-hit.score, hit.store, hit.id))[:k]


def name_of(model: str) -> str:
    """Return the model's name as it may appear in folders and collections."""
    if _NAME.fullmatch(model):
        return model
    return f"{_OTHER.sub('-', model)[:60]}-{hashlib.sha256(model.encode()).hexdigest()[:8]}"


def point_id(store: str, record_id: str) -> str:
    """Return the id of the point of a record."""
    return str(uuid5(_NAMESPACE, f"{store}/{record_id}"))


def point(change: RecordChange, dimensions: int = DIMENSIONS) -> Point:
    """Return a record as a point. A removed one has a unit vector, because every point must have one; no search returns
    it."""
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
    """Return a field and its value as one keyword, as text, because the engine takes true for 1. Raises `Permanent` for
    a value that cannot be filtered by."""
    if not _plain(value):
        problem = f"must be text of at most {FACET_CHARS} characters, a whole number, true or false"
        raise Permanent(ErrorCode.INVALID, (Problem(field=f"where.{name[:40]}", problem=problem),))
    return f"{name}={json.dumps(value, ensure_ascii=False)}"


def matches(change: RecordChange, where: Mapping[str, Any]) -> bool:
    """Whether the body of a record matches `where`. Raises `Permanent` as `facet` does."""
    return {facet(name, value) for name, value in where.items()} <= set(facets(change))


def _plain(value: Any) -> bool:
    return isinstance(value, bool | int) or (isinstance(value, str) and len(value) <= FACET_CHARS)
