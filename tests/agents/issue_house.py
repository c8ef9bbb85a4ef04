"""Issue synchronization on a fake memory, with a clock that the tests set."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from agents.scripted_forge import ScriptedForge
from memory_service.fake import FakeMemory, SentMessage

from counterpoint.client import Memory
from counterpoint.proto.attempts import TaskOutcomeReported
from counterpoint.proto.errors import Conflict, CounterpointError, Transient
from counterpoint.proto.findings import Findings
from counterpoint.proto.ids import new_id
from counterpoint.proto.issues import IssueDue, TrackerDue
from counterpoint.proto.memory import Commit, Origin
from counterpoint.proto.messages import Message
from counterpoint.proto.tasks import Task, TaskCompleted, TaskProposed
from counterpoint.router.intake.submissions import task_key
from counterpoint.router.issues import handlers, poll, sync
from counterpoint.router.issues.calls import RateLimit
from counterpoint.router.issues.effects import ForgeEffects
from counterpoint.router.issues.handlers import IssueSync
from counterpoint.router.issues.trackers import Tracker
from counterpoint.router.notify import lanes
from counterpoint.router.webhooks.issue_events import IssueEvent

NOW = datetime(2026, 3, 2, 3, 0, 1, tzinfo=UTC)
PROJECT = "orders"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
KINDS = ("github", "gitlab", "gitea")
SLOWER = ("github", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("gitlab", "gitea")))
"""One dialect in the short run, all in the long one."""
PLAN = "# Plan\n\n## Steps\n\n1. Ask @ann about #12\n2. Write it\n3. write  it\n"


def tracker_of(forge: ScriptedForge, **fields: Any) -> Tracker:
    return Tracker.model_validate(
        {
            "name": "shop", "kind": forge.kind, "url": forge.url, "repo": forge.repo, "token": forge.token,
            "project": PROJECT, "private": True, "users": {"ann": "ann"}, "poll_s": 20_000, **fields,
        }
    )  # fmt: skip


def proposed(task_id: str = "incident-1", proposal: str = "Restart it") -> TaskProposed:
    return TaskProposed(task_id=task_id, attempt=1, proposal=proposal, artifact_sha256="0" * 64, findings=Findings())


def completed(task_id: str = "incident-1", resolution: str = "resolved", result: str = "x") -> TaskCompleted:
    return TaskCompleted(
        task_id=task_id,
        resolution=resolution,
        result=result,
        cost_usd=Decimal(0),
        tokens=0,
        duration_ms=1,
        findings=Findings(),
    )


@dataclass
class IssueHouse:
    """A project, its tasks, and the trackers of their issues.

    `dead` are the dead letters, `deferred` the reasons for which messages are delivered again.
    """

    trackers: list[Tracker]
    timeout_s: float = 5.0
    now: datetime = NOW
    memory: FakeMemory = field(default_factory=lambda: FakeMemory("router", PROJECT, NOW))
    dead: list[tuple[Message, CounterpointError]] = field(default_factory=list)
    deferred: list[str] = field(default_factory=list)
    issues: IssueSync = field(init=False)

    def __post_init__(self) -> None:
        self.memory.principal("ann", name="ann", kind="person", projects=("*",), roles=("report", "submit", "read"))
        self.memory.principal("eve", name="eve", kind="person", projects=("*",), roles=("read",))
        self.restart()

    def restart(self) -> None:
        """Start the router anew: what was only in its memory is lost."""
        self.issues = IssueSync(self.trackers, self.timeout_s, ForgeEffects(self._of_principal))
        for tracker in self.trackers:
            self.issues._lanes[tracker.name] = lanes.Lane(lambda: (self.now - NOW).total_seconds())
            limit = RateLimit(lambda: self.now)
            self.issues.polls._limits[tracker.name] = limit  # type: ignore[index]
            self.issues._forges[tracker.name]._client._limit = limit  # type: ignore[attr-defined]

    def _of_principal(self, origin: Origin) -> Memory:
        return Memory(self.memory.transport, "router", origin, self.now)

    def task(self, task_id: str = "incident-1", *, label: int = 1, **fields: Any) -> Task:
        """Put the record of a task."""
        known = self.memory.item("tasks", task_id)
        body = known.body if known else {
            "task_id": task_id, "project": PROJECT, "kind": "troubleshoot", "state": "input_required",
            "waiting_for": "outcome", "proposal": "Restart it", "attempt": 1, "error_message": "no route to db",
            "description": "orders_ingest failed", "title": "orders_ingest.fetch", "submitted_by": "lineage",
            "submitted_at": self.now.isoformat(),
        }  # fmt: skip
        item = self.memory.put("tasks", task_id, {**body, **fields}, label=label)
        if known is None:
            names = ("task_id", "project", "kind", "description", "submitted_at", "submitted_by")
            kept = {name: body[name] for name in names}
            submission = {**kept, "submitted_by_kind": "system", "content_sha256": "0" * 64}
            self.memory.put("submissions", task_key(task_id), submission)
        return Task.model_validate(item.body)

    async def tell(self, message: Message) -> None:
        """Deliver an event of a task."""
        await self._run(self.issues.plan, message, new_id())

    async def open(self, **fields: Any) -> None:
        """Open the issue of a task."""
        self.task(**fields)
        await self.tell(proposed(fields.get("task_id", "incident-1")))
        await self.settle()

    async def end(self, task_id: str = "incident-1", **fields: Any) -> None:
        """End a task, and tell of it."""
        self.task(task_id, **{"state": "completed", "waiting_for": None, "resolution": "resolved", **fields})
        await self.tell(completed(task_id))
        await self.settle()

    async def hook(self, number: int = 1, mark: str | None = None) -> str | None:
        """Deliver a webhook about an issue; return its task."""
        tracker = self.trackers[0]
        event = IssueEvent(f"{tracker.web_url}/{tracker.repo}", number, mark)
        client = self.memory.memory(new_id(), now=self.now)
        task_id, commit = await self.issues.touch(client, event)
        if commit.writes:
            await client.step(commit)
        return task_id

    async def settle(self, upto: timedelta = timedelta(seconds=60)) -> int:
        """Deliver what is due until `upto` from now, in order; return the number of messages."""
        until, count = self.now + upto, 0
        with self.time():
            while due := sorted((t for t in self.memory.timers if _due(t) <= until), key=_due):
                first = due[0]
                self.memory.timers.remove(first)
                self.now = max(self.now, _due(first))
                self.memory.now = self.now
                await self.deliver(first)
                count += 1
        self.now = self.memory.now = max(self.now, until)
        return count

    async def deliver(self, sent: SentMessage) -> None:
        """Deliver one message of the router to itself."""
        message = sent.message
        handler = self.issues.on_due if isinstance(message, IssueDue) else self.issues.polls.on_due
        assert isinstance(message, IssueDue | TrackerDue)
        try:
            with self.time():
                await self._run(handler, message, sent.id)
        except Transient as error:
            later = self.now + timedelta(seconds=error.retry_after_s or 1)
            self.memory.timers.append(replace(sent, due_at=later))
            self.deferred.append(str(error))
        except CounterpointError as error:
            self.dead.append((message, error))

    async def _run(self, handler: Any, message: Message, message_id: str) -> None:
        run = 0
        while True:
            client: Memory = self.memory.memory(message_id, run=run, now=self.now)
            run += 1
            try:
                commit: Commit = await handler(message, client)
                if commit.writes or commit.messages:
                    await client.step(commit)
                return
            except Conflict:
                continue

    @contextlib.contextmanager
    def time(self) -> Iterator[None]:
        modules: tuple[Any, ...] = (handlers, poll, sync)
        before = [module.utc_now for module in modules]
        for module in modules:
            module.utc_now = lambda: self.now
        try:
            yield
        finally:
            for module, known in zip(modules, before, strict=True):
                module.utc_now = known

    def record(self, task_id: str = "incident-1") -> dict[str, Any]:
        """The record of a task's issue."""
        (found,) = [body for body in self.memory.kept("sync_cursors").values() if body.get("task_id") == task_id]
        return found

    def outcomes(self) -> list[TaskOutcomeReported]:
        return [sent.message for sent in self.memory.log if sent.type == TaskOutcomeReported.TYPE]  # type: ignore[misc]


def house_of(forge: ScriptedForge, **fields: Any) -> IssueHouse:
    return IssueHouse([tracker_of(forge, **fields)])


def planned(house: IssueHouse, text: str = PLAN) -> TaskCompleted:
    """A finished plan."""
    house.task("plan-1", kind="plan", state="completed", waiting_for=None, resolution="planned", result=text)
    return completed("plan-1", "planned", text)


def _due(timer: Any) -> datetime:
    return timer.due_at  # type: ignore[no-any-return]
