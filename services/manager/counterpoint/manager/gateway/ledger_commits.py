"""Commits of the ledger: reservations and settlements of calls in the stores `spend` and `model_calls`.

The token of a call is the capability of its commits, so memory checks it: its signature, expiry and task, and the
label of what was read. Calls with the same authority, which wait for the same records, share a commit under the token
of one of them. Every token is checked before by a query of its own.
"""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from counterpoint.client import Memory, RecordVersion, put, record
from counterpoint.guard.capabilities import Grant
from counterpoint.manager.gateway.call_request import CallRequest
from counterpoint.manager.gateway.ledger import CallState, CallUsage, ModelCallRecord, SoftLimitReached, SpendRecord
from counterpoint.manager.gateway.reservation_input import (
    CallingTask,
    ReservationInput,
    calling_agent,
    read_reservation_input,
)
from counterpoint.manager.gateway.spending import Spending
from counterpoint.manager.gateway.work_groups import WorkGroups
from counterpoint.manager.gateway.written_records import RecordKey, WrittenRecords
from counterpoint.proto.errors import Conflict, Denied, ErrorCode, Transient
from counterpoint.proto.memory import Commit, Get, Item, Origin, Write
from counterpoint.proto.messages import utc_now
from counterpoint.proto.tasks import TaskDue

MemoryForOrigin = Callable[[Origin], Memory]

_ATTEMPTS = 20
_GROUP = 32
_GROUP_CHARS = 128 * 1024
"""Limits of a group: its calls, and the length of their responses."""
_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class PendingReservation:
    """A call to reserve at its estimate, as `call`. `read`: what was read for it, and by which memory; None where its
    group reads for all of its calls."""

    request: CallRequest
    call_id: str
    estimate: CallUsage
    read: tuple[Memory, ReservationInput] | None
    call: Callable[[ReservationInput], ModelCallRecord]


@dataclass(frozen=True, slots=True)
class PendingSettlement:
    """The outcome of a call to record; `limited_by` the spending under limits that it counts against, as far as known.
    `response` is None if it is not kept."""

    request: CallRequest
    call_id: str
    limited_by: tuple[str, ...]
    state: CallState
    usage: CallUsage
    response: Mapping[str, Any] | None
    error: str | None


class LedgerCommits:
    """Reserves and settles calls in groups. `memory_for` gives memory for an origin; `job_tokens` are token limits by
    job."""

    def __init__(self, memory_for: MemoryForOrigin, job_tokens: Mapping[str, int]) -> None:
        self._memory_for = memory_for
        self._job_tokens = job_tokens
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._reserving = WorkGroups[PendingReservation, ModelCallRecord](self._reserve, _GROUP)
        self._settling = WorkGroups[PendingSettlement, bool](
            self._settle, _GROUP, weight=lambda each: len(str(each.response)), max_weight=_GROUP_CHARS
        )
        self._written = WrittenRecords()
        self._last: dict[tuple[str, str], ReservationInput] = {}

    def close(self) -> None:
        """Cancel all commits."""
        self._reserving.close()
        self._settling.close()

    def known_task(self, request: CallRequest) -> CallingTask | None:
        """Return the task of a request as it was last read."""
        last = self._last.get((request.grant.project, request.scope))
        return last.task if last else None

    async def read(self, request: CallRequest, *call_ids: str) -> tuple[Memory, ReservationInput]:
        """Return what reservations of calls rest on, and memory with this read set. Raises `Denied` or `Transient`."""
        memory, key = self.memory(request.token, request.grant), (request.grant.project, request.scope)
        limit_ids = self._last[key].limit_ids if key in self._last else ()
        found = await read_reservation_input(memory, request.grant, request.scope, call_ids, limit_ids)
        _remember(self._last, key, found)
        return memory, found

    async def existing(self, request: CallRequest, call_id: str) -> Item | None:
        """Return the record of a call. The query also checks the token. Raises `Denied` or `Transient`."""
        return await self.memory(request.token, request.grant).get("model_calls", call_id)

    async def reserve(self, pending: PendingReservation) -> ModelCallRecord:
        """Return the record of a reserved call. Raises `Denied` or `SoftLimitReached` when a limit does not cover it,
        `Conflict` if the call is there already, or `Transient`."""
        return await self._reserving.process(pending.request.authority, pending)

    async def settle(self, pending: PendingSettlement) -> bool:
        """Record the outcome of a call; return whether it was not settled before. Raises `Conflict`, `Denied`,
        `Permanent` or `Transient`."""
        return await self._settling.process(pending.request.authority, pending)

    def memory(self, token: str, grant: Grant) -> Memory:
        """Return memory for the holder of a token, with its own read set, for one read and one commit."""
        return self._memory_for(
            Origin(
                message_id=grant.message,
                run=secrets.randbits(48),
                project=grant.project,
                task_id=grant.task,
                capability=token,
            )
        )

    async def _reserve(self, group: Sequence[PendingReservation]) -> Sequence[ModelCallRecord | Exception]:
        newest = group[-1]
        request, call_ids = newest.request, [each.call_id for each in group]
        async with self._lock(request.grant.project, request.scope):
            memory, found = newest.read or await self.read(request, *call_ids)
            for attempt in range(_ATTEMPTS):
                async with self._of_limits(request, limited=bool(found.limited)):
                    if attempt or self._is_stale(request, found):
                        memory, found = await self.read(request, *call_ids)
                    try:
                        return await self._commit_reservations(memory, group, found)
                    except Conflict:
                        continue
        return [Transient("too many calls of the same task at once", retry_after_s=0.5)] * len(group)

    async def _commit_reservations(
        self, memory: Memory, group: Sequence[PendingReservation], found: ReservationInput
    ) -> list[ModelCallRecord | Exception]:
        request = group[0].request
        spend = SpendRecord.initial(request.grant.task, found.task.budget)
        if found.spend is not None:
            spend = record(found.spend, SpendRecord)
        if request.grant.task is None:
            spend = spend.of_job(request.grant.budget, self._job_tokens.get(request.scope))
        tool_of = calling_agent(request.grant) if TaskDue.TYPE in request.grant.sends else None
        spending = Spending(request.scope, spend, found.spend, found.limited, tool_of, utc_now())
        outcomes, writes = list[ModelCallRecord | Exception](), dict[str, Write]()
        for each in group:
            if each.call_id in found.calls or each.call_id in writes:
                outcomes.append(Conflict("model_calls", each.call_id))
                continue
            try:
                spending.reserve(each.estimate, deferrable=each.request.deferrable)
            except (Denied, SoftLimitReached) as refused:
                outcomes.append(refused)
            else:
                call = each.call(found)
                writes[each.call_id] = put("model_calls", each.call_id, call)
                outcomes.append(call)
        if changed := spending.writes():
            step = _step("reserve", list(writes)) if writes else f"refuse {group[0].call_id} {_version(found.spend)}"
            writing = (*changed, *writes.values())
            reply = await memory.step(Commit(step=step, last=False, writes=writing, messages=spending.messages()))
            if reply.status == "stale":
                ended = Denied(ErrorCode.ENDED, "a task that is still at the work that the token was made for")
                return [ended if isinstance(each, ModelCallRecord) else each for each in outcomes]
            if reply.status != "done":
                raise Conflict("spend", request.scope)
            self._written.keep(request.grant.project, writing, reply)
        return outcomes

    async def _settle(self, group: Sequence[PendingSettlement]) -> Sequence[bool | Exception]:
        request = group[-1].request
        limit_ids = {each for settlement in group for each in settlement.limited_by}
        keys = [("spend", each) for each in {request.scope, *limit_ids}]
        keys += {("model_calls", each.call_id) for each in group}
        async with self._of_limits(request, limited=bool(limit_ids)):
            memory = self.memory(request.token, request.grant)
            written = self._written.all_of(request.grant.project, keys)
            if written is not None:
                with suppress(Conflict):
                    return await self._commit_settlements(memory, group, written)
            return await self._commit_settlements(memory, group, await _items(memory, *keys))

    async def _commit_settlements(
        self, memory: Memory, group: Sequence[PendingSettlement], items: Mapping[RecordKey, RecordVersion]
    ) -> list[bool]:
        """Settle the calls of a group that are reserved, by their records and their spending as far as it is known."""
        request = group[-1].request
        project = request.grant.project
        calls = [record(item, ModelCallRecord) for (store, _), item in items.items() if store == "model_calls"]
        more = {("spend", each) for call in calls for each in call.limited_by} - items.keys()
        items = {**items, **await _items(memory, *more)}
        spent = {each: record(item, SpendRecord) for (store, each), item in items.items() if store == "spend"}
        settled, counted = dict[str, Write](), set[str]()
        outcomes = list[bool]()
        for each in group:
            item = items.get(("model_calls", each.call_id))
            call = record(item, ModelCallRecord) if item and each.call_id not in settled else None
            if call is None or call.state != CallState.RESERVED:
                outcomes.append(False)
                continue
            ended = call.ended(each.state, each.usage, utc_now(), response=each.response, error=each.error)
            settled[each.call_id] = put("model_calls", each.call_id, ended, existing=item)
            outcomes.append(True)
            for spend_id in {request.scope, *call.limited_by} & spent.keys():
                spent[spend_id] = spent[spend_id].with_settled(call.estimate, each.state, each.usage)
                counted.add(spend_id)
        if settled:
            after = [put("spend", each, spent[each], existing=items["spend", each]) for each in sorted(counted)]
            bare = "" if all(each.response is not None for each in group) else " bare"
            step = _step("settle", list(settled)) + bare
            self._written.forget(project, items)
            reply = await memory.step(Commit(step=step, last=False, writes=(*settled.values(), *after)))
            self._written.keep(project, after, reply)
        return outcomes

    def _is_stale(self, request: CallRequest, found: ReservationInput) -> bool:
        """Whether this process has written spending after it was read."""
        items = {request.scope: found.spend, **{limit.spend_id: item for limit, _, item in found.limited}}
        project = request.grant.project
        return any(_version(item) < self._written.version(project, "spend", each) for each, item in items.items())

    @asynccontextmanager
    async def _of_limits(self, request: CallRequest, *, limited: bool) -> AsyncIterator[None]:
        """Hold the lock of the limits of a project, if there are any."""
        if not limited:
            yield
            return
        async with self._lock(request.grant.project):
            yield

    def _lock(self, project: str, scope: str = "") -> asyncio.Lock:
        """Return the lock of a budget, or of the limits of a project, in this process.

        The versions of the records detect other processes.
        """
        lock = self._locks.get((project, scope))
        if lock is None:
            lock = self._locks[project, scope] = asyncio.Lock()
        return lock


async def _items(memory: Memory, *keys: RecordKey) -> dict[RecordKey, Item]:
    """Return the records with these stores and ids that are there."""
    results = await memory.query(*(Get(store=store, id=each) for store, each in keys))
    return {key: result.items[0] for key, result in zip(keys, results, strict=True) if result.items}


def _step(name: str, call_ids: Sequence[str]) -> str:
    """Return the name of a step for some calls: others have another one."""
    if len(call_ids) == 1:
        return f"{name} {call_ids[0]}"
    return f"{name} {len(call_ids)} {hashlib.sha256(' '.join(call_ids).encode()).hexdigest()[:32]}"


def _version(item: Item | None) -> int:
    return item.version if item else 0


def _remember(table: dict[Any, Any], key: Any, value: Any) -> None:
    """Set a value in a table that is emptied when it is full."""
    if len(table) >= _REMEMBERED:
        table.clear()
    table[key] = value
