"""Tiers: episodic memory and the graph, updated after commits, queried, and rebuilt during operation."""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import Policy
from counterpoint.memory.commit.pipeline import EmbeddingPipeline
from counterpoint.memory.embedding.model import EmbeddingModel, Vectors
from counterpoint.memory.projection.episodic import Episodic
from counterpoint.memory.projection.episodic_search import CATCH_UP_TIMEOUT_S, EpisodicResults, EpisodicSearch
from counterpoint.memory.projection.graph import Graph
from counterpoint.memory.projection.projection import Projection
from counterpoint.memory.projection.qdrant_embedded import EdgeEpisodic
from counterpoint.memory.projection.qdrant_server import ServerEpisodic
from counterpoint.memory.projection.tier import TierScope
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.memory.search.vectors import SearchEngine
from counterpoint.proto.errors import Away, Denied, ErrorCode
from counterpoint.proto.memory import Cypher, HybridSearch, QueryPlan, QueryResult, Rebuild, VectorSearch

GRAPH_LABEL = "confidential"
"""Highest label in the graph; a caller needs that clearance to query it."""
GRAPH_PAUSE_S = 10.0
"""Delay between two updates of the graph of a project, in seconds, unless a query waits: an update takes tens of
milliseconds."""


@dataclass(slots=True)
class _EpisodicTier:
    """Episodic memory of one model."""

    projection: Projection
    search_episodic: EpisodicSearch
    task: "asyncio.Task[None] | None" = None


class Tiers:
    """Episodic memory, one for each model whose vectors are kept, and the graph of the line, each with its
    projection."""

    def __init__(
        self,
        episodic: Callable[[EmbeddingModel], Episodic],
        graph: Graph,
        database: Database,
        policy: Policy,
        search: SearchEngine,
    ) -> None:
        self._make = episodic
        self._database = database
        self._stores = policy.stores_in("episodic")
        self._search = search
        self._embeddings = EmbeddingPipeline(database, policy, search)
        self._episodic: dict[str, _EpisodicTier] = {}
        self._group: asyncio.TaskGroup | None = None
        self.graph = Projection(graph, policy.stores_in("graph"), database, pause_s=GRAPH_PAUSE_S)
        self._graph = graph

    @property
    def episodic(self) -> Projection:
        """Return the tier of the active model."""
        return self._of(self._search.active).projection

    async def keep_models(self) -> None:
        """Create the episodic memory of each model whose vectors are kept, and drop that of every other."""
        for model in self._search.models:
            self._of(model)
        for model_id in [each for each in self._episodic if not self._search.holds(each)]:
            dropped = self._episodic.pop(model_id)
            if dropped.task is not None:
                dropped.task.cancel()
                await asyncio.wait((dropped.task,))
            for project in await self._database.projects():
                await dropped.projection.tier.drop(project)
            await dropped.projection.close()

    def _of(self, model: EmbeddingModel) -> "_EpisodicTier":
        known = self._episodic.get(model.model_id)
        if known is None:
            tier = self._make(model)
            projection = Projection(tier, self._stores, self._database, self._embeddings)
            search_episodic = EpisodicSearch(tier, projection, self._database, self._embeddings)
            known = self._episodic[model.model_id] = _EpisodicTier(projection, search_episodic)
            if self._group is not None:
                known.task = self._group.create_task(projection.run())
        return known

    def applied(self, steps: Iterable[CommitPlan]) -> None:
        """Take note of applied commits."""
        steps = tuple(steps)
        for each in self._episodic.values():
            each.projection.applied(steps)
        self.graph.applied(steps)

    async def run(self) -> None:
        """Follow the record until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._of(self._search.active)
            for each in self._episodic.values():
                each.task = group.create_task(each.projection.run())
            self._group = group
            group.create_task(self.graph.run())

    async def close(self) -> None:
        """Close the engines."""
        self._group = None
        for each in self._episodic.values():
            await each.projection.close()
        await self.graph.close()

    async def search_episodic(
        self, grant: Grant, query: VectorSearch | HybridSearch, vector: Vectors, model: str
    ) -> EpisodicResults:
        """Search episodic memory; the query's vector is by this model. Raises `ModelGone`."""
        scope = TierScope(grant.project, (query.store,), grant.clearance)
        return await self._of(self._search.model(model)).search_episodic.search(scope, vector, query.where, query.k)

    async def answer(self, grant: Grant, query: Cypher | Rebuild) -> QueryResult:
        """Return the rows of a query over the line, or the progress of a rebuild."""
        started = time.perf_counter()
        match query:
            case Cypher():
                found = await self._cypher(grant, query)
            case Rebuild():
                projection = self.episodic if query.tier == "episodic" else self.graph
                running = projection.rebuild(grant.project) if query.start else projection.rebuilding(grant.project)
                report = dataclasses.asdict(running) if running is not None else {"state": "none"}
                found = QueryResult(tier=query.tier, plan=QueryPlan.REBUILD, took_us=0, report=report)
            case _:
                assert_never(query)
        return found.model_copy(update={"took_us": int((time.perf_counter() - started) * 1e6)})

    async def _cypher(self, grant: Grant, query: Cypher) -> QueryResult:
        if grant.clearance < self._graph.highest_label:
            raise Denied(ErrorCode.LABEL, f"the clearance {GRAPH_LABEL}")
        if not await self.graph.caught_up(grant.project, CATCH_UP_TIMEOUT_S):
            raise Away("the graph is behind the record")
        try:
            rows = await self._graph.cypher(grant.project, query.query, query.parameters, query.limit, query.timeout_ms)
        except Away:
            self.graph.mark(grant.project)
            raise
        return QueryResult(tier="graph", plan=QueryPlan.CYPHER, took_us=0, report=dataclasses.asdict(rows))


def embedded_or_server(
    database: Database,
    policy: Policy,
    search: SearchEngine,
    folder: Path,
    qdrant_url: str | None,
    qdrant_key: str | None,
) -> Tiers:
    """Return the tiers below `folder`, with episodic memory on the Qdrant server of `qdrant_url` if there is one."""

    def episodic(model: EmbeddingModel) -> Episodic:
        if qdrant_url is not None:
            return ServerEpisodic(qdrant_url, model.model_id, qdrant_key, model.dimensions)
        return EdgeEpisodic(folder / "episodic", model.model_id, model.dimensions)

    return Tiers(episodic, Graph(folder / "graph", policy.level(GRAPH_LABEL)), database, policy, search)
