"""Query executor: each query is answered by the tier of its store, in one snapshot, through the diode's read side."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, assert_never

import asyncpg

from counterpoint.bus.fair_limiter import FairLimiter
from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.audit.auditor import Auditor
from counterpoint.memory.ingest.chunk import neighbour_ids
from counterpoint.memory.projection.episodic_search import EpisodicResults
from counterpoint.memory.projection.projections import Tiers
from counterpoint.memory.provenance.influence import Influence
from counterpoint.memory.query.as_of import AsOfReader
from counterpoint.memory.query.costs import costs
from counterpoint.memory.query.dependents import dependents
from counterpoint.memory.query.item_view import item, visible
from counterpoint.memory.query.message_log import log_page
from counterpoint.memory.query.moments import moment
from counterpoint.memory.query.organisation import organisation_limits
from counterpoint.memory.query.query_scope import one_statement, store_of
from counterpoint.memory.query.recall_sampler import Ids, RecallSampler
from counterpoint.memory.query.record_reader import RecordReader
from counterpoint.memory.query.recorded_steps import recorded
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import SYSTEM
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.memory.record.statements import edge_walk
from counterpoint.memory.search.rerank import reranked, widened
from counterpoint.memory.search.vectors import EmbeddedTexts, ModelGone, SearchEngine
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import (
    AuditLeaves,
    Checkpoints,
    Costs,
    Cypher,
    Dependents,
    EdgeWalk,
    Explain,
    Get,
    Health,
    HybridSearch,
    Item,
    Line,
    List,
    LogAfter,
    MemoryQuery,
    OrganisationLimits,
    OrganisationReport,
    Prove,
    QueryPlan,
    QueryResult,
    Rebuild,
    RecordedAnswer,
    RecordedStep,
    Reembed,
    VectorSearch,
    Verify,
)

_SQL = load_statements(__package__)
SLOTS = 8
"""Concurrent requests; fewer than the connections, so that other work finds one."""
LONG_SLOTS = 2
"""Concurrent requests that may take seconds; others do not wait for them."""
GATEWAY_SLOTS = 2
"""Concurrent requests of the gateway. A search may wait for one of them: the gateway embeds its query."""
SLOT_TIMEOUT_S = 8.0
"""Timeout of waiting for a turn, in seconds. Callers wait for ten seconds, so a later answer would not be read."""


class QueryExecutor:
    """Answers queries for one grant."""

    def __init__(
        self,
        database: Database,
        policy: Policy,
        search: SearchEngine,
        as_of: AsOfReader,
        influence: Influence,
        tiers: Tiers,
        auditor: Auditor,
        *,
        sample_share: float = 0.01,
    ) -> None:
        self._auditor = auditor
        self._slots, self._long_slots, self._gateway_slots = map(FairLimiter, (SLOTS, LONG_SLOTS, GATEWAY_SLOTS))
        self.sampler = RecallSampler(sample_share, self._slots.locked)
        self._database = database
        self._policy = policy
        self._search = search
        self._as_of = as_of
        self._influence = influence
        self._tiers = tiers

    @property
    def embeds_remotely(self) -> bool:
        """Whether a remote model embeds the texts of queries."""
        return self._search.is_remote

    async def answer(
        self, grant: Grant, queries: Sequence[MemoryQuery], label: int | None = None
    ) -> tuple[QueryResult, ...]:
        """Return one `QueryResult` per query. `label` is that of everything the query texts may contain; None if it was
        not looked up, because no remote model receives them.

        Raises `Transient` if the wait for a turn times out, and every error of a remote model. A remote model is called
        before a turn is taken, and its gateway, which sends queries here too, has turns of its own.
        """
        while True:
            changes = self._search.changes
            try:
                found, model = await self._in_slot(grant, queries, label)
            except ModelGone:
                if changes == self._search.changes:
                    raise
                continue
            # Vectors of a model that is no longer kept may have been deleted during the search.
            if self._search.holds(model):
                return found

    async def organisation_limits(self, project: str, *, everywhere: bool) -> OrganisationReport:
        """Return the limits of the organisation. Raises `Transient` if the wait for a turn times out."""
        async with self._long_slots.slot(project, SLOT_TIMEOUT_S):
            return await organisation_limits(self._database, project, datetime.now(UTC), everywhere=everywhere)

    async def _in_slot(
        self, grant: Grant, queries: Sequence[MemoryQuery], label: int | None
    ) -> tuple[tuple[QueryResult, ...], str]:
        """Return the answers, and the model by which they were searched."""
        embedded = await self._search.embed(grant.project, queries, label) if self.embeds_remotely else None
        is_long = any(isinstance(query, Verify | Cypher | Costs) for query in queries)
        slots = self._gateway_slots if diode.of_gateway(grant) else self._long_slots if is_long else self._slots
        async with slots.slot(grant.project, SLOT_TIMEOUT_S):
            if embedded is None:
                embedded = await self._search.embed(grant.project, queries, label)
            return await self._answer(grant, queries, embedded), embedded.model

    async def _answer(
        self, grant: Grant, queries: Sequence[MemoryQuery], embedded: EmbeddedTexts
    ) -> tuple[QueryResult, ...]:
        neighbour_ids = {n: await self._from_other_tiers(grant, query, embedded) for n, query in enumerate(queries)}
        if all(isinstance(answer, QueryResult) for answer in neighbour_ids.values()):
            return tuple(answer for answer in neighbour_ids.values() if isinstance(answer, QueryResult))
        system = any(self._policy.stores[store_of(query)].system for query in queries)
        found = []
        open_connection = self._database.reading if one_statement(queries) else self._database.snapshot
        async with open_connection(SYSTEM if system else grant.project) as connection:
            read = RecordReader(self._policy, grant, queries)
            for n, query in enumerate(queries):
                started = time.perf_counter()
                try:
                    if isinstance(query, Get | List | Line | VectorSearch | HybridSearch) and query.as_of is not None:
                        answer = await self._as_of.answer(connection, grant, query, query.as_of, embedded)
                    else:
                        rows = await read.rows(connection, n) if isinstance(query, Get | List) else ()
                        answer = await self._one(connection, grant, query, embedded, rows, neighbour_ids[n])
                except asyncpg.DataError as error:
                    raise Permanent(
                        ErrorCode.INVALID,
                        (Problem(field=query.op, problem="contains a value that the database cannot search for"),),
                    ) from error
                took_us = int((time.perf_counter() - started) * 1e6)
                found.append(answer.model_copy(update={"took_us": took_us}))
        return tuple(found)

    async def _from_other_tiers(
        self, grant: Grant, query: MemoryQuery, embedded: EmbeddedTexts
    ) -> QueryResult | EpisodicResults | None:
        """Answer queries of the other tiers before a connection is taken for the rest."""
        match query:
            case Cypher() | Rebuild():
                return await self._tiers.answer(grant, query)
            case Verify() | Prove() | Checkpoints() | AuditLeaves() | Explain():
                started = time.perf_counter()
                report = await self._auditor.answer(grant.project, query)
                took_us = int((time.perf_counter() - started) * 1e6)
                return QueryResult(tier="record", plan=QueryPlan.AUDIT, took_us=took_us, report=report)
            case VectorSearch() | HybridSearch() if query.as_of is not None:
                return None
            case VectorSearch() | HybridSearch() if self._policy.stores[query.store].tier == "episodic":
                if query.under or query.since or query.until:
                    raise Permanent(
                        ErrorCode.INVALID, (Problem(field="under", problem="is not available for this store"),)
                    )
                return await self._tiers.search_episodic(grant, query, embedded[query.text], embedded.model)
            case _:
                return None

    async def _one(
        self,
        connection: Any,
        grant: Grant,
        query: MemoryQuery,
        embedded: EmbeddedTexts,
        rows: Sequence[Any],
        neighbour_ids: QueryResult | EpisodicResults | None,
    ) -> QueryResult:
        if isinstance(neighbour_ids, QueryResult):
            return neighbour_ids
        match query:
            case Get():
                return self._result(grant, rows, QueryPlan.PRIMARY_KEY)
            case List():
                return self._listed(grant, query, rows)
            case Line():
                rows = await connection.fetch(_SQL["line_of_task"], grant.project, query.task_id)
                rows = rows[::-1] if query.newest_first else rows
                return self._result(grant, rows[: query.limit], QueryPlan.TASK_INDEX)
            case EdgeWalk():
                then = await moment(connection, grant.project, query.as_of) if query.as_of is not None else None
                sql, values = edge_walk(query, grant.project, then.seq if then is not None else None)
                rows = await connection.fetch(sql, *values)
                return self._result(grant, rows, QueryPlan.RECURSIVE, score="hops")
            case LogAfter():
                return await log_page(connection, grant, query)
            case VectorSearch() | HybridSearch() if neighbour_ids is not None:
                return await self._current_items(connection, grant, query, neighbour_ids)
            case VectorSearch() | HybridSearch():
                items, plan = await self._best(connection, grant, query, embedded)
                if plan == QueryPlan.INDEXED or (query.filters and plan != QueryPlan.NONE):
                    self.sampler.offer(query.store, plan, partial(self._compared, grant, query, embedded))
                items += await self._neighbours(connection, grant, query, items)
                return QueryResult(items=items, tier="vector", plan=plan, took_us=0)
            case Dependents():
                return await dependents(self._policy, self._influence, grant, query)
            case Costs():
                return await costs(connection, grant, query)
            case RecordedStep() | RecordedAnswer():
                return await recorded(connection, self._policy, grant, query)
            case (
                Cypher() | Rebuild() | Reembed() | Health() | OrganisationLimits() | Verify() | Prove() | Checkpoints()
                | AuditLeaves() | Explain()
            ):  # fmt: skip
                raise AssertionError(f"{query.op} is answered beside the record")
            case _:
                assert_never(query)

    async def _best(
        self, connection: Any, grant: Grant, query: VectorSearch | HybridSearch, embedded: EmbeddedTexts
    ) -> tuple[tuple[Item, ...], QueryPlan]:
        """Return the best hits of a search, reordered if there is a reranker."""
        reranker = self._search.reranker
        wider = widened(query) if reranker is not None and isinstance(query, HybridSearch) else None
        if reranker is None or wider is None or not isinstance(query, HybridSearch):
            return await self._searched(connection, grant, query, embedded)
        items, plan = await self._searched(connection, grant, wider, embedded)
        return await reranked(reranker, query, items), plan

    async def _searched(
        self,
        connection: Any,
        grant: Grant,
        query: VectorSearch | HybridSearch,
        embedded: EmbeddedTexts,
        *,
        exact: bool = False,
    ) -> tuple[tuple[Item, ...], QueryPlan]:
        hits, plan = await self._search.run(connection, grant.project, query, embedded, grant.clearance, exact=exact)
        rows = await connection.fetch(_SQL["records_by_ids"], query.store, [hit.id for hit in hits]) if hits else []
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
        """Return neighbours of the best chunks, in the order of these."""
        if not isinstance(query, HybridSearch) or query.store != "chunks" or not query.neighbours:
            return ()
        found = {(each.project, each.id) for each in items}
        wanted = dict.fromkeys(
            (each.project, chunk_id)
            for each in items[: query.neighbours_of]
            for chunk_id in neighbour_ids(each.id, query.neighbours)
            if (each.project, chunk_id) not in found
        )
        rows = await connection.fetch(_SQL["records_by_ids"], query.store, [chunk_id for _, chunk_id in wanted])
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

    async def _current_items(
        self, connection: Any, grant: Grant, query: VectorSearch | HybridSearch, episodic: EpisodicResults
    ) -> QueryResult:
        """Replace recalled items by their current records; drop those that changed since."""
        rows = await connection.fetch(_SQL["records_by_ids"], query.store, [hit.id for hit in episodic.hits])
        known = {(row["id"], row["version"]): row for row in rows if row["project"] == grant.project}
        found = [(known[hit.id, hit.version], hit) for hit in episodic.hits if (hit.id, hit.version) in known]
        items = [item(row, hit.score, {"cosine": hit.score}) for row, hit in found if visible(self._policy, grant, row)]
        return QueryResult(items=tuple(items), tier="episodic", plan=episodic.plan, took_us=0)

    def _listed(self, grant: Grant, query: List, rows: Sequence[Any]) -> QueryResult:
        found = self._result(grant, rows[: query.limit], QueryPlan.LIST)
        more = len(rows) > query.limit
        return found.model_copy(update={"next_cursor": rows[query.limit - 1]["seq"] if more else None})

    def _result(self, grant: Grant, rows: Sequence[Any], plan: QueryPlan, score: str | None = None) -> QueryResult:
        items = tuple(item(row, row[score] if score else None) for row in rows if visible(self._policy, grant, row))
        return QueryResult(items=items, tier="record", plan=plan, took_us=0)


def _ids(items: Sequence[Item]) -> Ids:
    return frozenset((each.project, each.id) for each in items)


def _matches(row: Any, query: VectorSearch | HybridSearch) -> bool:
    of_document = {"metadata"} if query.store == "chunks" else set()
    return all(row["body"].get(name) == wanted for name, wanted in query.where.items() if name not in of_document)
