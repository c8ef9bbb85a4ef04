"""Query requests: authorised, answered from the cache or by the executor, and added to the read set."""

import time
from collections.abc import Awaitable, Callable, Sequence

from counterpoint.guard.capabilities import Access
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.access.releases import Releases
from counterpoint.memory.operations.reembedding import Reembedding
from counterpoint.memory.query.answer_cache import AnswerCache, CachedAnswer, CacheLookup, answer_of
from counterpoint.memory.query.executor import QueryExecutor
from counterpoint.memory.query.query_scope import store_of
from counterpoint.memory.rpc.authority import Authority, key_of
from counterpoint.memory.rpc.health import HealthReporter
from counterpoint.memory.rpc.reply_limit import shortened
from counterpoint.memory.search.hybrid import require_word
from counterpoint.memory.search.vectors import texts
from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.memory import (
    Health,
    HybridSearch,
    MemoryQuery,
    OrganisationLimits,
    Origin,
    QueryPlan,
    QueryReply,
    QueryRequest,
    QueryResult,
    Reembed,
    VectorSearch,
)

REPLY_LIMIT_BYTES = 1000 * 1000
"""Payload limit of the bus less the size of an envelope, in bytes."""


class QueryHandler:
    """Executes query requests. `alive` raises `Away` when the record cannot be read or written."""

    def __init__(
        self,
        policy: Policy,
        authority: Authority,
        executor: QueryExecutor,
        cache: AnswerCache,
        releases: Releases,
        reembedding: Reembedding,
        health: HealthReporter,
        alive: Callable[[], Awaitable[None]],
    ) -> None:
        self._policy = policy
        self._authority = authority
        self._executor = executor
        self._cache = cache
        self._releases = releases
        self._reembedding = reembedding
        self._health = health
        self._alive = alive

    async def execute(self, caller: str, request: QueryRequest) -> bytes:
        """Return the reply as JSON. Raises `Denied`, `Permanent` or `Transient`."""
        origin = request.origin
        if request.names:
            grant, _ = await self._authority.authorise(caller, origin)
            if await self._authority.causes.has_ended(grant):
                raise Denied(ErrorCode.ENDED, "a task that has not ended")
            screen = await self._releases.of(origin.project)
            names = tuple([screen.name(name) for name in request.names])
            return QueryReply(names=names).model_dump_json(exclude_none=True).encode()
        if not request.queries:
            await self._alive()
            return _reply(())
        accesses = tuple(Access(store_of(query), "read") for query in request.queries)
        grant, _ = await self._authority.authorise(caller, origin, accesses)
        for access in accesses:
            rule = diode.read(self._policy, grant, access.store)
            if rule is not None:
                raise Denied(rule, f"the right to read {access.store}")
        if await self._authority.causes.has_ended(grant):
            cause, _ = await self._authority.causes.of(origin)
            if any(diode.read_after_end(self._policy, cause.type, access.store) for access in accesses):
                raise Denied(ErrorCode.ENDED, "a task that has not ended")
        self._authority.newest(grant, caller, origin)
        if origin.capability is None:
            # A caller can correct its text, while a task whose text has no word goes on without search results.
            _require_words(request.queries)
        if any(isinstance(query, Reembed | Health | OrganisationLimits) for query in request.queries):
            return await self._alone(origin, request.queries)
        started = time.perf_counter()
        # What a task asks is about texts and stores of its own, and hardly ever asked again.
        lookup = await self._cache.lookup(grant, request.queries) if origin.capability is None else CacheLookup()
        answers = lookup.answers
        took_us = int((time.perf_counter() - started) * 1e6)
        reply = _reply([answer.json(took_us, "hit") for answer in answers])
        if not answers or len(reply) > REPLY_LIMIT_BYTES:
            results = await self._executor.answer(grant, request.queries, await self._label(caller, origin))
            answers = self._cache.keep(lookup, request.queries, results)
            cache = "off" if lookup.epoch is None else "miss"
            reply = _fresh(answers, results, cache)
            if len(reply) > REPLY_LIMIT_BYTES:
                results = shortened(results, REPLY_LIMIT_BYTES)
                answers = tuple(answer_of(each) for each in results)
                reply = _fresh(answers, results, cache)
        read = [answer.to(query) for answer, query in zip(answers, request.queries, strict=True)]
        self._authority.reads.note(key_of(caller, origin), read)
        return reply

    async def _alone(self, origin: Origin, queries: Sequence[MemoryQuery]) -> bytes:
        """Report the embedding models of all projects, the health of the house, or the limits of the organisation."""
        if len(queries) > 1:
            raise Permanent(ErrorCode.INVALID, (Problem(field="queries", problem="must be the only query"),))
        started = time.perf_counter()
        if isinstance(queries[0], Health):
            tier, plan = "record", QueryPlan.HEALTH
            report = (await self._health.report()).model_dump(mode="json")
        elif isinstance(queries[0], OrganisationLimits):
            tier, plan = "record", QueryPlan.AGGREGATE
            everywhere = await self._authority.administers_all(origin)
            found = await self._executor.organisation_limits(origin.project, everywhere=everywhere)
            report = found.model_dump(mode="json", exclude_none=True)
        else:
            await self._authority.operates_all(origin)
            tier, plan, report = "vector", QueryPlan.REEMBED, await self._reembedding.status()
        took_us = int((time.perf_counter() - started) * 1e6)
        result = QueryResult(tier=tier, plan=plan, took_us=took_us, report=report)
        return QueryReply(found=(result,)).model_dump_json(exclude_none=True).encode()

    async def _label(self, caller: str, origin: Origin) -> int | None:
        """Return the label of everything a query text may contain; None if no remote model receives it."""
        if not self._executor.embeds_remotely:
            return None
        cause, _ = await self._authority.causes.of(origin)
        return cause.with_(self._authority.reads.provenance_of(origin.message_id)).label


def _require_words(queries: Sequence[MemoryQuery]) -> None:
    """Raise `Permanent` `empty_query` for a search of a text without words."""
    for query in queries:
        if isinstance(query, VectorSearch | HybridSearch):
            for text in texts(query):
                require_word(text)


def _reply(results: Sequence[bytes]) -> bytes:
    """Return a `QueryReply` of answers that are already JSON."""
    return b'{"found":[%b]}' % b",".join(results)


def _fresh(answers: Sequence[CachedAnswer], results: Sequence[QueryResult], cache: str) -> bytes:
    return _reply([answer.json(each.took_us, cache) for answer, each in zip(answers, results, strict=True)])
