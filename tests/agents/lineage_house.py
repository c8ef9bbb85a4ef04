"""Lineage on a fake memory: events come by the bus or by HTTP, and time passes when a test says so."""

import asyncio
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import httpx
from memory_service.fake import FakeMemory

from counterpoint.client import Memory, record
from counterpoint.guard.policy import policy
from counterpoint.lineage.handlers import register
from counterpoint.lineage.incidents.incident import IncidentLimits, IncidentRecord
from counterpoint.lineage.marquez.api import application
from counterpoint.lineage.openlineage.facets import parse_time
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.errors import Conflict
from counterpoint.proto.ids import new_id
from counterpoint.proto.lineage import LineageEvent
from counterpoint.proto.links import Link, Side, link_id
from counterpoint.proto.memory import Commit, RecordsChanged, Ref
from counterpoint.proto.messages import Message
from counterpoint.proto.principals import Principal
from counterpoint.proto.tasks import ENDED, SubmitTask, Task
from counterpoint.proto.validation import parse

NOW = datetime(2026, 11, 20, 18, tzinfo=UTC)
PROJECT = "default"
T = TypeVar("T")
LIMITS = IncidentLimits(incidents_per_hour=20, retry_grace_s=900)
TOKEN = "the-token-of-the-laptop"


@dataclass
class House(FakeMemory):
    """One project with lineage in it."""

    caller: str = "lineage"
    project: str = PROJECT
    now: datetime = NOW
    limits: IncidentLimits = LIMITS
    handlers: dict[type[Message], Any] = field(default_factory=dict)
    conflicts: int = 0
    is_ahead: bool = False
    """Whether the clocks of producers may be ahead of now."""

    def __post_init__(self) -> None:
        register(self, self.limits)  # type: ignore[arg-type]

    def on(self, message_type: type[Message]) -> Any:
        assert message_type.TYPE in policy().consumed("lineage")
        return lambda handler: self.handlers.setdefault(message_type, handler)

    # what the tests look at

    @property
    def tasks(self) -> list[SubmitTask]:
        return self._sent(SubmitTask)

    @property
    def outcomes(self) -> list[ReportOutcome]:
        return self._sent(ReportOutcome)

    @property
    def incidents(self) -> list[IncidentRecord]:
        return [record(item, IncidentRecord) for item in self.items("incidents") if item.id != "ledger"]

    @property
    def sent(self) -> list[Message]:
        return [sent.message for sent in self.log]

    def _sent(self, message_type: type[T]) -> list[T]:
        return [message for message in self.sent if isinstance(message, message_type)]

    # what happens to lineage

    async def take(self, raws: Iterable[dict[str, Any]]) -> None:
        """Other systems' events, one after the other, by NATS."""
        for raw in raws:
            await self.deliver(parse(LineageEvent.TYPE, raw))

    async def take_at_once(self, raws: Iterable[dict[str, Any]]) -> None:
        """The same, all at the same time."""
        await asyncio.gather(*(self.deliver(parse(LineageEvent.TYPE, raw)) for raw in raws))

    async def deliver(self, message: Message, message_id: str | None = None, task_id: str | None = None) -> None:
        """Hand a message to its handler and apply the commit, as the bus does."""
        message_id = message_id or new_id()
        run = 0
        while True:
            memory = self.memory(message_id, task_id=task_id, run=run, now=self._received_at(message))
            run += 1
            try:
                commit: Commit = await self.handlers[type(message)](message, memory)
                if (commit.writes or commit.messages or memory.stepped) and not memory.finished:
                    await memory.step(commit)
                return
            except Conflict:
                self.conflicts += 1
                assert run < 50

    def _received_at(self, message: Message) -> datetime:
        """The time of a delivery: now, or that of its event, which takes place before."""
        if not isinstance(message, LineageEvent) or self.is_ahead:
            return self.now
        try:
            return max(self.now, parse_time(message.event["eventTime"]))
        except (KeyError, ValueError, AttributeError):
            return self.now

    async def wait(self, seconds: float) -> None:
        """Time passes, and timers come due."""
        until = self.now + timedelta(seconds=seconds)
        while due := sorted(
            (one for one in self.timers if one.due_at and one.due_at <= until), key=lambda one: one.due_at or until
        ):
            self.timers.remove(due[0])
            self.now = max(self.now, due[0].due_at or self.now)
            await self.deliver(parse(due[0].type, due[0].data))
        self.now = until

    def ended(self, task_id: str, state: str) -> RecordsChanged:
        """The end of a task: its record, and what the manager's commit says of it."""
        times = {"created_at": NOW, "updated_at": self.now, "ended_at": self.now, "submitted_at": NOW}
        named = {"task_id": task_id, "session_id": "s", "project": PROJECT, "submitted_by": "lineage"}
        task = Task.model_validate({**named, **times, "kind": "troubleshoot", "state": state, "description": "-"})
        self.put("tasks", task_id, task.model_dump(mode="json", exclude_none=True))
        written = Ref(store="tasks", id=task_id, version=1)
        return RecordsChanged(
            commit_id=new_id(), service="manager", project=PROJECT, task_id=task_id, writes=(written,),
            ended=state in ENDED, at=self.now,
        )  # fmt: skip

    def merged(self, whole: str, part: str, relation: str = "merged") -> RecordsChanged:
        """The word of a person on two incidents, and what the router's commit says of it."""
        pair = (Side(task_id=whole), Side(task_id=part))
        said = Link(
            link_id=link_id(whole, part),
            project=PROJECT,
            relation=relation,
            pair=pair,
            by="a",
            by_kind="person",
            at=NOW,
        )
        self.put("links", said.link_id, said.model_dump(mode="json", exclude_none=True))
        return self._linked(said.link_id)

    def unmerged(self, whole: str, part: str) -> RecordsChanged:
        """The undoing of it."""
        self.drop("links", link_id(whole, part))
        return self._linked(link_id(whole, part))

    def _linked(self, record_id: str) -> RecordsChanged:
        written = Ref(store="links", id=record_id, version=1)
        return RecordsChanged(commit_id=new_id(), service="router", project=PROJECT, writes=(written,), at=self.now)

    def of_token(self, token: str = TOKEN, **more: Any) -> Principal:
        """A principal with that token."""
        given = {"name": f"name of {token}", "kind": "system", "projects": ("*",), "roles": ("report", "read")} | more
        return self.principal(hashlib.sha256(token.encode()).hexdigest(), **given)

    def client(self, token: str | None = TOKEN) -> httpx.AsyncClient:
        """A client of the HTTP API."""
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(application(self.of_principal, self.limits)),
            base_url="http://lineage",
            headers={"Authorization": f"Bearer {token}"} if token else {},
        )

    def of_principal(self, project: str, principal: str | None) -> Memory:
        return self.memory(project=project, principal=principal)

    async def transport(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        await asyncio.sleep(0)
        reply = await super().transport(subject, body, timeout_s)
        assert len(reply) < 1 << 20
        return reply
