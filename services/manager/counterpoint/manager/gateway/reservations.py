"""Reservations: a call is reserved before it is made and settled after it. No call is made without a reservation."""

import asyncio
import random
from collections import Counter as TallyCounter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

import structlog
from prometheus_client import Counter

from counterpoint.bus.turns import Urgency, urgency_of_task
from counterpoint.client import Memory, record, retry_on_conflict
from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import ApprovalPolicy
from counterpoint.manager.gateway.call_request import CallRequest
from counterpoint.manager.gateway.calls import CallOutcome, WebSearchCall, call_digest
from counterpoint.manager.gateway.ledger import UNKNOWN, CallState, CallUsage, ModelCallRecord
from counterpoint.manager.gateway.ledger_commits import (
    LedgerCommits,
    MemoryForOrigin,
    PendingReservation,
    PendingSettlement,
)
from counterpoint.manager.gateway.reservation_input import CallingTask, ReservationInput, calling_agent
from counterpoint.manager.gateway.web_permits import require_permit
from counterpoint.proto.errors import Conflict, Denied, ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.ids import derived_id, new_id
from counterpoint.proto.memory import Get, Item
from counterpoint.proto.messages import utc_now
from counterpoint.proto.tasks import ENDED

log = structlog.get_logger()

COST = Counter("counterpoint_llm_cost_usd_total", "Cost of model calls whose prices are known", ["project", "model"])
CALLS = Counter("counterpoint_llm_calls_total", "External calls by outcome", ["project", "model", "outcome"])

SETTLE_TIMEOUT_S = 30.0
"""Time reserved at the end of a token's life to settle its call; memory may be unavailable that long."""
_COMMIT_ATTEMPTS = 20
_CONFLICT_MAX_S = 1.0
_RELEASES_LIMIT = 20
"""Maximum number of released calls under one key."""


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A call as it was looked up: its id, its record if there is one, and what its reservation rests on, with the
    memory that read it; None for one of several calls at once."""

    call_id: str
    call: Item | None
    read: tuple[Memory, ReservationInput] | None


class Reservations:
    """Reserves and settles calls. `memory_for` gives memory for an origin; `job_tokens` are token limits by job,
    `approvals` says which tasks may search the web."""

    def __init__(self, memory_for: MemoryForOrigin, job_tokens: Mapping[str, int], approvals: ApprovalPolicy) -> None:
        self._commits = LedgerCommits(memory_for, job_tokens)
        self._approvals = approvals
        self._holder = new_id()
        self._under_way = TallyCounter[object]()

    def close(self) -> None:
        """Cancel all commits."""
        self._commits.close()

    async def check_token(self, token: str, grant: Grant) -> None:
        """Check a token in memory. Raises `Denied` or `Transient`."""
        await self._commits.memory(token, grant).query(Get(store="spend", id=grant.task or grant.message))

    async def look_up(self, request: CallRequest) -> FoundCall | None:
        """Return what the reservation of a new call rests on; None if there is a record of the call, which may have
        changed since. The query checks the token. Raises `Denied` or `Transient`."""
        with self._counted(request):
            found = await self._look_up(request, 0)
        return found if found.call is None else None

    async def urgency(self, request: CallRequest) -> Urgency:
        """Return the urgency of a call, that of its task as it was last read. Raises `Denied` or `Transient`."""
        task = self._commits.known_task(request) or await self._task(request)
        return urgency_of_task(task.priority, task.deadline, utc_now())

    async def reason_to_stop(self, request: CallRequest) -> str | None:
        """Return why a call is of no use any more; None while it is, or while memory cannot be asked."""
        try:
            return "its task has ended" if (await self._task(request)).state in ENDED else None
        except Denied as refusal:
            return str(refusal)
        except Transient:
            return None

    async def reserve(
        self, request: CallRequest, estimate: CallUsage, found: FoundCall | None = None
    ) -> CallOutcome | tuple[str, ModelCallRecord]:
        """Reserve the estimate of a call; return its id and record, or the stored outcome of the same call. `found` is
        what `look_up` has just returned for it.

        Raises `Denied` when the budget does not cover it, `SoftLimitReached`, `Permanent` for a call of unknown
        outcome, or `Transient`.
        """
        with self._counted(request):
            try:
                with suppress(Conflict):
                    return await self._reserve_once(request, estimate, found)
                return await retry_on_conflict(lambda: self._reserve_once(request, estimate, None), _COMMIT_ATTEMPTS)
            except Conflict as error:
                raise Transient("too many calls of the same task at once", retry_after_s=0.5) from error

    async def _reserve_once(
        self, request: CallRequest, estimate: CallUsage, first: FoundCall | None
    ) -> CallOutcome | tuple[str, ModelCallRecord]:
        """Reserve under the first id of the call that is not released; `first` is what was read for the first id.
        Raises `Conflict` after a concurrent change."""
        for number in range(_RELEASES_LIMIT):
            found = first or await self._look_up(request, number)
            first = None
            call_id = found.call_id
            if isinstance(request.call, WebSearchCall) and request.grant.task is not None and found.read:
                require_permit(self._approvals, request.grant.project, found.read[1].task, request.call)
            if found.call is None:
                pending = PendingReservation(
                    request, call_id, estimate, found.read, lambda used: self._reservation(request, estimate, used)
                )
                try:
                    return call_id, await self._commits.reserve(pending)
                except Denied as denied:
                    if denied.rule == ErrorCode.BUDGET:
                        CALLS.labels(request.grant.project, request.call.model, "refused").inc()
                    raise
            call = record(found.call, ModelCallRecord)
            if call.state != CallState.RELEASED or call.request_sha256 not in request.digests:
                return await self._stored_outcome(request, call_id, call)
        raise Transient("the provider failed too often for this key", retry_after_s=0.5)

    async def _look_up(self, request: CallRequest, number: int) -> FoundCall:
        call_id = derived_id(request.grant.message, "call", request.key, number)
        # Of calls at once, which share a commit, the group reads what all of them rest on.
        if self._under_way[request.authority] > 1 and not isinstance(request.call, WebSearchCall):
            return FoundCall(call_id, await self._commits.existing(request, call_id), None)
        read = await self._commits.read(request, call_id)
        return FoundCall(call_id, read[1].calls.get(call_id), read)

    @contextmanager
    def _counted(self, request: CallRequest) -> Iterator[None]:
        """Count a call that is looked up or reserved among those of its authority."""
        authority = request.authority
        self._under_way[authority] += 1
        try:
            yield
        finally:
            self._under_way[authority] -= 1
            if not self._under_way[authority]:
                del self._under_way[authority]

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
            limited_by=found.limit_ids,
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
                await self.settle(
                    request, call_id, CallState.UNKNOWN, before.estimate, error=reason, limited_by=before.limited_by
                )
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
        limited_by: tuple[str, ...] = (),
    ) -> None:
        """Record the outcome of a call; retried for `SETTLE_TIMEOUT_S` while memory is unavailable, or others write
        the same records.

        `limited_by` are the records of limits that it counts against, as far as known. A response that memory refuses
        is left out. Raises `Denied`, `Permanent` or `Transient`.
        """
        timeout_at = asyncio.get_running_loop().time() + SETTLE_TIMEOUT_S
        for attempt in count():
            try:
                pending = PendingSettlement(request, call_id, limited_by, state, usage, response, error)
                if await self._commits.settle(pending):
                    self._count(request, state, usage)
                return
            except (Conflict, Transient) as passing:
                if asyncio.get_running_loop().time() > timeout_at:
                    log.error("call.unsettled", call=call_id, project=request.grant.project, reason=str(passing))
                    raise Transient(f"call {call_id} could not be settled: {passing}") from passing
                await asyncio.sleep(settle_delay_s(passing, attempt, random.random()))
            except Permanent as refused:
                if response is None:
                    raise
                log.warning("call.not_kept", call=call_id, project=request.grant.project, code=refused.code)
                response = None
            except Denied as denied:
                log.error("call.unsettled", call=call_id, project=request.grant.project, reason=str(denied))
                raise

    def _count(self, request: CallRequest, state: CallState, usage: CallUsage) -> None:
        project, model = request.grant.project, request.call.model
        outcome = "unpriced" if state == CallState.SETTLED and usage.usd == UNKNOWN else state
        CALLS.labels(project, model, outcome).inc()
        COST.labels(project, model).inc(float(usage.known_usd))

    async def _task(self, request: CallRequest) -> CallingTask:
        """Return the task of a call; without a task or its record, one with the default values."""
        if request.grant.task is None:
            return CallingTask()
        item = await self._commits.memory(request.token, request.grant).get("tasks", request.grant.task)
        return record(item, CallingTask) if item else CallingTask()


def unknown_outcome(reason: str) -> Permanent:
    return Permanent(ErrorCode.UNKNOWN_OUTCOME, (Problem(field="call", problem=reason),))


def key_reused(key: str) -> Permanent:
    return Permanent(ErrorCode.KEY_REUSED, (Problem(field="key", problem=f"{key} identifies another call"),))


def settle_delay_s(error: Conflict | Transient, attempt: int, draw: float) -> float:
    """Return the delay before a call is settled again; `draw`, from 0 to 1, spreads those who write the same record."""
    if isinstance(error, Transient):
        return error.retry_after_s or 0.2
    return (0.5 + draw / 2) * min(_CONFLICT_MAX_S, 0.01 * 2.0 ** min(attempt, 16))
