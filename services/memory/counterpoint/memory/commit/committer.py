"""The committer: one loop that applies waiting steps in one transaction and replies to their callers.

Group commit without a time window: while one transaction is under way the next steps gather. Projects take turns: at
most `BATCH` steps of one are applied together, then those of the next. If one step of a group cannot be applied, the
group is rolled back and applied in halves, so that only the steps at fault are refused. A step that is submitted again
while it waits is not queued again, and one that was applied recently is answered from RAM: callers that timed out do
not make the queue longer.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

import structlog
from cachetools import LRUCache

from counterpoint.memory.audit.packed_leaf import leaf_text
from counterpoint.memory.commit.leaf import stored_reply
from counterpoint.memory.commit.statement import DiskFull, Fault, LeaseLost, StepFault, apply_steps
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.disk import DiskSpace
from counterpoint.memory.record.plan import CommitPlan, PlannedMessage
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.memory.record.stamps import Provenance
from counterpoint.proto.errors import (
    Away,
    Conflict,
    CounterpointError,
    Denied,
    ErrorCode,
    Permanent,
    Problem,
    Transient,
)
from counterpoint.proto.memory import CommitReply

log = structlog.get_logger()

BATCH = 48
_REMEMBERED = 4_000
"""Number of applied steps that are answered from RAM."""

_STOPPING = "memory is stopping"
_SQL = load_statements(__package__)


@dataclass(frozen=True, slots=True)
class LoggedMessage:
    """A message of an applied step, as the log holds it."""

    row: PlannedMessage
    project: str
    sender: str
    cause: str
    seq: int
    task_version: int | None
    provenance: Provenance
    capability: str | None = None
    traceparent: str | None = None


_Key = tuple[str, str, str, str]


@dataclass(slots=True)
class _QueuedStep:
    step: CommitPlan
    done: asyncio.Future[CommitReply]


class TombstoneConflict(Conflict):
    """A record to insert has a tombstone; `found` is the version of its deletion."""


class ModelChanged(Transient):
    """The embedding model changed after the texts of a step were embedded."""


class Committer:
    """Applies planned steps, those of a project in their order of arrival.

    `on_begin` gets the steps of a transaction before it is sent to the database, `on_applied` the applied steps and
    their messages; `mint` makes the capability of each message while the database works.
    """

    def __init__(
        self,
        database: Database,
        epoch: Callable[[], int],
        mint: Callable[[PlannedMessage, str], str | None],
        on_applied: Callable[[Sequence[CommitPlan], Sequence[LoggedMessage]], None],
        *,
        on_begin: Callable[[Sequence[CommitPlan]], None],
        queue_limit: int,
        disk: DiskSpace | None = None,
    ) -> None:
        self.disk = disk or DiskSpace()
        self._database = database
        self._on_begin = on_begin
        self._epoch = epoch
        self._mint = mint
        self._on_applied = on_applied
        self._queue_limit = queue_limit
        self._queue: OrderedDict[str, deque[_QueuedStep]] = OrderedDict()
        self._queued = 0
        self._under_way: dict[_Key, _QueuedStep] = {}
        self._applied: LRUCache[_Key, CommitReply] = LRUCache(_REMEMBERED)
        self._wake = asyncio.Event()
        self._stopped = False

    @property
    def waiting(self) -> int:
        """Return the number of steps in the queue."""
        return self._queued

    async def apply(self, step: CommitPlan) -> CommitReply:
        """Apply one step. Raises `Transient` (`busy` if the queue is full), `Away` if the disk is full or the loop has
        ended, `Conflict`, or `Denied` with `fence`, `ended`, or `budget` for a limit of the organisation."""
        if self._stopped:
            raise Away(_STOPPING)
        self.disk.check()
        key = _key(step)
        if key is not None:
            if (applied := self._applied.get(key)) is not None:
                return applied.model_copy(update={"status": "replayed"})
            same = self._under_way.get(key)
            if same is not None and same.step.fence == step.fence:
                return await asyncio.shield(same.done)
        if self._queued >= self._queue_limit:
            raise Transient("busy", retry_after_s=0.5)
        waiting = _QueuedStep(step, asyncio.get_running_loop().create_future())
        self._queue.setdefault(step.project, deque()).append(waiting)
        self._queued += 1
        self._wake.set()
        if key is not None:
            self._under_way[key] = waiting
            waiting.done.add_done_callback(lambda _: self._over(key, waiting))
        return await waiting.done

    def _over(self, key: _Key, waiting: _QueuedStep) -> None:
        if self._under_way.get(key) is waiting:
            del self._under_way[key]
        if waiting.done.cancelled():
            return
        if waiting.done.exception() is None and waiting.done.result().status in ("done", "replayed"):
            self._applied[key] = waiting.done.result()

    def open(self) -> None:
        """Accept steps; `run` applies them."""
        self._stopped = False

    async def run(self) -> None:
        """Apply steps until cancelled. Raises `LeaseLost` when another process has become active. At its end every
        waiting caller gets a reply."""
        self.open()
        try:
            while True:
                await self._wake.wait()
                try:
                    async with self._database.connection() as connection:
                        await self._serve(connection)
                except Transient as away:
                    self._fail(self._next_batch(), away)
        finally:
            self._stopped = True
            while self._queued:
                self._fail(self._next_batch(), Away(_STOPPING))

    async def _serve(self, connection: Any) -> None:
        """Apply steps over one connection, until it breaks."""
        while not connection.is_closed():
            batch = self._next_batch()
            try:
                await self._apply(connection, batch)
            except LeaseLost:
                self._fail(batch, Transient("another memory process is active"))
                raise
            except Transient as away:
                self._fail(batch, away)
                return
            finally:
                self._fail(batch, Away(_STOPPING))
            await self._wake.wait()

    def _next_batch(self) -> list[_QueuedStep]:
        """Return waiting steps of one project, in order, up to the first with the task of an earlier one. The project
        is then last in the order of projects."""
        batch: list[_QueuedStep] = []
        tasks: set[str] = set()
        if self._queue:
            project, queue = self._queue.popitem(last=False)
            while queue and len(batch) < BATCH:
                about = _tasks(queue[0].step)
                if not tasks.isdisjoint(about):
                    break
                tasks |= about
                batch.append(queue.popleft())
            if queue:
                self._queue[project] = queue
        self._queued -= len(batch)
        if not self._queued:
            self._wake.clear()
        return batch

    async def _apply(self, connection: Any, group: Sequence[_QueuedStep]) -> None:
        """Apply steps of one project by one statement, which is a transaction of its own."""
        if not group:
            return
        project = group[0].step.project
        self._on_begin([w.step for w in group])
        call = asyncio.create_task(self._call(connection, project, [w.step for w in group]))
        try:
            await asyncio.sleep(0)
            tokens = {row.id: self._mint(row, project) for w in group for row in w.step.messages}
            rows = await call
        except StepFault as fault:
            if len(group) == 1:
                await self._resolve(group[0], fault)
            else:
                half = len(group) // 2
                await self._apply(connection, group[:half])
                await self._apply(connection, group[half:])
            return
        finally:
            call.cancel()
        self._answer(group, rows, tokens)

    async def _call(self, connection: Any, project: str, steps: Sequence[CommitPlan]) -> list[Any]:
        try:
            return await apply_steps(connection, self._epoch(), project, steps)
        except DiskFull:
            self.disk.database_full()
            raise

    async def _resolve(self, waiting: _QueuedStep, found: StepFault) -> None:
        """Reply to the one step at fault."""
        step = waiting.step
        if found.fault in (Fault.STEP_KNOWN, Fault.DUPLICATE):
            async with self._database.reading(step.project) as connection:
                key = (step.consumer, step.message_id, step.step, step.commit_id)
                stored = await connection.fetchrow(_SQL["reply_to_step"], *key)
            if stored is not None:
                reply = stored_reply(stored["reply"], leaf_text(stored["leaf"], stored["packed"]))
                _settle(waiting, reply.model_copy(update={"status": "replayed"}))
                return
        if found.fault is Fault.STALE:
            _settle(waiting, CommitReply(status="stale"))
        else:
            self._fail([waiting], _error(found))

    def _answer(self, group: Sequence[_QueuedStep], rows: Sequence[Any], tokens: Mapping[str, str | None]) -> None:
        known = {str(row["message_id"]): (row["message_seq"], row["message_version"]) for row in rows}
        sent = [
            LoggedMessage(
                message,
                w.step.project,
                w.step.consumer,
                w.step.message_id,
                *known[message.id],
                replace(w.step.provenance, result=message.result, type=message.type),
                tokens[message.id],
                w.step.traceparent,
            )
            for w in group
            for message in w.step.messages
        ]
        self._on_applied([w.step for w in group], sent)
        for waiting in group:
            _settle(waiting, waiting.step.reply)

    @staticmethod
    def _fail(batch: Sequence[_QueuedStep], error: CounterpointError) -> None:
        for waiting in batch:
            if not waiting.done.done():
                waiting.done.set_exception(error)


def _error(found: StepFault) -> CounterpointError:
    """Map a fault to the error that its caller gets."""
    store, _, record_id = found.text.partition("/")
    match found.fault:
        case Fault.STEP_KNOWN | Fault.DUPLICATE:
            return Transient(f"the database rejected the commit: {found.text}")
        case Fault.FENCED:
            return Denied(ErrorCode.FENCE, "the newest delivery of the message")
        case Fault.EARLY:
            return Transient("the task has not come this far", retry_after_s=0.2)
        case Fault.TASK_ENDED:
            return Denied(ErrorCode.ENDED, "a task that has not ended")
        case Fault.OLDER_WRITER:
            return Permanent(ErrorCode.OLD_WRITER, (Problem(field=found.text, problem=found.detail),))
        case Fault.OTHER_MODEL:
            return ModelChanged(found.text, retry_after_s=0.1)
        case Fault.OVER_LIMIT:
            return Denied(ErrorCode.BUDGET, found.text)
        case Fault.TOMBSTONE:
            return TombstoneConflict(store, record_id, 0, int(found.detail))
        case Fault.CONFLICT:
            return Conflict(store, record_id)
        case Fault.NOT_NOW | Fault.LEASE_LOST:
            log.error("commit.failed", reason=found.text)
            return Transient("the database could not apply the commit now")
        case Fault.INVALID_DATA | Fault.STALE:
            log.error("commit.refused", reason=found.text)
            return Permanent(ErrorCode.REFUSED, (Problem(field="commit", problem="the database rejected the commit"),))
        case _:
            assert_never(found.fault)


def _key(step: CommitPlan) -> _Key | None:
    """Return the key of a step, None for a refusal."""
    return (step.project, step.consumer, step.message_id, step.step) if step.step else None


def _tasks(step: CommitPlan) -> set[str]:
    """Return the tasks whose version a step checks, writes or stamps."""
    named = {step.task_id, *(row.task_id for row in step.messages if row.versioned)}
    return {task for task in named if task} | {row.id for row in step.writes if row.store == "tasks"}


def _settle(waiting: _QueuedStep, reply: CommitReply) -> None:
    if not waiting.done.done():
        waiting.done.set_result(reply)
