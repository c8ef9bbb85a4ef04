"""The tiers as memory uses them: told of every commit, asked by queries, and rebuilt while all goes on."""

import asyncio
import dataclasses
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import assert_never

from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import Policy
from counterpoint.memory.database import Database
from counterpoint.memory.embeddings import Embeddings
from counterpoint.memory.retrieval.embed import Vectors
from counterpoint.memory.rows import Prepared
from counterpoint.memory.search import Search
from counterpoint.memory.settings import MemorySettings
from counterpoint.memory.tiers.edge import EdgeEpisodic
from counterpoint.memory.tiers.episodic import Episodic
from counterpoint.memory.tiers.graph import Graph
from counterpoint.memory.tiers.projection import Projection
from counterpoint.memory.tiers.recall import PATIENCE_S, Recall, Recalled
from counterpoint.memory.tiers.server import ServerEpisodic
from counterpoint.memory.tiers.tier import Scope
from counterpoint.proto.errors import Away, Denied
from counterpoint.proto.memory import Cypher, Found, HybridSearch, Rebuild, VectorSearch

GRAPH_LABEL = "confidential"
"""Nothing above it is in the graph, and who may not read as high does not ask it."""


class Tiers:
    """Episodic memory and the graph of the line, each with what follows the record for it."""

    def __init__(self, episodic: Episodic, graph: Graph, database: Database, policy: Policy, search: Search) -> None:
        embeddings = Embeddings(database, policy, search)
        self.episodic = Projection(episodic, policy.kept_in("episodic"), database, embeddings)
        self.graph = Projection(graph, policy.kept_in("graph"), database)
        self._graph = graph
        self._recall = Recall(episodic, self.episodic, database, embeddings)

    def applied(self, steps: Iterable[Prepared]) -> None:
        """Steps were committed."""
        steps = tuple(steps)
        self.episodic.applied(steps)
        self.graph.applied(steps)

    async def run(self) -> None:
        """Follow the record, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.episodic.run())
            group.create_task(self.graph.run())

    async def close(self) -> None:
        """Let go of the engines."""
        await self.episodic.close()
        await self.graph.close()

    async def recall(self, grant: Grant, query: VectorSearch | HybridSearch, vector: Vectors) -> Recalled:
        """What episodic memory has for a query."""
        scope = Scope(grant.project, (query.store,), grant.clearance)
        return await self._recall.search(scope, vector, query.where, query.k)

    async def answer(self, grant: Grant, query: Cypher | Rebuild) -> Found:
        """The rows of a query over the line, or how a rebuild is coming on."""
        began = time.perf_counter()
        match query:
            case Cypher():
                found = await self._cypher(grant, query)
            case Rebuild():
                projection = self.episodic if query.tier == "episodic" else self.graph
                running = projection.rebuild(grant.project) if query.start else projection.rebuilding(grant.project)
                report = dataclasses.asdict(running) if running is not None else {"state": "none"}
                found = Found(tier=query.tier, plan="rebuild", took_us=0, report=report)
            case _:
                assert_never(query)
        return found.model_copy(update={"took_us": int((time.perf_counter() - began) * 1e6)})

    async def _cypher(self, grant: Grant, query: Cypher) -> Found:
        if grant.clearance < self._graph.highest_label:
            raise Denied("label", f"the clearance {GRAPH_LABEL}")
        if not await self.graph.caught_up(grant.project, PATIENCE_S):
            raise Away("the graph is behind the record")
        try:
            rows = await self._graph.cypher(grant.project, query.query, query.parameters, query.limit, query.timeout_ms)
        except Away:
            self.graph.mark(grant.project)
            raise
        return Found(tier="graph", plan="cypher", took_us=0, report=dataclasses.asdict(rows))


def embedded_or_server(settings: MemorySettings, database: Database, policy: Policy, search: Search) -> Tiers:
    """The tiers on the engines that the settings name."""
    folder = settings.data_dir or Path(tempfile.mkdtemp(prefix="counterpoint-"))
    episodic: Episodic
    if settings.qdrant_url is not None:
        key = settings.qdrant_api_key.get_secret_value() if settings.qdrant_api_key else None
        episodic = ServerEpisodic(settings.qdrant_url.get_secret_value(), search.model_id, key)
    else:
        episodic = EdgeEpisodic(folder / "episodic", search.model_id)
    return Tiers(episodic, Graph(folder / "graph", policy.level(GRAPH_LABEL)), database, policy, search)
