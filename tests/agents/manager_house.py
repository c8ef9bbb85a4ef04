"""The manager on a fake memory. Every transition must be a row of the workflow's table."""

from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from memory_service.fake import FakeMemory, SentMessage

from counterpoint.client import Gateway, record, records
from counterpoint.guard.policy import ApprovalPolicy, policy
from counterpoint.manager.handlers import register
from counterpoint.manager.task_limits import TaskLimits
from counterpoint.manager.workflow import TRANSITIONS, WorkflowState
from counterpoint.proto.attempts import Attempt, TaskOutcomeReported
from counterpoint.proto.decisions import Confidence
from counterpoint.proto.errors import Conflict, Denied
from counterpoint.proto.findings import Objection
from counterpoint.proto.ids import new_id
from counterpoint.proto.interventions import CancelTask, TaskOverridden
from counterpoint.proto.line import Action
from counterpoint.proto.memory import Commit, Item, RecordsChanged, Ref
from counterpoint.proto.messages import Message
from counterpoint.proto.overrides import OverrideGiven
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import ENDED, SubmitTask, Task, TaskDelegated, TaskDue, TaskRouted, TaskWorked

Reply = TypeVar("Reply")
START = datetime(2026, 3, 2, 3, 0, 1, tzinfo=UTC)
PROJECT = "orders"
QUIET = frozenset({"TaskDue", "DecisionMade", "SummarizeSession"})
OBJECTION = Objection(rule="part", reason="nothing answers “who owns it”", search_for=("who owns it",))


def run(work: Coroutine[Any, Any, Reply]) -> Reply:
    """The result of a coroutine that never has to wait."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("a handler waited for something else than memory")


@dataclass
class House(FakeMemory):
    """One project with a manager in it."""

    caller: str = "manager"
    project: str = PROJECT
    now: datetime = START
    bounds: TaskLimits = field(default_factory=TaskLimits)
    approvals: ApprovalPolicy | None = None
    gateway: Gateway | None = None
    handlers: dict[type[Message], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        register(self, self.bounds, self.approvals, self.gateway)  # type: ignore[arg-type]

    def on(self, message_type: type[Message]) -> Any:
        assert message_type.TYPE in policy().consumed("manager")
        return lambda handler: self.handlers.setdefault(message_type, handler)

    # what the tests look at

    def task(self, task_id: str = "t1") -> Task:
        item = self.item("tasks", task_id)
        assert item is not None
        return record(item, Task)

    def attempt(self, number: int, task_id: str = "t1") -> Attempt:
        return next(a for a in self.attempts(task_id) if a.attempt == number)

    def attempts(self, task_id: str = "t1") -> list[Attempt]:
        made = records(self.items("attempts"), Attempt)
        return sorted((one for one in made if one.task_id == task_id), key=lambda one: one.attempt)

    def line(self, task_id: str = "t1") -> list[Action]:
        return [action for action in records(self.items("actions"), Action) if action.task_id == task_id]

    def names(self, since: int = 0) -> list[str]:
        return [sent.name for sent in self.log[since:] if sent.name not in QUIET]

    def last(self, message_type: type[Reply]) -> Reply:
        return next(sent.message for sent in reversed(self.log) if isinstance(sent.message, message_type))

    def work_under_way(self, task_id: str = "t1") -> list[SentMessage]:
        """Delegations that are not stale."""
        version = self.version(task_id)
        return [s for s in self.log if s.name == "TaskDelegated" and s.task_id == task_id and s.version == version]

    def version(self, task_id: str = "t1") -> int:
        return super().version(task_id)

    # what happens to the manager

    def deliver(self, message: Message, message_id: str | None = None, version: int | None = None) -> str:
        """Hand a message to its handler and apply the commit, as the bus does: `done`, `stale` or `replayed`."""
        task_id: str | None = getattr(message, "task_id", None)
        if version is not None and version < self.version(task_id or ""):
            return "stale"
        before = self.item("tasks", task_id) if task_id else None
        message_id = message_id or new_id()
        start, tries = len(self.log), 0
        while True:
            memory = self.memory(message_id, type=message.TYPE, task_id=task_id, run=tries)
            tries += 1
            try:
                commit: Commit = run(self.handlers[type(message)](message, memory))
                if not (commit.writes or commit.messages or commit.cancel_timers):
                    return "done"
                status = run(memory.step(commit)).status
                break
            except Conflict:
                continue
            except Denied as denied:  # the task has ended meanwhile: the handler runs again, as on the bus
                if denied.rule != "ended" or tries > 1:
                    raise
        if task_id:
            tool = isinstance(message, TaskDue) and message.timer.startswith("tool_")
            self._is_legal(before, task_id, self.names(start), may_ask=tool)
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
        self.put("actions", action.action_id, action.model_dump(mode="json", exclude_none=True))
        return action.action_id

    def developer(
        self, outcome: str, score: float = 0.7, task_id: str = "t1", given: SentMessage | None = None, **more: Any
    ) -> str:
        """The developer's work on what was delegated last (or on `given`): a proposal is recorded as an attempt."""
        given = given or self.work_under_way(task_id)[-1]
        if given.version is not None and given.version < self.version(task_id):
            return "stale"
        delegated = given.message
        assert isinstance(delegated, TaskDelegated)
        action_id = self.foreign_action(task_id, "developer", "assess", delegated.after)
        confidence_of_attempt = more.pop("confidence_of_attempt", None)
        text = more.pop("text", None if outcome == "stopped" else f"text of attempt {delegated.attempt}")
        attempt_id = None
        if outcome == "proposed" and not more.get("objections"):
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
                confidence=confidence_of_attempt,
                by="developer",
                override_by=delegated.override.by if delegated.override else None,
                at=self.now,
            )
            self.put("attempts", attempt_id, attempt.model_dump(mode="json", exclude_none=True))
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
                self.put(store, item_id, {"source": "runbook.md"}, author=service)
            elif store == "attempts" and service == "memory":
                self.put(store, item_id, {"source": "incidents.csv"}, author=service)
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

    def _is_legal(self, before: Item | None, task_id: str, sent: list[str], *, may_ask: bool) -> None:
        """Assert that a change of a live task is a row of the transition table and sent the messages of that row."""
        after = self.item("tasks", task_id)
        if after is None or (before and before.version == after.version):
            repeats = may_ask or (before is not None and before.body.get("waiting_for") == "approval")
            assert sent in ([], ["ApprovalRequested"] if repeats else [])
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
