"""Episodic memory on Qdrant's core in this process: one shard a project, below the data folder.

Every point that the filter leaves is looked at: exact, and 7 ms for 25,000 of them. A graph over the vectors would come
of `optimize()`, which holds Python's lock as long as it works (27 s there), in a thread too: the process would stand
still. Who has more episodes than that wants a server.
"""

import asyncio
import json
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from counterpoint.memory.embedding.model import DIMENSIONS
from counterpoint.memory.projection.episodic import Episodic, Point, Points, name_of
from counterpoint.memory.projection.handle_pool import HandlePool
from counterpoint.memory.projection.tier import TierPosition
from counterpoint.proto.errors import Away

if TYPE_CHECKING:
    from qdrant_edge import EdgeShard, Filter

T = TypeVar("T")

OPEN = 8
_INDEXED = {"store": "Keyword", "facets": "Keyword", "removed": "Keyword", "label": "Integer"}


class EdgeEpisodic(Episodic):
    """The engine is not made for two processes: memory is one replica with it."""

    def __init__(self, root: Path, model: str, dimensions: int = DIMENSIONS, *, keep: int = OPEN) -> None:
        super().__init__(model, dimensions)
        # The folder of a model: vectors of two are never in one shard.
        self._shelf: HandlePool[_Shard] = HandlePool(
            root / name_of(model), lambda path: _Shard(path, dimensions), _Shard.close, keep=keep
        )

    @asynccontextmanager
    async def opened(self, project: str, draft: bool) -> AsyncIterator[Points]:
        """The project's shard."""
        async with self._shelf.taken(project, draft) as shard:
            yield shard

    async def drop(self, project: str, *, draft: bool = False) -> None:
        """Delete the project's folder."""
        await self._shelf.drop(project, draft)

    async def swap(self, project: str) -> None:
        """Rename the draft's folder."""
        await self._shelf.swap(project)

    async def close(self) -> None:
        """Close all shards."""
        await self._shelf.close()


class _Shard:
    """A shard and the file that says where it is. The engine has no error of its own: whatever it raises is `Away`."""

    def __init__(self, path: Path, dimensions: int) -> None:
        import qdrant_edge as engine

        self._engine = engine
        self._place = path / "place.json"
        self._lock = threading.Lock()
        shard = path / "shard"
        # What was begun and never settled is begun anew.
        known = self._place.exists()
        if known:
            self._shard = engine.EdgeShard.load(str(shard))
        else:
            _empty(shard)
            self._shard = _created(shard, dimensions)

    def close(self) -> None:
        with self._lock:
            self._shard.close()

    async def payloads(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        def read() -> list[dict[str, Any]]:
            return [dict(found.payload or {}) for found in self._shard.retrieve(list(ids), True, False)]

        return await self._do(read)

    async def upsert(self, points: Sequence[Point]) -> None:
        engine = self._engine
        rows = [engine.Point(row.id, row.vector, row.payload) for row in points]
        await self._do(lambda: self._shard.update(engine.UpdateOperation.upsert_points(rows)))

    async def nearest(
        self, vector: list[float], stores: Sequence[str], facets: Sequence[str], clearance: int, k: int
    ) -> list[tuple[dict[str, Any], float]]:
        engine = self._engine
        request = engine.QueryRequest(
            limit=k,
            query=engine.Query.Nearest(vector),
            filter=self._filter(stores, facets, clearance),
            with_payload=True,
        )

        def look() -> list[tuple[dict[str, Any], float]]:
            return [(dict(found.payload or {}), found.score) for found in self._shard.query(request)]

        return await self._do(look)

    async def place(self) -> TierPosition | None:
        try:
            return TierPosition(**json.loads(self._place.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise Away(f"the location of the shard cannot be read: {type(error).__name__}") from error

    async def settle(self, place: TierPosition) -> None:
        def keep() -> None:
            self._shard.flush()
            written = self._place.with_suffix(".new")
            written.write_text(json.dumps({"life": place.life, "seq": place.seq}))
            os.replace(written, self._place)

        await self._do(keep)

    def _filter(self, stores: Sequence[str], facets: Sequence[str], clearance: int) -> "Filter":
        engine = self._engine
        must: list[Any] = [
            engine.FieldCondition("store", match=engine.MatchAny(list(stores))),
            engine.FieldCondition("removed", match=engine.MatchValue("no")),
            engine.FieldCondition("label", range=engine.RangeFloat(lte=clearance)),
        ]
        must += [engine.FieldCondition("facets", match=engine.MatchValue(wanted)) for wanted in facets]
        chosen: Filter = engine.Filter(must=must)
        return chosen

    async def _do(self, work: Callable[[], T]) -> T:
        def alone() -> T:
            with self._lock:
                return work()

        try:
            return await asyncio.to_thread(alone)
        except Exception as error:
            raise Away(f"the episodic engine does not respond: {error}"[:300]) from error


def _created(path: Path, dimensions: int) -> "EdgeShard":
    """No log of its own: what was not flushed is read from the record again."""
    import qdrant_edge as engine

    config = engine.EdgeConfig(
        vectors=engine.EdgeVectorParams(dimensions, engine.Distance.Cosine), wal_enabled=False, max_search_threads=1
    )
    shard = engine.EdgeShard.create(str(path), config)
    for field, kind in _INDEXED.items():
        shard.update(engine.UpdateOperation.create_field_index(field, getattr(engine.PayloadSchemaType, kind)))
    return shard


def _empty(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(mode=0o700)
