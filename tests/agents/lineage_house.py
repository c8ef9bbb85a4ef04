"""A memory service in a dictionary with lineage in it: the policy, the diode and the write filter are memory's own.

Messages are handed over as the bus does it, requests as the HTTP server does it; time passes when a test says so.
"""

import asyncio
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from counterpoint.client import Memory, record
from counterpoint.guard.names import kept
from counterpoint.guard.policy import policy
from counterpoint.lineage.handlers import register
from counterpoint.lineage.incidents.incident import IncidentLimits, IncidentRecord
from counterpoint.lineage.marquez.api import application
from counterpoint.memory.access import diode
from counterpoint.memory.commit.planner import prepare
from counterpoint.memory.provenance.read_sets import Memories
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.memory.record.stamps import Provenance
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.errors import Away, Conflict, Denied, Permanent
from counterpoint.proto.ids import new_id
from counterpoint.proto.lineage import LineageEvent
from counterpoint.proto.links import Link, Side, link_id
from counterpoint.proto.memory import (
    Commit,
    CommitReply,
    CommitRequest,
    EdgeWalk,
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
from counterpoint.proto.principals import Principal
from counterpoint.proto.tasks import ENDED, SubmitTask, Task
from counterpoint.proto.validation import parse

NOW = datetime(2026, 11, 20, 18, tzinfo=UTC)
PROJECT = "default"
LIMITS = IncidentLimits(incidents_per_hour=20, retry_grace_s=900)
TOKEN = "the-token-of-the-laptop"


@dataclass
class House:
    """One project. `sent` is all that was sent and `timers` what is still to come due."""

    limits: IncidentLimits = LIMITS
    now: datetime = NOW
    stores: dict[str, dict[str, Item]] = field(default_factory=lambda: defaultdict(dict))
    sent: list[Message] = field(default_factory=list)
    timers: list[tuple[datetime, Message]] = field(default_factory=list)
    applied: dict[tuple[str, str], CommitReply] = field(default_factory=dict)
    handlers: dict[type[Message], Any] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    conflicts: int = 0
    seq: int = 0
    queries: int = 0
    requests: int = 0
    away: bool = False
    before_commit: Callable[[], Coroutine[Any, Any, None]] | None = None

    def __post_init__(self) -> None:
        register(self, self.limits)  # type: ignore[arg-type]

    def on(self, message_type: type[Message]) -> Any:
        assert message_type.TYPE in policy().consumed("lineage")
        return lambda handler: self.handlers.setdefault(message_type, handler)

    # what the tests look at

    @property
    def tasks(self) -> list[SubmitTask]:
        return [message for message in self.sent if isinstance(message, SubmitTask)]

    @property
    def outcomes(self) -> list[ReportOutcome]:
        return [message for message in self.sent if isinstance(message, ReportOutcome)]

    @property
    def incidents(self) -> list[IncidentRecord]:
        return [record(item, IncidentRecord) for item in self.kept("incidents") if item.id != "ledger"]

    @property
    def records(self) -> dict[tuple[str, str], Item]:
        return {(store, record_id): item for store, kept in self.stores.items() for record_id, item in kept.items()}

    def kept(self, store: str) -> list[Item]:
        return list(self.stores[store].values())

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
            origin = Origin(message_id=message_id, run=run, project=PROJECT, task_id=task_id)
            memory = Memory(self.transport, "lineage", origin, self.now)
            run += 1
            try:
                commit: Commit = await self.handlers[type(message)](message, memory)
                if (commit.writes or commit.messages or memory.stepped) and not memory.finished:
                    await memory.step(commit)
                return
            except Conflict:
                self.conflicts += 1
                assert run < 50

    async def wait(self, seconds: float) -> None:
        """Time passes, and timers come due."""
        until = self.now + timedelta(seconds=seconds)
        while due := sorted((timer for timer in self.timers if timer[0] <= until), key=lambda timer: timer[0]):
            self.timers.remove(due[0])
            self.now = max(self.now, due[0][0])
            await self.deliver(parse(due[0][1].TYPE, json.loads(due[0][1].model_dump_json())))
        self.now = until

    def ended(self, task_id: str, state: str) -> RecordsChanged:
        """The end of a task: its record, and what the manager's commit says of it."""
        times = {"created_at": NOW, "updated_at": self.now, "ended_at": self.now, "submitted_at": NOW}
        named = {"task_id": task_id, "session_id": "s", "project": PROJECT, "submitted_by": "lineage"}
        task = Task.model_validate({**named, **times, "kind": "troubleshoot", "state": state, "description": "-"})
        self.write("tasks", task_id, task.model_dump(mode="json", exclude_none=True))
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
        self.write("links", said.link_id, said.model_dump(mode="json", exclude_none=True))
        return self._linked(said.link_id)

    def unmerged(self, whole: str, part: str) -> RecordsChanged:
        """The undoing of it."""
        del self.stores["links"][link_id(whole, part)]
        return self._linked(link_id(whole, part))

    def _linked(self, record_id: str) -> RecordsChanged:
        written = Ref(store="links", id=record_id, version=1)
        return RecordsChanged(commit_id=new_id(), service="router", project=PROJECT, writes=(written,), at=self.now)

    def principal(self, token: str = TOKEN, **more: Any) -> Principal:
        """A principal with that token."""
        given = {"name": f"name of {token}", "kind": "system", "projects": ("*",), "roles": ("report", "read")} | more
        known = Principal(**given)
        self.write("principals", hashlib.sha256(token.encode()).hexdigest(), known.model_dump(mode="json"))
        return known

    def client(self, token: str | None = TOKEN) -> httpx.AsyncClient:
        """A client of the HTTP API."""
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(application(self.memory, self.limits)),
            base_url="http://lineage",
            headers={"Authorization": f"Bearer {token}"} if token else {},
        )

    def memory(self, project: str, principal: str | None) -> Memory:
        origin = Origin(message_id=new_id(), fence=1, project=project, principal=principal)
        return Memory(self.transport, "lineage", origin, self.now)

    # what memory does

    async def transport(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        await asyncio.sleep(0)
        if self.away:
            raise Away("no answer")
        self.requests += 1
        try:
            if subject.endswith(".query"):
                asked = QueryRequest.model_validate_json(body)
                self.queries += len(asked.queries)
                if asked.names:
                    names = tuple(kept(name, _fingerprint) for name in asked.names)
                    return QueryReply(names=names).model_dump_json().encode()
                reply = QueryReply(found=tuple(self._answer(asked.origin, query) for query in asked.queries))
                assert len(reply.model_dump_json()) < 1 << 20
                return reply.model_dump_json().encode()
            request = CommitRequest.model_validate_json(body)
            if self.before_commit:
                meanwhile, self.before_commit = self.before_commit, None
                await meanwhile()
            return self._apply(request.origin, request.commit).model_dump_json().encode()
        except Denied as denied:
            refusal = Refusal(kind="denied", code=denied.rule, needed=denied.needed)
        except Permanent as refused:
            problems = tuple(problem.model_dump() for problem in refused.problems)
            refusal = Refusal(kind="permanent", code=refused.code, problems=problems)
        if subject.endswith(".query"):
            return QueryReply(refusal=refusal).model_dump_json().encode()
        return CommitReply(status="refused", refusal=refusal).model_dump_json().encode()

    def _grant(self, origin: Origin) -> Any:
        known = [record(item, Principal) for item in self.kept("principals")]
        principal = next((one for one in known if one.name == origin.principal), None)
        asked = diode.Asked("lineage", origin.project, origin.task_id, origin.message_id, self.now)
        return diode.standing(policy(), asked, principal)

    def _answer(self, origin: Origin, query: Any) -> QueryResult:
        if rule := diode.read(policy(), self._grant(origin), query.store):
            raise Denied(rule, f"the right to read {query.store}")
        match query:
            case Get():
                item = self.stores[query.store].get(query.id)
                return _found([item] if item else [])
            case List():
                kept = [item for item in self.kept(query.store)[::-1] if _contains(item.body, query.where)]
                kept = [item for item in kept if query.cursor is None or item.seq < query.cursor]
                page = kept[: query.limit]
                return _found(page, page[-1].seq if len(kept) > len(page) else None)
            case EdgeWalk():
                return _found(self._walk(query))
        raise AssertionError(f"lineage does not ask {query.op}")

    def _walk(self, query: EdgeWalk) -> list[Item]:
        of, to = ("source", "target") if query.direction == "down" else ("target", "source")
        reached: dict[str, Item] = {}
        ahead, been = set(query.start), set[str]()
        kept = self.kept(query.store)
        for _ in range(query.depth):
            been |= ahead
            fresh = [item for item in kept if item.body[of] in ahead]
            reached |= {item.id: item for item in fresh if item.id not in reached}
            ahead = {item.body[to] for item in fresh} - been
            if not ahead:
                break
        return list(reached.values())[: query.limit]

    def _apply(self, origin: Origin, commit: Commit) -> CommitReply:
        if known := self.applied.get((origin.message_id, commit.step)):
            return known.model_copy(update={"status": "replayed"})
        prepared: CommitPlan = prepare(
            policy(),
            self._grant(origin),
            origin,
            commit,
            now=self.now,
            caused_by=Provenance(),
            memories=Memories(),
            task_version=None,
        )
        for row in prepared.writes:
            item = self.stores[row.store].get(row.id)
            if row.expect != (item.version if item else 0):
                refusal = Refusal(kind="conflict", code="conflict", detail=f"{row.store}/{row.id}")
                return CommitReply(status="refused", refusal=refusal)
        for row in prepared.writes:
            assert row.body is not None
            self.write(row.store, row.id, json.loads(row.body))
            self.writes.append(f"{row.store}/{row.id}")
        for outgoing in commit.messages:
            message = Message.register[outgoing.type].model_validate(outgoing.data)
            if isinstance(message, LineageEvent):
                self.timers.append((outgoing.due_at or self.now, message))
            else:
                self.sent.append(message)
        self.applied[origin.message_id, commit.step] = prepared.reply
        return prepared.reply

    def write(self, store: str, record_id: str, body: dict[str, Any]) -> None:
        self.seq += 1
        known = self.stores[store].pop(record_id, None)  # what is written last stands last
        self.stores[store][record_id] = Item(
            store=store,
            id=record_id,
            project=PROJECT,
            version=(known.version if known else 0) + 1,
            body=body,
            author="lineage",
            label=1,
            integrity=2,
            seq=self.seq,
            at=self.now,
        )


def _found(items: list[Item], cursor: int | None = None) -> QueryResult:
    return QueryResult(items=tuple(items), tier="record", plan="-", took_us=0, next_cursor=cursor)


def _contains(body: Any, wanted: Any) -> bool:
    """As `@>` of PostgreSQL has it."""
    match wanted:
        case dict():
            return isinstance(body, dict) and all(k in body and _contains(body[k], v) for k, v in wanted.items())
        case list():
            return isinstance(body, list) and all(any(_contains(b, w) for b in body) for w in wanted)
        case _:
            return bool(body == wanted)


def _fingerprint(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:16]
