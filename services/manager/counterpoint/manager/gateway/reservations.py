"""Reservations: the commits before and after each call outside, in the stores `spend` and `model_calls`.

The token of a call is the capability of both commits, so memory checks it: its signature, expiry and task, and the
label of what was read. No call is made without a reservation.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from weakref import WeakValueDictionary

import structlog
from prometheus_client import Counter

from counterpoint.bus.turns import Urgency, urgency_of_task
from counterpoint.client import Memory, put, record, retry_on_conflict
from counterpoint.guard.capabilities import Grant
from counterpoint.manager.gateway.calls import CallOutcome, DeltaSink, ProviderCall, call_digest
from counterpoint.manager.gateway.ledger import (
    UNKNOWN,
    CallState,
    CallUsage,
    ModelCallRecord,
    SoftLimitReached,
    SpendRecord,
)
from counterpoint.manager.gateway.limited_spending import read_limited_spending
from counterpoint.manager.gateway.reservation_input import (
    CallingTask,
    ReservationInput,
    calling_agent,
    read_reservation_input,
)
from counterpoint.proto.approvals import RefusedCall
from counterpoint.proto.errors import Conflict, Denied, ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.ids import derived_id, new_id
from counterpoint.proto.memory import Commit, Get, Item, Origin, Write
from counterpoint.proto.messages import utc_now
from counterpoint.proto.tasks import ENDED

log = structlog.get_logger()

COST = Counter("counterpoint_llm_cost_usd_total", "Cost of model calls whose prices are known", ["project", "model"])
CALLS = Counter("counterpoint_llm_calls_total", "External calls by outcome", ["project", "model", "outcome"])

SETTLE_TIMEOUT_S = 30.0
"""Time reserved at the end of a token's life to settle its call; memory may be unavailable that long."""
_COMMIT_ATTEMPTS = 20
_RELEASES_LIMIT = 20
"""Maximum number of released calls under one key."""

MemoryForOrigin = Callable[[Origin], Memory]


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call with the gateway token that authorises it; `deadline` by the clock of the loop.

    `others` are calls under the same key that may be made instead of it: by another model; `deferrable` if one of them
    is cheaper. `deltas` receives a completion in parts.
    """

    token: str
    grant: Grant
    key: str
    call: ProviderCall
    deadline: float
    others: tuple[ProviderCall, ...] = ()
    deltas: DeltaSink | None = None
    deferrable: bool = False

    @property
    def digests(self) -> frozenset[str]:
        """Digests of the calls under the key, of which one is made."""
        return frozenset(map(call_digest, (self.call, *self.others)))

    @property
    def scope(self) -> str:
        """Id of the task or job whose budget pays for the call."""
        return self.grant.task or self.grant.message

    @property
    def identity(self) -> tuple[str, str, str]:
        """Project, message and key: they identify one call."""
        return self.grant.project, self.grant.message, self.key


class Reservations:
    """Reserves and settles calls. `memory_for` gives memory for an origin; `job_tokens` are token limits by job."""

    def __init__(self, memory_for: MemoryForOrigin, job_tokens: Mapping[str, int]) -> None:
        self._memory_for = memory_for
        self._job_tokens = job_tokens
        self._holder = new_id()
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def check_token(self, request: CallRequest) -> None:
        """Check the token of a request in memory. Raises `Denied` or `Transient`."""
        await self._memory(request).query(Get(store="spend", id=request.scope))

    async def urgency(self, request: CallRequest) -> Urgency:
        """Return the urgency of a call, that of its task. Raises `Denied` or `Transient`."""
        task = await self._task(request)
        return urgency_of_task(task.priority, task.deadline, utc_now())

    async def reason_to_stop(self, request: CallRequest) -> str | None:
        """Return why a call is of no use any more; None while it is, or while memory cannot be asked."""
        try:
            return "its task has ended" if (await self._task(request)).state in ENDED else None
        except Denied as refusal:
            return str(refusal)
        except Transient:
            return None

    async def reserve(self, request: CallRequest, estimate: CallUsage) -> CallOutcome | tuple[str, ModelCallRecord]:
        """Reserve the estimate of a call; return its id and record, or the stored outcome of the same call.

        Raises `Denied` when the budget does not cover it, `Permanent` for a call of unknown outcome, or `Transient`.
        """
        async with self._lock(request.grant.project, request.scope):
            try:
                return await retry_on_conflict(lambda: self._reserve_once(request, estimate), _COMMIT_ATTEMPTS)
            except Conflict as error:
                raise Transient("too many calls of the same task at once", retry_after_s=0.5) from error

    async def _reserve_once(
        self, request: CallRequest, estimate: CallUsage
    ) -> CallOutcome | tuple[str, ModelCallRecord]:
        """Reserve under the first id of the call that is not released. Raises `Conflict` after a concurrent change."""
        for number in range(_RELEASES_LIMIT):
            call_id = derived_id(request.grant.message, "call", request.key, number)
            memory = self._memory(request)
            found = await read_reservation_input(memory, request.grant, request.scope, call_id)
            if found.call is None:
                if not found.limits:
                    return await self._commit_reservation(memory, request, call_id, estimate, found)
                async with self._lock(request.grant.project):
                    return await self._commit_reservation(memory, request, call_id, estimate, found)
            call = record(found.call, ModelCallRecord)
            if call.state != CallState.RELEASED or call.request_sha256 not in request.digests:
                return await self._stored_outcome(request, call_id, call)
        raise Transient("the provider failed too often for this key", retry_after_s=0.5)

    async def _commit_reservation(
        self, memory: Memory, request: CallRequest, call_id: str, estimate: CallUsage, found: ReservationInput
    ) -> tuple[str, ModelCallRecord]:
        budget = found.task.budget
        spend = record(found.spend, SpendRecord) if found.spend else SpendRecord.initial(request.grant.task, budget)
        if request.grant.task is None:
            spend = spend.model_copy(update={"limit_tokens": self._job_tokens.get(request.scope)})
        limited = await read_limited_spending(memory, found.limits)
        over = [spent for _, spent, _ in limited if spent.exceeds_soft(estimate)]
        if over and request.deferrable:
            raise SoftLimitReached(over[0].warning)
        try:
            reserved, writes = spend.with_reserved(estimate), list[Write]()
            for limit, spent, item in limited:
                after = spent.with_reserved(estimate)
                if spent in over and not spent.warned and request.grant.task is not None:
                    after = after.model_copy(update={"warned": True})
                    reserved = reserved.model_copy(update={"warnings": (*reserved.warnings, after.warning)})
                writes.append(put("spend", limit.spend_id, after, existing=item))
            writes.append(put("spend", request.scope, reserved, existing=found.spend))
        except Denied:
            CALLS.labels(request.grant.project, request.call.model, "refused").inc()
            await self._note_refusal(memory, request, call_id, estimate, spend, found.spend)
            raise
        call = self._reservation(request, estimate, found)
        writes.append(put("model_calls", call_id, call))
        reply = await memory.step(Commit(step=f"reserve {call_id}", last=False, writes=tuple(writes)))
        match reply.status:
            case "done":
                return call_id, call
            case "stale":
                raise Denied(ErrorCode.ENDED, "a task that is still at the work that the token was made for")
            case _:
                raise Conflict("model_calls", call_id)

    async def _note_refusal(
        self,
        memory: Memory,
        request: CallRequest,
        call_id: str,
        estimate: CallUsage,
        spend: SpendRecord,
        item: Item | None,
    ) -> None:
        """Record the first call that a limit refused the task: a person may lift the limit. Raises `Conflict`."""
        if request.grant.task is None or spend.refused is not None:
            return
        usd = None if estimate.usd == UNKNOWN else estimate.usd
        refused = RefusedCall(usd=usd, tokens=estimate.tokens)
        write = put("spend", request.scope, spend.model_copy(update={"refused": refused}), existing=item)
        step = f"refuse {call_id} {item.version if item else 0}"
        await memory.step(Commit(step=step, last=False, writes=(write,)))

    def _reservation(self, request: CallRequest, estimate: CallUsage, found: ReservationInput) -> ModelCallRecord:
        now = utc_now()
        left_s = max(request.deadline - asyncio.get_running_loop().time(), 0.0)
        return ModelCallRecord(
            task_id=request.grant.task,
            session_id=found.task.session_id,
            agent=calling_agent(request.grant),
            key=request.key,
            kind=request.call.kind,
            model=request.call.model,
            request_sha256=call_digest(request.call),
            state=CallState.RESERVED,
            holder=self._holder,
            limited_by=tuple(limit.spend_id for limit in found.limits),
            reserved_at=now,
            deadline=now + timedelta(seconds=left_s + SETTLE_TIMEOUT_S),
            estimate_usd=estimate.usd,
            estimate_input_tokens=estimate.input_tokens,
            estimate_output_tokens=estimate.output_tokens,
        )

    async def _stored_outcome(self, request: CallRequest, call_id: str, before: ModelCallRecord) -> CallOutcome:
        """Return the stored outcome of a call. Raises `Permanent` or `Transient` where there is none."""
        if before.request_sha256 not in request.digests:
            raise key_reused(request.key)
        match before.state:
            case CallState.SETTLED if before.response is not None:
                return CallOutcome(before.response, before.model, before.usage, replayed=True)
            case CallState.SETTLED:
                problem = Problem(field="key", problem="the call was made, but its response is no longer stored")
                raise Permanent(ErrorCode.NOT_KEPT, (problem,))
            case CallState.RESERVED if before.holder != self._holder and utc_now() < before.deadline:
                raise Transient("another process is making this call", retry_after_s=1.0)
            case CallState.RESERVED:
                reason = "the process that made the call ended before it was settled"
                await self.settle(request, call_id, CallState.UNKNOWN, before.estimate, error=reason)
                raise unknown_outcome(reason)
            case _:
                raise unknown_outcome(before.error or "the outcome is unknown")

    async def settle(
        self,
        request: CallRequest,
        call_id: str,
        state: CallState,
        usage: CallUsage,
        *,
        response: Mapping[str, Any] | None = None,
        error: str | None = None,
    ) -> None:
        """Record the outcome of a call; retried while memory is unavailable, for `SETTLE_TIMEOUT_S`.

        A response that memory refuses is left out. Raises `Denied`, `Permanent` or `Transient`.
        """
        timeout_at = asyncio.get_running_loop().time() + SETTLE_TIMEOUT_S
        while True:
            try:
                if await self._settle_once(request, call_id, state, usage, response, error):
                    self._count(request, state, usage)
                return
            except Conflict:
                pass
            except Transient as unavailable:
                if asyncio.get_running_loop().time() > timeout_at:
                    log.error("call.unsettled", call=call_id, project=request.grant.project, reason=str(unavailable))
                    raise
                await asyncio.sleep(unavailable.retry_after_s or 0.2)
            except Permanent as refused:
                if response is None:
                    raise
                log.warning("call.not_kept", call=call_id, project=request.grant.project, code=refused.code)
                response = None
            except Denied as denied:
                log.error("call.unsettled", call=call_id, project=request.grant.project, reason=str(denied))
                raise

    async def _settle_once(
        self,
        request: CallRequest,
        call_id: str,
        state: CallState,
        usage: CallUsage,
        response: Mapping[str, Any] | None,
        error: str | None,
    ) -> bool:
        memory = self._memory(request)
        call = await memory.get("model_calls", call_id)
        if call is None or (before := record(call, ModelCallRecord)).state != CallState.RESERVED:
            return False
        ended = before.ended(state, usage, utc_now(), response=response, error=error)
        writes: tuple[Write, ...] = (put("model_calls", call_id, ended, existing=call),)
        suffix = "" if response is not None else " bare"
        async with self._lock(request.grant.project) if before.limited_by else nullcontext():
            ids = (request.scope, *before.limited_by)
            for found in await memory.query(*(Get(store="spend", id=each) for each in ids)):
                for spend in found.items:
                    after = record(spend, SpendRecord).with_settled(before.estimate, state, usage)
                    writes += (put("spend", spend.id, after, existing=spend),)
            await memory.step(Commit(step=f"settle {call_id}{suffix}", last=False, writes=writes))
        return True

    def _count(self, request: CallRequest, state: CallState, usage: CallUsage) -> None:
        project, model = request.grant.project, request.call.model
        outcome = "unpriced" if state == CallState.SETTLED and usage.usd == UNKNOWN else state
        CALLS.labels(project, model, outcome).inc()
        COST.labels(project, model).inc(float(usage.known_usd))

    async def _task(self, request: CallRequest) -> CallingTask:
        """Return the task of a call; without a task or its record, one with the default values."""
        if request.grant.task is None:
            return CallingTask()
        item = await self._memory(request).get("tasks", request.grant.task)
        return record(item, CallingTask) if item else CallingTask()

    def _memory(self, request: CallRequest) -> Memory:
        """Return memory with its own read set, for one read and one commit."""
        grant = request.grant
        return self._memory_for(
            Origin(
                message_id=grant.message,
                run=secrets.randbits(48),
                project=grant.project,
                task_id=grant.task,
                capability=request.token,
            )
        )

    def _lock(self, project: str, scope: str = "") -> asyncio.Lock:
        """Return the lock of a budget, or of the limits of a project, in this process.

        The versions of the records detect other processes.
        """
        lock = self._locks.get((project, scope))
        if lock is None:
            lock = self._locks[project, scope] = asyncio.Lock()
        return lock


def unknown_outcome(reason: str) -> Permanent:
    return Permanent(ErrorCode.UNKNOWN_OUTCOME, (Problem(field="call", problem=reason),))


def key_reused(key: str) -> Permanent:
    return Permanent(ErrorCode.KEY_REUSED, (Problem(field="key", problem=f"{key} identifies another call"),))
