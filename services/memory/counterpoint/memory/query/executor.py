"""Queries: each answered by the tier that holds its store, in one snapshot, through the diode's read side."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, assert_never

import asyncpg

from counterpoint.bus.fair_limiter import FairLimiter
from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.audit.auditor import Auditor
from counterpoint.memory.ingest.chunk import beside
from counterpoint.memory.projection.episodic_search import EpisodicResults
from counterpoint.memory.projection.projections import Tiers
from counterpoint.memory.provenance.influence import Influence
from counterpoint.memory.query.as_of import AsOfReader
from counterpoint.memory.query.dependents import dependents
from counterpoint.memory.query.item_view import item, projects, visible
from counterpoint.memory.query.message_log import log_page
from counterpoint.memory.query.recall_sampler import Ids, RecallSampler
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import SYSTEM
from counterpoint.memory.record.statements import COLUMNS, GETS, listing, walking
from counterpoint.memory.search.rerank import reranked, widened
from counterpoint.memory.search.vectors import EmbeddedTexts, ModelGone, SearchEngine
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import (
    AuditLeaves,
    AuditQuery,
    Checkpoints,
    Cypher,
    Dependents,
    EdgeWalk,
    Explain,
    Get,
    HybridSearch,
    Item,
    Line,
    List,
    LogAfter,
    MemoryQuery,
    Prove,
    QueryResult,
    Rebuild,
    Reembed,
    VectorSearch,
    Verify,
)

_BY_IDS = f"SELECT {COLUMNS} FROM records WHERE store = $1 AND id = ANY ($2) AND body IS NOT NULL"
_LINE = f"""
SELECT {COLUMNS} FROM records
WHERE project = $1 AND store = 'actions' AND task_id = $2 AND body IS NOT NULL ORDER BY seq
"""
_STORE_OF = {
    "line": "actions",
    "log_after": "decisions",
    "cypher": "projections",
    "rebuild": "projections",
    "reembed": "projections",
}
TURNS = 8
"""Concurrent requests; fewer than there are connections, so that other work finds one."""
LONG_TURNS = 2
"""Concurrent requests that may take seconds; others do not wait for them."""
GATEWAY_TURNS = 2
"""Concurrent requests of the gateway. A search may wait for one of them: the gateway embeds its query."""
PATIENCE_S = 8.0
"""Maximum wait of a query for its turn, in seconds. Callers wait for ten seconds, so a later answer would not be
read."""


class QueryExecutor:
    """Answers queries for one grant."""

    def __init__(
        self,
        database: Database,
        policy: Policy,
        search: SearchEngine,
        past: AsOfReader,
        influence: Influence,
        tiers: Tiers,
        auditor: Auditor,
        *,
        sample_share: float = 0.01,
    ) -> None:
        self._auditor = auditor
        self._turns, self._long_turns, self._gateway_turns = map(FairLimiter, (TURNS, LONG_TURNS, GATEWAY_TURNS))
        self.sampler = RecallSampler(sample_share, self._turns.locked)
        self._database = database
        self._policy = policy
        self._search = search
        self._past = past
        self._influence = influence
        self._tiers = tiers

    def store(self, query: MemoryQuery) -> str:
        """The store whose read right a query needs."""
        if isinstance(query, AuditQuery):
            return "audit"
        return _STORE_OF.get(query.op) or query.store  # type: ignore[union-attr]

    @property
    def asks_outside(self) -> bool:
        """Whether what is searched for is embedded by a model outside."""
        return self._search.outside

    async def answer(
        self, grant: Grant, queries: Sequence[MemoryQuery], label: int | None = None
    ) -> tuple[QueryResult, ...]:
        """One `QueryResult` per query; `label` is that of what the asker has read, and may ask with; None where
        it was not looked up, for nobody outside is asked.

        Raises `Transient` when its turn comes too late, and what a model outside raises. Nobody's turn waits for that
        one where it can be asked before; and the gateway to it, which asks here as well, has turns of its own.
        """
        while True:
            changes = self._search.changes
            try:
                found, model = await self._in_turn(grant, queries, label)
            except ModelGone:
                if changes == self._search.changes:
                    raise
                continue
            # Where the model is kept no more, its vectors may have gone while they were looked for.
            if self._search.holds(model):
                return found

    async def _in_turn(
        self, grant: Grant, queries: Sequence[MemoryQuery], label: int | None
    ) -> tuple[tuple[QueryResult, ...], str]:
        """The answers, and the model that they were searched by."""
        embedded = await self._search.embed(grant.project, queries, label) if self.asks_outside else None
        long = any(isinstance(query, Verify | Cypher) for query in queries)
        turns = self._gateway_turns if diode.of_gateway(grant) else self._long_turns if long else self._turns
        async with turns.slot(grant.project, PATIENCE_S):
            if embedded is None:
                embedded = await self._search.embed(grant.project, queries, label)
            return await self._answer(grant, queries, embedded), embedded.model

    async def _answer(
        self, grant: Grant, queries: Sequence[MemoryQuery], embedded: EmbeddedTexts
    ) -> tuple[QueryResult, ...]:
        beside = {n: await self._beside(grant, query, embedded) for n, query in enumerate(queries)}
        if all(isinstance(answer, QueryResult) for answer in beside.values()):
            return tuple(answer for answer in beside.values() if isinstance(answer, QueryResult))
        system = any(self._policy.stores[self.store(query)].system for query in queries)
        found = []
        look = self._database.reading if _one_statement(queries) else self._database.snapshot
        async with look(SYSTEM if system else grant.project) as connection:
            got: dict[tuple[str, str], Any] | None = None
            for n, query in enumerate(queries):
                began = time.perf_counter()
                try:
                    if isinstance(query, Get | List | Line | VectorSearch | HybridSearch) and query.as_of is not None:
                        answer = await self._past.answer(connection, grant, query, query.as_of, embedded)
                    else:
                        if isinstance(query, Get) and got is None:
                            got = await self._gets(connection, grant, queries)
                        answer = await self._one(connection, grant, query, embedded, got or {}, beside[n])
                except asyncpg.DataError as error:
                    raise Permanent(
                        ErrorCode.INVALID,
                        (Problem(field=query.op, problem="contains a value that the database cannot search for"),),
                    ) from error
                took_us = int((time.perf_counter() - began) * 1e6)
                found.append(answer.model_copy(update={"took_us": took_us}))
        return tuple(found)

    async def _beside(
        self, grant: Grant, query: MemoryQuery, embedded: EmbeddedTexts
    ) -> QueryResult | EpisodicResults | None:
        """Answer queries of the other tiers before a connection is taken for the rest."""
        match query:
            case Cypher() | Rebuild():
                return await self._tiers.answer(grant, query)
            case Verify() | Prove() | Checkpoints() | AuditLeaves() | Explain():
                began = time.perf_counter()
                report = await self._auditor.answer(grant.project, query)
                took_us = int((time.perf_counter() - began) * 1e6)
                return QueryResult(tier="record", plan="audit", took_us=took_us, report=report)
            case VectorSearch() | HybridSearch() if query.as_of is not None:
                return None
            case VectorSearch() | HybridSearch() if self._policy.stores[query.store].tier == "episodic":
                if query.under or query.since or query.until:
                    raise Permanent(
                        ErrorCode.INVALID, (Problem(field="under", problem="is not available for this store"),)
                    )
                return await self._tiers.recall(grant, query, embedded[query.text], embedded.model)
            case _:
                return None

    async def _gets(self, connection: Any, grant: Grant, queries: Sequence[MemoryQuery]) -> dict[tuple[str, str], Any]:
        """All records that a request gets, by store and id, by one statement."""
        wanted = list(dict.fromkeys((query.store, query.id) for query in queries if isinstance(query, Get)))
        places = [projects(self._policy, grant, store) for store, _ in wanted]
        rows = await connection.fetch(
            GETS,
            places[0][0],
            [store for store, _ in wanted],
            [record_id for _, record_id in wanted],
            [len(projects) > 1 for projects in places],
        )
        return {(row["store"], row["id"]): row for row in rows}

    async def _one(
        self,
        connection: Any,
        grant: Grant,
        query: MemoryQuery,
        embedded: EmbeddedTexts,
        got: dict[tuple[str, str], Any],
        beside: QueryResult | EpisodicResults | None,
    ) -> QueryResult:
        if isinstance(beside, QueryResult):
            return beside
        match query:
            case Get():
                row = got.get((query.store, query.id))
                return self._found(grant, [row] if row else [], "record", "primary key")
            case List():
                return await self._list(connection, grant, query)
            case Line():
                rows = await connection.fetch(_LINE, grant.project, query.task_id)
                rows = rows[::-1] if query.newest_first else rows
                return self._found(grant, rows[: query.limit], "record", "task index")
            case EdgeWalk():
                sql, values = walking(query, grant.project)
                rows = await connection.fetch(sql, *values)
                return self._found(grant, rows, "record", "recursive", score="hops")
            case LogAfter():
                return await log_page(connection, grant, query)
            case VectorSearch() | HybridSearch() if beside is not None:
                return await self._recalled(connection, grant, query, beside)
            case VectorSearch() | HybridSearch():
                items, plan = await self._best(connection, grant, query, embedded)
                if plan == "indexed" or (query.filters and plan != "none"):
                    self.sampler.offer(query.store, plan, partial(self._compared, grant, query, embedded))
                items += await self._neighbours(connection, grant, query, items)
                return QueryResult(items=items, tier="vector", plan=plan, took_us=0)
            case Dependents():
                return await dependents(self._policy, self._influence, grant, query)
            case Cypher() | Rebuild() | Reembed() | Verify() | Prove() | Checkpoints() | AuditLeaves() | Explain():
                raise AssertionError(f"{query.op} is answered beside the record")
            case _:
                assert_never(query)

    async def _best(
        self, connection: Any, grant: Grant, query: VectorSearch | HybridSearch, embedded: EmbeddedTexts
    ) -> tuple[tuple[Item, ...], str]:
        """The best of a search, ordered by the reranker where there is one."""
        reranker = self._search.reranker
        wide = widened(query) if reranker is not None and isinstance(query, HybridSearch) else None
        if reranker is None or wide is None or not isinstance(query, HybridSearch):
            return await self._searched(connection, grant, query, embedded)
        items, plan = await self._searched(connection, grant, wide, embedded)
        return await reranked(reranker, query, items), plan

    async def _searched(
        self,
        connection: Any,
        grant: Grant,
        query: VectorSearch | HybridSearch,
        embedded: EmbeddedTexts,
        *,
        exact: bool = False,
    ) -> tuple[tuple[Item, ...], str]:
        hits, plan = await self._search.run(connection, grant.project, query, embedded, grant.clearance, exact=exact)
        rows = await connection.fetch(_BY_IDS, query.store, [hit.id for hit in hits]) if hits else []
        known = {(row["project"], row["id"]): row for row in rows}
        found = [(known[hit.project, hit.id], hit) for hit in hits if (hit.project, hit.id) in known]
        items = [
            item(row, hit.score, hit.scores)
            for row, hit in found
            if visible(self._policy, grant, row) and _matches(row, query)
        ]
        return tuple(items[: query.k]), plan

    async def _neighbours(
        self, connection: Any, grant: Grant, query: VectorSearch | HybridSearch, items: Sequence[Item]
    ) -> tuple[Item, ...]:
        """Neighbours of the best chunks that were found, in the order of these."""
        if not isinstance(query, HybridSearch) or query.store != "chunks" or not query.neighbours:
            return ()
        found = {(each.project, each.id) for each in items}
        wanted = dict.fromkeys(
            (each.project, chunk_id)
            for each in items[: query.neighbours_of]
            for chunk_id in beside(each.id, query.neighbours)
            if (each.project, chunk_id) not in found
        )
        rows = await connection.fetch(_BY_IDS, query.store, [chunk_id for _, chunk_id in wanted])
        known = {(row["project"], row["id"]): row for row in rows}
        return tuple(
            item(known[place]) for place in wanted if place in known and visible(self._policy, grant, known[place])
        )

    async def _compared(
        self, grant: Grant, query: VectorSearch | HybridSearch, embedded: EmbeddedTexts
    ) -> tuple[Ids, Ids]:
        """Return the result of a search and the exact result, from one snapshot of the record."""
        async with self._database.snapshot(grant.project) as connection:
            found, _ = await self._searched(connection, grant, query, embedded)
            exact, _ = await self._searched(connection, grant, query, embedded, exact=True)
        return _ids(found), _ids(exact)

    async def _recalled(
        self, connection: Any, grant: Grant, query: VectorSearch | HybridSearch, recalled: EpisodicResults
    ) -> QueryResult:
        """Replace recalled items by their current records; drop those that changed since."""
        rows = await connection.fetch(_BY_IDS, query.store, [hit.id for hit in recalled.hits])
        known = {(row["id"], row["version"]): row for row in rows if row["project"] == grant.project}
        found = [(known[hit.id, hit.version], hit) for hit in recalled.hits if (hit.id, hit.version) in known]
        items = [item(row, hit.score, {"cosine": hit.score}) for row, hit in found if visible(self._policy, grant, row)]
        return QueryResult(items=tuple(items), tier="episodic", plan=recalled.plan, took_us=0)

    async def _list(self, connection: Any, grant: Grant, query: List) -> QueryResult:
        sql, values = listing(query, projects(self._policy, grant, query.store))
        rows = await connection.fetch(sql, *values)
        found = self._found(grant, rows[: query.limit], "record", "list")
        more = len(rows) > query.limit
        return found.model_copy(update={"next_cursor": rows[query.limit - 1]["seq"] if more else None})

    def _found(self, grant: Grant, rows: Sequence[Any], tier: str, plan: str, score: str | None = None) -> QueryResult:
        items = tuple(item(row, row[score] if score else None) for row in rows if visible(self._policy, grant, row))
        return QueryResult(items=items, tier=tier, plan=plan, took_us=0)


def _ids(items: Sequence[Item]) -> Ids:
    return frozenset((each.project, each.id) for each in items)


def _one_statement(queries: Sequence[MemoryQuery]) -> bool:
    """Whether a request is answered by one statement, which needs no transaction to see one state."""
    if any(getattr(query, "as_of", None) is not None for query in queries):
        return False
    if len(queries) == 1:
        return isinstance(queries[0], Get | List | Line | EdgeWalk)
    return all(isinstance(query, Get) for query in queries)


def _matches(row: Any, query: VectorSearch | HybridSearch) -> bool:
    of_document = {"metadata"} if query.store == "chunks" else set()
    return all(row["body"].get(name) == wanted for name, wanted in query.where.items() if name not in of_document)
