"""A memory service in a dictionary, with what the manager relies on: versions, stale messages, timers, the policy.

The manager talks to it through its real client. What the policy would refuse fails the test here.
"""

import json
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from counterpoint.client import Memory, record
from counterpoint.guard.policy import policy
from counterpoint.manager.handlers import register
from counterpoint.manager.task_limits import TaskLimits
from counterpoint.manager.workflow import TRANSITIONS, WorkflowState
from counterpoint.proto.attempts import Attempt, TaskOutcomeReported
from counterpoint.proto.decisions import Confidence
from counterpoint.proto.errors import Conflict
from counterpoint.proto.ids import new_id
from counterpoint.proto.interventions import CancelTask, TaskOverridden
from counterpoint.proto.line import Action
from counterpoint.proto.memory import (
    Commit,
    CommitReply,
    CommitRequest,
    Get,
    Item,
    List,
    Origin,
    QueryReply,
    QueryRequest,
    QueryResult,
    RecordsChanged,
    Ref,
    Refusal,
)
from counterpoint.proto.messages import Message
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import (
    ENDED,
    OverrideGiven,
    SubmitTask,
    Task,
    TaskDelegated,
    TaskRouted,
    TaskWorked,
)

Reply = TypeVar("Reply")
START = datetime(2026, 3, 2, 3, 0, 1, tzinfo=UTC)
PROJECT = "orders"
QUIET = frozenset({"TaskDue", "DecisionMade"})


def run(work: Coroutine[Any, Any, Reply]) -> Reply:
    """The result of a coroutine that never has to wait."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("a handler waited for something else than memory")


@dataclass(frozen=True)
class Sent:
    """A message as the log holds it: with the version of its task's record, and when it is due."""

    id: str
    message: Message
    task_id: str | None
    version: int | None
    due_at: datetime | None = None
    timer: str | None = None

    @property
    def name(self) -> str:
        return type(self.message).__name__


@dataclass
class House:
    """One project with a manager in it. `log` is all that was sent, `timers` what is still to come due."""

    bounds: TaskLimits = field(default_factory=TaskLimits)
    now: datetime = START
    records: dict[tuple[str, str], Item] = field(default_factory=dict)
    log: list[Sent] = field(default_factory=list)
    timers: list[Sent] = field(default_factory=list)
    handlers: dict[type[Message], Any] = field(default_factory=dict)
    applied: dict[tuple[str, str], CommitReply] = field(default_factory=dict)
    seq: int = 0
    before_commit: Any = None

    def __post_init__(self) -> None:
        register(self, self.bounds)  # type: ignore[arg-type]

    def on(self, message_type: type[Message]) -> Any:
        assert message_type.TYPE in policy().consumed("manager")
        return lambda handler: self.handlers.setdefault(message_type, handler)

    # what the tests look at

    def task(self, task_id: str = "t1") -> Task:
        return record(self.records["tasks", task_id], Task)

    def attempt(self, number: int, task_id: str = "t1") -> Attempt:
        return next(a for a in self.attempts(task_id) if a.attempt == number)

    def attempts(self, task_id: str = "t1") -> list[Attempt]:
        kept = [record(item, Attempt) for (store, _), item in self.records.items() if store == "attempts"]
        return sorted((a for a in kept if a.task_id == task_id), key=lambda a: a.attempt)

    def line(self, task_id: str = "t1") -> list[Action]:
        kept = [item for (store, _), item in self.records.items() if store == "actions"]
        return [a for a in (record(i, Action) for i in sorted(kept, key=lambda i: i.seq)) if a.task_id == task_id]

    def names(self, since: int = 0) -> list[str]:
        return [sent.name for sent in self.log[since:] if sent.name not in QUIET]

    def last(self, message_type: type[Reply]) -> Reply:
        return next(sent.message for sent in reversed(self.log) if isinstance(sent.message, message_type))

    def work_under_way(self, task_id: str = "t1") -> list[Sent]:
        """Delegations that are not stale."""
        version = self.version(task_id)
        return [s for s in self.log if s.name == "TaskDelegated" and s.task_id == task_id and s.version == version]

    def version(self, task_id: str = "t1") -> int:
        item = self.records.get(("tasks", task_id))
        return item.version if item else 0

    # what happens to the manager

    def deliver(self, message: Message, message_id: str | None = None, version: int | None = None) -> str:
        """Hand a message to its handler and apply the commit, as the bus does: `done`, `stale` or `replayed`."""
        task_id: str | None = getattr(message, "task_id", None)
        if version is not None and version < self.version(task_id or ""):
            return "stale"
        before = {task: self.records["tasks", task] for store, task in self.records if store == "tasks"}
        origin = Origin(message_id=message_id or new_id(), project=PROJECT, task_id=task_id)
        start = len(self.log)
        while True:
            memory = Memory(self.transport, "manager", origin, self.now)
            try:
                commit: Commit = run(self.handlers[type(message)](message, memory))
                if not (commit.writes or commit.messages or commit.cancel_timers):
                    return "done"
                status = run(memory.step(commit)).status
                break
            except Conflict:
                continue
        if task_id:
            self._is_legal(before.get(task_id), task_id, self.names(start))
        return status

    def route(self, task_id: str = "t1", version: int | None = 0, **asked: Any) -> str:
        asked = {"kind": "troubleshoot", "description": "the orders are not loaded"} | asked
        return self.deliver(
            TaskRouted(
                task_id=task_id,
                project=PROJECT,
                task=SubmitTask(task_id=task_id, **asked),
                submitted_by="ops",
                submitted_by_kind="person",
                submitted_at=self.now,
                lane="investigate",
                reason="an error is given",
                action_id=self.foreign_action(task_id, "router", "route"),
            ),
            version=version,
        )

    def foreign_action(self, task_id: str, agent: str, kind: str, after: tuple[str, ...] = ()) -> str:
        """An action that another service has put on the line."""
        action = Action(
            action_id=new_id(), task_id=task_id, agent=agent, kind=kind, reasoning="-", after=after, at=self.now
        )
        self.write("actions", action.action_id, action.model_dump(mode="json", exclude_none=True))
        return action.action_id

    def developer(
        self, outcome: str, score: float = 0.7, task_id: str = "t1", given: Sent | None = None, **more: Any
    ) -> str:
        """The developer's work on what was delegated last (or on `given`): a proposal is recorded as an attempt."""
        given = given or self.work_under_way(task_id)[-1]
        if given.version is not None and given.version < self.version(task_id):
            return "stale"
        delegated = given.message
        assert isinstance(delegated, TaskDelegated)
        action_id = self.foreign_action(task_id, "developer", "assess", delegated.after)
        text = more.pop("text", None if outcome == "stopped" else f"text of attempt {delegated.attempt}")
        attempt_id = None
        if outcome == "proposed":
            attempt_id = new_id()
            error = delegated.task.error_message
            attempt = Attempt(
                attempt_id=attempt_id,
                task_id=task_id,
                project=PROJECT,
                attempt=delegated.attempt,
                description=delegated.task.description,
                error_message=error,
                error_signature=signature(error).digest if error else None,
                tried=text or "",
                by="developer",
                override_by=delegated.override.by if delegated.override else None,
                at=self.now,
            )
            self.write("attempts", attempt_id, attempt.model_dump(mode="json", exclude_none=True))
        worked = TaskWorked(
            task_id=task_id,
            attempt=delegated.attempt,
            outcome=outcome,
            text=text,
            confidence=confidence(score),
            attempt_id=attempt_id,
            action_id=action_id,
            **more,
        )
        return self.deliver(worked, version=self.version(task_id))

    def outcome(self, outcome: str, task_id: str = "t1", **more: Any) -> str:
        more = {"by": "ops", "by_kind": "person"} | more
        return self.deliver(
            TaskOutcomeReported(
                task_id=task_id, outcome=outcome, action_id=self.foreign_action(task_id, "router", "outcome"), **more
            )
        )

    def override(self, task_id: str = "t1", **more: Any) -> str:
        given = {"instruction": "do it so", "reasoning": "seen before", "by": "claude", "by_kind": "agent"} | more
        return self.deliver(
            TaskOverridden(
                task_id=task_id,
                override=OverrideGiven(**given),
                action_id=self.foreign_action(task_id, "calling_llm", "override"),
            )
        )

    def cancel(self, task_id: str = "t1") -> str:
        return self.deliver(CancelTask(task_id=task_id, by="ops", by_kind="person", reason="not needed"))

    def ingest(self) -> str:
        """A document comes in and its commit is announced."""
        return self.deliver_changes("memory", ("chunks", "documents"))

    def deliver_changes(self, service: str, stores: tuple[str, ...]) -> str:
        """A service has written a record to each of some stores."""
        writes = []
        for store in stores:
            item_id = new_id()
            if store == "documents":
                self.write(store, item_id, {"source": "runbook.md"}, service)
            elif store == "attempts" and service == "memory":
                self.write(store, item_id, {"source": "incidents.csv"}, service)
            writes.append(Ref(store=store, id=item_id, version=1))
        return self.deliver(
            RecordsChanged(commit_id=new_id(), project=PROJECT, service=service, writes=tuple(writes), at=self.now)
        )

    def wait(self, seconds: float) -> int:
        """Time passes; the timers that come due are delivered in their order. How many were not stale."""
        until, fired = self.now + timedelta(seconds=seconds), 0
        while due := sorted(
            (t for t in self.timers if t.due_at and t.due_at <= until), key=lambda t: t.due_at or until
        ):
            self.timers.remove(due[0])
            self.now = max(self.now, due[0].due_at or self.now)
            fired += self.deliver(due[0].message, message_id=due[0].id, version=due[0].version) == "done"
        self.now = until
        return fired

    # what memory does

    async def transport(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        if subject.endswith(".query"):
            queries = QueryRequest.model_validate_json(body).queries
            return QueryReply(found=tuple(self._answer(query) for query in queries)).model_dump_json().encode()
        request = CommitRequest.model_validate_json(body)
        if self.before_commit:
            meanwhile, self.before_commit = self.before_commit, None
            meanwhile()
        return self._apply(request.origin, request.commit).model_dump_json().encode()

    def write(self, store: str, record_id: str, body: dict[str, Any], author: str = "-") -> None:
        self.seq += 1
        known = self.records.get((store, record_id))
        self.records[store, record_id] = Item(
            store=store,
            id=record_id,
            project=PROJECT,
            version=(known.version if known else 0) + 1,
            body=json.loads(json.dumps(body)),
            author=author,
            label=1,
            integrity=1,
            seq=self.seq,
            at=self.now,
        )

    def _answer(self, query: Any) -> QueryResult:
        assert query.store in policy().readable("manager"), query.store
        match query:
            case Get():
                item = self.records.get((query.store, query.id))
                return QueryResult(items=(item,) if item else (), tier="record", plan="-", took_us=0)
            case List():
                kept = [item for (store, _), item in self.records.items() if store == query.store]
                kept = [i for i in kept if all(i.body.get(name) == value for name, value in query.where.items())]
                kept = [i for i in kept if query.task_id in (None, i.body.get("task_id"))]
                kept.sort(key=lambda i: i.seq, reverse=not query.ascending)
                if query.cursor is not None:
                    kept = [i for i in kept if (i.seq > query.cursor if query.ascending else i.seq < query.cursor)]
                page = tuple(kept[: query.limit])
                more = page[-1].seq if len(kept) > len(page) else None
                return QueryResult(items=page, tier="record", plan="-", took_us=0, next_cursor=more)
        raise AssertionError(f"the manager does not ask {query.op}")

    def _apply(self, origin: Origin, commit: Commit) -> CommitReply:
        if known := self.applied.get((origin.message_id, commit.step)):
            return known.model_copy(update={"status": "replayed"})
        assert len(commit.writes) <= 500
        assert len(commit.messages) <= 200
        rights = policy()
        types = [message.type for message in commit.messages]
        assert {write.store for write in commit.writes} <= rights.writable("manager")
        assert set(types) <= rights.sendable("manager")
        assert commit.last or not any(rights.messages[name].workflow for name in types)
        for write in commit.writes:
            item = self.records.get((write.store, write.id))
            if write.expect != (item.version if item else 0):
                return CommitReply(
                    status="refused",
                    refusal=Refusal(kind="conflict", code="conflict", detail=f"{write.store}/{write.id}"),
                )
        task = self.records.get(("tasks", origin.task_id or ""))
        if task and task.body["state"] in ENDED:
            assert all(rights.stores[write.store].ended for write in commit.writes)
            assert all(rights.messages[name].ended for name in types)
        for write in commit.writes:
            assert write.body is not None
            self.write(write.store, write.id, write.body)
        self.timers = [timer for timer in self.timers if timer.timer not in commit.cancel_timers]
        for outgoing in commit.messages:
            message = Message.register[outgoing.type].model_validate(outgoing.data)
            versioned = rights.messages[outgoing.type].workflow or outgoing.timer is not None
            sent = Sent(
                new_id(),
                message,
                outgoing.task_id,
                self.version(outgoing.task_id or "") if versioned else None,
                outgoing.due_at,
                outgoing.timer,
            )
            (self.timers if outgoing.timer else self.log).append(sent)
        reply = CommitReply(status="done")
        self.applied[origin.message_id, commit.step] = reply
        return reply

    def _is_legal(self, before: Item | None, task_id: str, sent: list[str]) -> None:
        """Whatever wrote the record of a live task was a row of the table, and sent what that row names."""
        after = self.records.get(("tasks", task_id))
        if after is None or (before and before.version == after.version):
            assert not sent
            return
        if before and before.body["state"] in ENDED:
            assert (before.body["state"], before.body["ended_at"]) == (after.body["state"], after.body["ended_at"])
            assert not sent
            return
        was = (
            WorkflowState(before.body["state"], before.body.get("waiting_for"))
            if before
            else WorkflowState("submitted")
        )
        now = WorkflowState(after.body["state"], after.body.get("waiting_for"))
        assert any((row.at, row.to, list(row.sends)) == (was, now, sent) for row in TRANSITIONS), (was, now, sent)


def confidence(score: float) -> Confidence:
    """A confidence with the band of its score."""
    return Confidence(score=score, band="high" if score >= 0.8 else "medium" if score >= 0.6 else "low")
