"""The router's notifications on a fake memory, with a clock that the tests set."""

import asyncio
import base64
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from agents.hook_receiver import HookReceiver, Reply
from memory_service.fake import FakeMemory

from counterpoint.client import Memory
from counterpoint.proto.errors import Conflict, CounterpointError
from counterpoint.proto.findings import Findings
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit
from counterpoint.proto.messages import Message
from counterpoint.proto.notifications import NotificationDue
from counterpoint.proto.tasks import Task, TaskCompleted, TaskEscalated, TaskProposed, TaskResumed
from counterpoint.router.notify import handlers, lanes
from counterpoint.router.notify.caller import Caller
from counterpoint.router.notify.handlers import Notifications
from counterpoint.router.notify.receivers import Receiver

ROWS = [
    {"kind": "job", "namespace": "prod", "name": f"job-{n}", "hops": 1, "edge": "data", "owner": "team-finance"}
    for n in range(14)
]
SLACK_REPLY = Reply(body={"ok": True, "channel": "C9", "ts": "17.5"})
EVIL = "<!channel> <https://evil.example|click> *bold* [click](https://evil.example) `x`"
PROPOSED: dict[str, Any] = {"state": "input_required", "waiting_for": "outcome", "proposal": "Restart it"}
ESCALATED: dict[str, Any] = {
    "state": "input_required",
    "waiting_for": "override",
    "escalation": {
        "to": "human",
        "code": "low_confidence",
        "needs": [{"kind": "document", "what": "a runbook", "how": "counterpoint ingest F"}],
    },
}
WORKING: dict[str, Any] = {"state": "working", "waiting_for": None, "escalation": None, "proposal": None}
DONE: dict[str, Any] = {"state": "completed", "waiting_for": None, "escalation": None, "resolution": "resolved"}
NOW = datetime(2026, 3, 2, 3, 0, 1, tzinfo=UTC)
PROJECT = "orders"
KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


def webhook(hook: HookReceiver, **fields: Any) -> Receiver:
    return Receiver.model_validate(
        {"name": "ops", "url": f"{hook.url}/in", "secret": SECRET, "private": True, **fields}
    )


def proposed(task_id: str = "incident-1", proposal: str = "Restart it") -> TaskProposed:
    return TaskProposed(task_id=task_id, attempt=1, proposal=proposal, artifact_sha256="0" * 64, findings=Findings())


@dataclass
class Clock:
    """The time of the house."""

    now: datetime = NOW

    @property
    def seconds(self) -> float:
        return (self.now - NOW).total_seconds()


@dataclass
class NotifiedHouse:
    """A project, its task events, and the receivers that are told. `dead` are the dead letters.

    Receivers are told at once, unless `waits`.
    """

    receivers: list[Receiver]
    waits: bool = False
    timeout_s: float = 5.0
    clock: Clock = field(default_factory=Clock)
    memory: FakeMemory = field(default_factory=lambda: FakeMemory("router", PROJECT, NOW))
    dead: list[tuple[NotificationDue, CounterpointError]] = field(default_factory=list)
    notifications: Notifications = field(init=False)

    def __post_init__(self) -> None:
        answer = self.memory.transport

        async def transport(subject: str, body: bytes, timeout_s: float) -> bytes:
            """Let others run before each answer, as over the bus."""
            await asyncio.sleep(0)
            return await answer(subject, body, timeout_s)

        self.memory.transport = transport  # type: ignore[method-assign]
        if not self.waits:
            self.receivers = [each.model_copy(update={"wait_s": 0.0}) for each in self.receivers]
        self.restart()

    def restart(self) -> None:
        """Start the router anew: what was only in its memory is lost."""
        self.notifications = Notifications(self.receivers, Caller(self.timeout_s))
        for name in self.notifications._lanes:
            self.notifications._lanes[name] = lanes.Lane(lambda: self.clock.seconds)

    def task(self, task_id: str = "incident-1", *, label: int = 1, **fields: Any) -> Task:
        """Put the record of a task."""
        known = self.memory.item("tasks", task_id)
        body = known.body if known else {
            "task_id": task_id, "project": PROJECT, "kind": "troubleshoot", "state": "working",
            "description": "orders_ingest failed", "title": "orders_ingest.fetch", "submitted_by": "lineage",
            "submitted_at": self.clock.now.isoformat(),
        }  # fmt: skip
        item = self.memory.put("tasks", task_id, {**body, **fields}, label=label)
        return Task.model_validate(item.body)

    async def tell(self, message: Message, message_id: str | None = None) -> None:
        """Deliver an event of a task."""
        await self._run(self.plan, message, message_id or new_id())

    async def plan(self, message: Message, memory: Memory) -> Commit:
        """Handle an event of a task."""
        return await self.notifications.plan(message, memory)

    async def settle(self, upto: timedelta = timedelta(0)) -> int:
        """Deliver what is due until `upto` from now, in order; return the number of messages."""
        until, count = self.clock.now + upto, 0
        with self._time():
            while due := sorted((t for t in self.memory.timers if _due(t) <= until), key=_due):
                first = due[0]
                self.memory.timers.remove(first)
                self.clock.now = max(self.clock.now, _due(first))
                self.memory.now = self.clock.now
                message = NotificationDue.model_validate(first.data)
                try:
                    await self._run(self.notifications.on_due, message, first.id)
                except CounterpointError as error:
                    self.dead.append((message, error))
                count += 1
        self.clock.now = self.memory.now = max(self.clock.now, until)
        return count

    async def _run(self, handler: Any, message: Message, message_id: str) -> None:
        run = 0
        while True:
            client: Memory = self.memory.memory(message_id, run=run, now=self.clock.now)
            run += 1
            try:
                with self._time():
                    commit: Commit = await handler(message, client)
                if commit.writes or commit.messages:
                    await client.step(commit)
                return
            except Conflict:
                continue

    @contextlib.contextmanager
    def _time(self) -> Iterator[None]:
        before, handlers.utc_now = handlers.utc_now, lambda: self.clock.now  # type: ignore[attr-defined]
        try:
            yield
        finally:
            handlers.utc_now = before  # type: ignore[attr-defined]

    def deliveries(self) -> list[dict[str, Any]]:
        return list(self.memory.kept("webhook_deliveries").values())


def _due(timer: Any) -> datetime:
    return timer.due_at  # type: ignore[no-any-return]


def receiver(hook: HookReceiver, kind: str, **fields: Any) -> Receiver:
    extra = {"slack": {"secret": "xoxb-1", "channel": "C9"}, "pagerduty": {"secret": "key-1"}}.get(kind, {})
    made = {"name": kind, "kind": kind, "url": hook.url, "private": True, **extra, **fields}
    return Receiver.model_validate(made)


def escalated(task_id: str = "incident-1") -> TaskEscalated:
    return TaskEscalated(task_id=task_id, to="human", code="low_confidence", findings=Findings())


def completed(task_id: str = "incident-1") -> TaskCompleted:
    return TaskCompleted.model_validate(
        {
            "task_id": task_id,
            "resolution": "resolved",
            "result": "r",
            "cost_usd": "0",
            "tokens": 0,
            "duration_ms": 1,
            "findings": {},
        }
    )


async def course(house: NotifiedHouse) -> None:
    """An incident that is proposed, escalated, worked on and resolved, an hour apart."""
    house.task(findings={"downstream": ROWS}, context={"owner": "team-ingest", "affected_count": 200})
    for fields, message in (
        (PROPOSED, proposed()),
        (ESCALATED, escalated()),
        (WORKING, TaskResumed(task_id="incident-1", reason="an override")),
        (DONE, completed()),
    ):
        house.task(**fields)
        await house.tell(message)
        await house.settle(timedelta(hours=1))
