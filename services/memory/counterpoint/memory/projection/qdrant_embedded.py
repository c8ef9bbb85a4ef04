"""Episodic memory on Qdrant's core in this process: one shard per project, below the data folder.

A search compares every point that the filter leaves: exact, and 7 ms for 25,000 of them. `optimize()` would build a
graph over the vectors, but holds Python's lock meanwhile (27 s there), in a thread too: the process would stand still.
More episodes than that need a server.
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
    """Episodic memory in this process. The engine does not support two processes: memory has one replica with it."""

    def __init__(self, root: Path, model: str, dimensions: int = DIMENSIONS, *, keep: int = OPEN) -> None:
        super().__init__(model, dimensions)
        # The folder of a model: vectors of two models are never in one shard.
        self._handles: HandlePool[_Shard] = HandlePool(
            root / name_of(model), lambda path: _Shard(path, dimensions), _Shard.close, keep=keep
        )

    @asynccontextmanager
    async def opened(self, project: str, draft: bool) -> AsyncIterator[Points]:
        """Open the project's shard."""
        async with self._handles.handle(project, draft) as shard:
            yield shard

    async def drop(self, project: str, *, draft: bool = False) -> None:
        """Delete the project's folder."""
        await self._handles.drop(project, draft)

    async def swap(self, project: str) -> None:
        """Rename the draft's folder."""
        await self._handles.swap(project)

    async def close(self) -> None:
        """Close all shards."""
        await self._handles.close()


class _Shard:
    """A shard and the file with its position. The engine has no error class of its own: every exception is `Away`."""

    def __init__(self, path: Path, dimensions: int) -> None:
        import qdrant_edge as engine

        self._engine = engine
        self._position_file = path / "place.json"
        self._lock = threading.Lock()
        shard = path / "shard"
        # A shard without a position was not completed: it is rebuilt.
        is_known = self._position_file.exists()
        if is_known:
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

        def query_engine() -> list[tuple[dict[str, Any], float]]:
            return [(dict(found.payload or {}), found.score) for found in self._shard.query(request)]

        return await self._do(query_engine)

    async def position(self) -> TierPosition | None:
        try:
            return TierPosition(**json.loads(self._position_file.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise Away(f"the location of the shard cannot be read: {type(error).__name__}") from error

    async def settle(self, position: TierPosition) -> None:
        def keep() -> None:
            self._shard.flush()
            draft = self._position_file.with_suffix(".new")
            draft.write_text(json.dumps({"life": position.life, "seq": position.seq}))
            os.replace(draft, self._position_file)

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
        def locked() -> T:
            with self._lock:
                return work()

        try:
            return await asyncio.to_thread(locked)
        except Exception as error:
            raise Away(f"the episodic engine does not respond: {error}"[:300]) from error


def _created(path: Path, dimensions: int) -> "EdgeShard":
    """Create a shard and its indexes, without a write-ahead log: unflushed points are read from the record again."""
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
