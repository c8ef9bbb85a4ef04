"""The committer: one loop that applies whatever waits in one transaction, and tells those who asked.

Group commit without a time window: while one transaction is under way the next steps gather. Projects take turns: those
of one are applied together, at most `BATCH` of them, then those of the next. When anything in a group stands in the
way, it is rolled back and applied in halves, so that those at fault end up alone. A step that is asked for again while
it waits is not queued again, and one that was applied lately is answered from RAM: callers that ran out of patience
must not make the queue longer.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import asyncpg
import structlog

from counterpoint.memory.database import AWAY, Database
from counterpoint.memory.provenance import Provenance
from counterpoint.memory.room import Room
from counterpoint.memory.rows import MessageRow, Prepared
from counterpoint.proto.errors import (
    Away,
    Conflict,
    CounterpointError,
    Denied,
    Permanent,
    Problem,
    Transient,
)
from counterpoint.proto.memory import CommitReply

log = structlog.get_logger()

BATCH = 48
_GIVEN_UP_S = 30.0
_A_WRITE_S = 0.001
"""Several times what one takes: an erasure or a take-back may have hundreds of thousands."""
_REMEMBERED = 10_000
"""How many steps applied lately are answered without asking the database."""

_STOPPING = "memory is stopping"
_COMMIT = "SELECT * FROM commit_steps(" + ", ".join(f"${n}" for n in range(1, 62)) + ")"
_STORED = "SELECT reply FROM inbox WHERE consumer = $1 AND message_id = $2 AND step = $3"


@dataclass(frozen=True, slots=True)
class Sent:
    """A message of an applied step, as the log holds it."""

    row: MessageRow
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
class _Waiting:
    step: Prepared
    done: asyncio.Future[CommitReply]


def patience_s(steps: Iterable[Prepared]) -> float:
    """So long the statement that applies these steps may take before it is given up."""
    return _GIVEN_UP_S + _A_WRITE_S * sum(len(step.writes) for step in steps)


class Deleted(Conflict):
    """What was to be made was there before and was deleted; `found` is the version of its deletion."""


class Remodelled(Transient):
    """The model was changed after the texts of a step were embedded."""


class LeaseLost(CounterpointError):
    """Another process is active now."""


class Committer:
    """Applies prepared steps, those of a project in the order they come.

    `began` is told those of a transaction before it is sent to the database, `applied` those that were applied and what
    they send; `mint` is asked for the capability of each message while the database works.
    """

    def __init__(
        self,
        database: Database,
        epoch: Callable[[], int],
        mint: Callable[[MessageRow, str], str | None],
        applied: Callable[[Sequence[Prepared], Sequence[Sent]], None],
        *,
        began: Callable[[Sequence[Prepared]], None],
        queue_limit: int,
        room: Room | None = None,
    ) -> None:
        self.room = room or Room()
        self._database = database
        self._began = began
        self._epoch = epoch
        self._mint = mint
        self._tell = applied
        self._queue_limit = queue_limit
        self._queue: OrderedDict[str, deque[_Waiting]] = OrderedDict()
        self._queued = 0
        self._under_way: dict[_Key, _Waiting] = {}
        self._applied: OrderedDict[_Key, CommitReply] = OrderedDict()
        self._wake = asyncio.Event()
        self._stopped = False

    @property
    def waiting(self) -> int:
        """Steps in the queue."""
        return self._queued

    async def apply(self, step: Prepared) -> CommitReply:
        """Apply one step.

        Raises `Transient` (`busy` when the queue is full), `Away` when the disk is or nothing is applied any more,
        `Conflict`, or `Denied` with `fence` or `ended`.
        """
        if self._stopped:
            raise Away(_STOPPING)
        self.room.check()
        key = _key(step)
        if key is not None:
            if (applied := self._applied.get(key)) is not None:
                return applied.model_copy(update={"status": "replayed"})
            same = self._under_way.get(key)
            if same is not None and same.step.fence == step.fence:
                return await asyncio.shield(same.done)
        if self._queued >= self._queue_limit:
            raise Transient("busy", retry_after_s=0.5)
        waiting = _Waiting(step, asyncio.get_running_loop().create_future())
        self._queue.setdefault(step.project, deque()).append(waiting)
        self._queued += 1
        self._wake.set()
        if key is not None:
            self._under_way[key] = waiting
            waiting.done.add_done_callback(lambda _: self._over(key, waiting))
        return await waiting.done

    def _over(self, key: _Key, waiting: _Waiting) -> None:
        if self._under_way.get(key) is waiting:
            del self._under_way[key]
        if waiting.done.cancelled():
            return
        if waiting.done.exception() is None and waiting.done.result().status in ("done", "replayed"):
            self._applied[key] = waiting.done.result()
            while len(self._applied) > _REMEMBERED:
                self._applied.popitem(last=False)

    async def run(self) -> None:
        """Apply what comes, for ever. Raises `LeaseLost` when another process has become active.

        When it ends, nobody is left waiting.
        """
        self._stopped = False
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
        """Apply what comes over one connection, until it breaks."""
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

    def _next_batch(self) -> list[_Waiting]:
        """Steps that wait for one project, in order, up to the first that is about a task of another step before it.

        The project comes last after that.
        """
        batch: list[_Waiting] = []
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

    async def _apply(self, connection: Any, group: Sequence[_Waiting]) -> None:
        """Steps of one project by one statement, which is a transaction of its own."""
        if not group:
            return
        project = group[0].step.project
        self._began([w.step for w in group])
        call = asyncio.create_task(self._call(connection, project, [w.step for w in group]))
        try:
            await asyncio.sleep(0)
            tokens = {row.id: self._mint(row, project) for w in group for row in w.step.messages}
            rows = await call
        except _InTheWay as fault:
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

    async def _call(self, connection: Any, project: str, steps: Sequence[Prepared]) -> list[Any]:
        try:
            arguments = (self._epoch(), project, *_arrays(steps))
            rows = list(await connection.fetch(_COMMIT, *arguments, timeout=patience_s(steps)))
        except asyncpg.DataError as error:
            raise _InTheWay("CP010", str(error)) from error
        except asyncpg.DiskFullError as error:
            self.room.refused()
            raise Away("the disk of the database is full") from error
        except AWAY as error:
            raise Away(f"the database is away: {type(error).__name__}") from error
        except (asyncpg.UniqueViolationError, asyncpg.SerializationError, asyncpg.DeadlockDetectedError) as error:
            raise _InTheWay(
                "CP008" if isinstance(error, asyncpg.UniqueViolationError) else "CP009", str(error)
            ) from error
        except asyncpg.PostgresError as error:
            if error.sqlstate == "CP001":
                raise LeaseLost(str(error)) from error
            unfit = error.sqlstate.startswith(("22", "23", "54"))
            raise _InTheWay("CP010" if unfit else "CP009", f"{error.sqlstate}: {error}") from error
        if rows and (code := rows[0]["error_code"]) is not None:
            raise _InTheWay(code, rows[0]["error_text"], rows[0]["error_detail"])
        return rows

    async def _resolve(self, waiting: _Waiting, fault: "_InTheWay") -> None:
        step = waiting.step
        match fault.code:
            case "CP002" | "CP008":
                async with self._database.reading(step.project) as connection:
                    stored = await connection.fetchval(_STORED, step.consumer, step.message_id, step.step)
                if stored is None:
                    self._fail([waiting], Transient(f"the database refused: {fault.text}"))
                else:
                    reply = CommitReply.model_validate(stored)
                    _settle(waiting, reply.model_copy(update={"status": "replayed"}))
            case "CP003":
                self._fail([waiting], Denied("fence", "the newest delivery of the message"))
            case "CP004":
                _settle(waiting, CommitReply(status="stale"))
            case "CP005":
                self._fail([waiting], Transient("the task has not come this far", retry_after_s=0.2))
            case "CP006":
                self._fail([waiting], Denied("ended", "a task that has not ended"))
            case "CP011":
                self._fail([waiting], Permanent("old_writer", (Problem(field=fault.text, problem=fault.detail),)))
            case "CP013":
                self._fail([waiting], Remodelled(fault.text, retry_after_s=0.1))
            case "CP012":
                store, _, record_id = fault.text.partition("/")
                self._fail([waiting], Deleted(store, record_id, 0, int(fault.detail)))
            case "CP007":
                store, _, record_id = fault.text.partition("/")
                self._fail([waiting], Conflict(store, record_id, -1, -1))
            case "CP009":
                log.error("commit.failed", reason=fault.text)
                self._fail([waiting], Transient("the database could not apply it now"))
            case _:
                log.error("commit.refused", reason=fault.text)
                self._fail(
                    [waiting], Permanent("refused", (Problem(field="commit", problem="the database refused it"),))
                )

    def _answer(self, group: Sequence[_Waiting], rows: Sequence[Any], tokens: Mapping[str, str | None]) -> None:
        known = {str(row["message_id"]): (row["message_seq"], row["message_version"]) for row in rows}
        sent = [
            Sent(
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
        self._tell([w.step for w in group], sent)
        for waiting in group:
            _settle(waiting, waiting.step.reply)

    @staticmethod
    def _fail(batch: Sequence[_Waiting], error: CounterpointError) -> None:
        for waiting in batch:
            if not waiting.done.done():
                waiting.done.set_exception(error)


class _InTheWay(Exception):
    def __init__(self, code: str, text: str, detail: str = "") -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text
        self.detail = detail


def _key(step: Prepared) -> _Key | None:
    """What a step is known by; a refusal has none."""
    return (step.project, step.consumer, step.message_id, step.step) if step.step else None


def _tasks(step: Prepared) -> set[str]:
    """The tasks whose version a step checks, writes or stamps."""
    named = {step.task_id, *(row.task_id for row in step.messages if row.versioned)}
    return {task for task in named if task} | {row.id for row in step.writes if row.store == "tasks"}


def _settle(waiting: _Waiting, reply: CommitReply) -> None:
    if not waiting.done.done():
        waiting.done.set_result(reply)


def _arrays(steps: Sequence[Prepared]) -> tuple[list[Any], ...]:
    """The columns of `commit_steps`, in its order. A row's step is its 1-based place in `steps`."""
    writes = [(n, row) for n, step in enumerate(steps, 1) for row in step.writes]
    messages = [(n, row) for n, step in enumerate(steps, 1) for row in step.messages]
    vectors = [row for step in steps for row in step.vectors]
    meanings = [(n, model, embedding) for n, v in enumerate(vectors, 1) for model, embedding in v.embeddings.items()]
    return (
        [s.commit_id for s in steps],
        [s.consumer for s in steps],
        [s.message_id for s in steps],
        [s.step for s in steps],
        [s.last for s in steps],
        [s.fence for s in steps],
        [s.task_id for s in steps],
        [s.task_version for s in steps],
        [s.ended_ok for s in steps],
        [s.reads for s in steps],
        [s.cause for s in steps],
        [s.audit for s in steps],
        [s.kind for s in steps],
        [s.salt for s in steps],
        [s.reply.status for s in steps],
        [s.reply.model_dump_json() for s in steps],
        [s.traceparent for s in steps],
        [timer for s in steps for timer in s.cancel_timers],
        [s.consumer for s in steps for _ in s.cancel_timers],
        [s.bound_to for s in steps for _ in s.cancel_timers],
        [n for n, _ in writes],
        [w.store for _, w in writes],
        [w.id for _, w in writes],
        [w.expect for _, w in writes],
        [w.body for _, w in writes],
        [w.task_id for _, w in writes],
        [w.author for _, w in writes],
        [w.label for _, w in writes],
        [w.integrity for _, w in writes],
        [w.sha256 for _, w in writes],
        [w.schema_version for _, w in writes],
        [n for n, _ in messages],
        [m.id for _, m in messages],
        [m.type for _, m in messages],
        [m.subject for _, m in messages],
        [m.task_id for _, m in messages],
        [m.versioned for _, m in messages],
        [" ".join(m.audience) for _, m in messages],
        [m.body for _, m in messages],
        [m.label for _, m in messages],
        [m.integrity for _, m in messages],
        [m.due_at for _, m in messages],
        [m.timer for _, m in messages],
        [m.structured for _, m in messages],
        [w.place for _, w in writes],
        [w.at for _, w in writes],
        [v.store for v in vectors],
        [v.id for v in vectors],
        [v.version for v in vectors],
        [v.source for v in vectors],
        [v.label for v in vectors],
        [v.words for v in vectors],
        ["\x1f".join(v.exact) for v in vectors],
        [v.type for v in vectors],
        ["\x1f".join(v.names) for v in vectors],
        [v.chars for v in vectors],
        [n for n, _, _ in meanings],
        [model for _, model, _ in meanings],
        [embedding for _, _, embedding in meanings],
    )
