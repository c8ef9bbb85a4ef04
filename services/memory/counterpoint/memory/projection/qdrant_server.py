"""Episodic memory on a Qdrant server: one collection per project, behind an alias."""

from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from counterpoint.memory.embedding.model import DIMENSIONS
from counterpoint.memory.projection.episodic import Episodic, Point, Points, name_of, point_id
from counterpoint.memory.projection.tier import TierPosition
from counterpoint.proto.errors import Away

if TYPE_CHECKING:
    from qdrant_client import AsyncQdrantClient

T = TypeVar("T")

LOCAL = ":memory:"
"""The client's in-memory implementation, for tests: it compares every point, in Python."""

_POSITION_ID = point_id("place", "place")
_TIMEOUT_S = 10


class ServerEpisodic(Episodic):
    """Episodic memory on a server. The alias of a project and model points to its live collection, `_a` or `_b`; the
    other one is its draft."""

    def __init__(self, url: str, model: str, api_key: str | None = None, dimensions: int = DIMENSIONS) -> None:
        super().__init__(model, dimensions)
        self._url = url
        self._api_key = api_key
        self._connected: AsyncQdrantClient | None = None

    @asynccontextmanager
    async def opened(self, project: str, draft: bool) -> AsyncIterator[Points]:
        """Return the project's collection; create it if it does not exist."""
        yield _Collection(self._client(), await self._collection(project, draft), self.dimensions)

    async def drop(self, project: str, *, draft: bool = False) -> None:
        """Delete the collection."""
        name = await self._live(project)
        if draft:
            name = self._other(project, name)
        if name is not None:
            await _do(self._client().delete_collection(name, timeout=_TIMEOUT_S))

    async def swap(self, project: str) -> None:
        """Point the alias to the draft, atomically."""
        from qdrant_client import models

        live = await self._live(project)
        alias = models.CreateAlias(alias_name=self._alias(project), collection_name=self._other(project, live))
        steps: list[Any] = [models.CreateAliasOperation(create_alias=alias)]
        if live is not None:
            old = models.DeleteAlias(alias_name=self._alias(project))
            steps.insert(0, models.DeleteAliasOperation(delete_alias=old))
        await _do(self._client().update_collection_aliases(steps, timeout=_TIMEOUT_S))
        if live is not None:
            await _do(self._client().delete_collection(live, timeout=_TIMEOUT_S))

    async def close(self) -> None:
        """Close the connections."""
        if self._connected is not None:
            await self._connected.close()
            self._connected = None

    def _client(self) -> "AsyncQdrantClient":
        if self._connected is None:
            from qdrant_client import AsyncQdrantClient

            if self._url == LOCAL:
                self._connected = AsyncQdrantClient(LOCAL)
            else:
                self._connected = AsyncQdrantClient(
                    url=self._url, api_key=self._api_key, timeout=_TIMEOUT_S, check_compatibility=False
                )
        return self._connected

    def _alias(self, project: str) -> str:
        return f"counterpoint_{project}_{name_of(self.model)}"

    def _other(self, project: str, live: str | None) -> str:
        first = self._alias(project) + "_a"
        return self._alias(project) + "_b" if live == first else first

    async def _live(self, project: str) -> str | None:
        known = await _do(self._client().get_aliases())
        return next((each.collection_name for each in known.aliases if each.alias_name == self._alias(project)), None)

    async def _collection(self, project: str, draft: bool) -> str:
        live = await self._live(project)
        if live is not None and not draft:
            return live
        name = self._other(project, live)
        if not await _do(self._client().collection_exists(name)):
            await self._create(name)
        if not draft:
            await self.swap(project)
        return name

    async def _create(self, name: str) -> None:
        from qdrant_client import models

        size = models.VectorParams(size=self.dimensions, distance=models.Distance.COSINE)
        try:
            await _do(self._client().create_collection(name, vectors_config=size, timeout=_TIMEOUT_S))
        except Away:
            # Two concurrent first calls: one of them creates it.
            if not await _do(self._client().collection_exists(name)):
                raise
        if self._url == LOCAL:
            return
        for field, kind in (("store", "keyword"), ("facets", "keyword"), ("label", "integer")):
            await _do(self._client().create_payload_index(name, field, models.PayloadSchemaType(kind)))


class _Collection:
    """One collection. Its position is a point of its own, which no search returns."""

    def __init__(self, client: "AsyncQdrantClient", name: str, dimensions: int) -> None:
        self._client = client
        self._name = name
        self._dimensions = dimensions

    async def payloads(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        found = await _do(self._client.retrieve(self._name, list(ids), with_payload=True))
        return [dict(row.payload or {}) for row in found]

    async def upsert(self, points: Sequence[Point]) -> None:
        from qdrant_client import models

        rows = [models.PointStruct(id=row.id, vector=row.vector, payload=row.payload) for row in points]
        await _do(self._client.upsert(self._name, rows, wait=True))

    async def nearest(
        self, vector: list[float], stores: Sequence[str], facets: Sequence[str], clearance: int, k: int
    ) -> list[tuple[dict[str, Any], float]]:
        from qdrant_client import models

        must: list[Any] = [
            models.FieldCondition(key="store", match=models.MatchAny(any=list(stores))),
            models.FieldCondition(key="removed", match=models.MatchValue(value="no")),
            models.FieldCondition(key="label", range=models.Range(lte=clearance)),
        ]
        must += [models.FieldCondition(key="facets", match=models.MatchValue(value=wanted)) for wanted in facets]
        found = await _do(self._client.query_points(self._name, vector, query_filter=models.Filter(must=must), limit=k))
        return [(dict(row.payload or {}), row.score) for row in found.points]

    async def position(self) -> TierPosition | None:
        found = await self.payloads([_POSITION_ID])
        return TierPosition(found[0]["life"], found[0]["seq"]) if found else None

    async def settle(self, position: TierPosition) -> None:
        payload = {"removed": "yes", "life": position.life, "seq": position.seq}
        await self.upsert([Point(_POSITION_ID, [1.0] + [0.0] * (self._dimensions - 1), payload)])


async def _do(call: Awaitable[T]) -> T:
    """Await a call of the client. Raises `Away` for every exception of the client, which has no common base class."""
    try:
        return await call
    except Exception as error:
        raise Away(f"the episodic engine does not respond: {type(error).__name__}") from error
