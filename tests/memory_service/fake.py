"""The memory service in dictionaries, for tests of the services around it.

Policy, diode, planner, write filter and read sets are memory's own; the engines are not there. `MemoryContract` holds
for it and for the service alike.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from inspect import isawaitable
from typing import Any

from counterpoint.bus.codec import Inbound
from counterpoint.client import Memory
from counterpoint.guard import names
from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import policy
from counterpoint.memory.access import diode
from counterpoint.memory.commit.planner import plan_commit
from counterpoint.memory.provenance.read_sets import ReadSets
from counterpoint.memory.query.answer_cache import answer_of
from counterpoint.memory.record.plan import SYSTEM, CommitPlan
from counterpoint.memory.record.stamps import Provenance
from counterpoint.proto import subjects
from counterpoint.proto.commands import CommandReply, CommandRequest
from counterpoint.proto.delegations import Delegation, as_deputy
from counterpoint.proto.errors import Away, Conflict, CounterpointError, Denied, Permanent
from counterpoint.proto.ids import new_id
from counterpoint.proto.ingest import DocumentResult, IngestReply, IngestRequest, RecordResult
from counterpoint.proto.memory import (
    Commit,
    CommitReply,
    CommitRequest,
    EdgeWalk,
    Get,
    HybridSearch,
    Item,
    Line,
    List,
    LogAfter,
    MemoryQuery,
    Origin,
    QueryReply,
    QueryRequest,
    QueryResult,
    Ref,
    Refusal,
    VectorSearch,
)
from counterpoint.proto.messages import Message
from counterpoint.proto.principals import Principal
from counterpoint.proto.providers import plain_text
from counterpoint.proto.tasks import ENDED


@dataclass(frozen=True)
class SentMessage:
    """A message of an applied commit, with the version of its task's record where it carries one."""

    id: str
    project: str
    type: str
    data: Any
    task_id: str | None
    author: str
    seq: int
    at: datetime
    version: int | None = None
    due_at: datetime | None = None
    timer: str | None = None

    @property
    def message(self) -> Message:
        """The message as its model."""
        return Message.register[self.type].model_validate(self.data)

    @property
    def name(self) -> str:
        """The name of its class."""
        return Message.register[self.type].__name__

    @property
    def subject(self) -> str:
        """Its subject on the bus."""
        agent = self.data.get("agent") if isinstance(self.data, dict) else None
        return subjects.of(self.type, self.project, agent=agent or "*")

    @property
    def item(self) -> Item:
        """Its entry in the message log."""
        body = {"type": self.type, "subject": self.subject, "task_id": self.task_id, "data": json.dumps(self.data)}
        item = _item("messages", self.id, self.project, {**body, "time": self.at.isoformat()}, self.seq, self.at)
        return item.model_copy(update={"author": self.author})


@dataclass
class FakeMemory:
    """Projects of one caller, by default of `project`.

    `log` holds every message sent, `timers` those not due yet and those to the caller itself. Work on a message has a
    capability where its type is known (`deliveries`), else the caller's standing.
    """

    caller: str
    project: str
    now: datetime
    records: dict[tuple[str, str, str], Item] = field(default_factory=dict)
    log: list[SentMessage] = field(default_factory=list)
    timers: list[SentMessage] = field(default_factory=list)
    written: list[Ref] = field(default_factory=list)
    queries: list[MemoryQuery] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    ingested: list[IngestRequest] = field(default_factory=list)
    deliveries: dict[str, str] = field(default_factory=dict)
    requests: int = 0
    away: bool = False
    reply_limit: int = 1000
    before_commit: Callable[[], Any] | None = None
    heard: Callable[[str, dict[str, str]], None] = lambda subject, headers: None
    applied: dict[tuple[str, str], CommitReply] = field(default_factory=dict)
    _seqs: dict[str, int] = field(default_factory=dict)
    _forgotten: dict[str, int] = field(default_factory=dict)
    _reads: ReadSets = field(default_factory=lambda: ReadSets(100_000))

    def memory(
        self,
        message_id: str | None = None,
        *,
        type: str | None = None,
        project: str | None = None,
        task_id: str | None = None,
        principal: str | None = None,
        fence: int = 1,
        run: int = 0,
        now: datetime | None = None,
        inbound: Inbound | None = None,
    ) -> Memory:
        """Return the client of one delivery; with `type` it holds the capability of such a message."""
        message_id = message_id or new_id()
        if type is not None:
            self.deliveries[message_id] = type
        origin = Origin(
            message_id=message_id,
            fence=fence,
            run=run,
            project=project or self.project,
            task_id=task_id,
            principal=principal,
        )
        sender = (inbound.source, inbound.event_id, inbound.body) if inbound else None
        return Memory(self.transport, self.caller, origin, now or self.now, inbound=sender)

    # the records, as a test sees and sets them

    def put(
        self,
        store: str,
        record_id: str,
        body: dict[str, Any],
        project: str | None = None,
        *,
        author: str = "test",
        label: int = 1,
        integrity: int = 2,
    ) -> Item:
        """Write a record past all rules."""
        project = SYSTEM if policy().stores[store].system else project or self.project
        known = self.records.pop((project, store, record_id), None)
        seq = self._next(project)
        made = _item(store, record_id, project, json.loads(json.dumps(body)), seq, self.now).model_copy(
            update={
                "version": known.version + 1 if known else 1,
                "author": author,
                "label": label,
                "integrity": integrity,
            }
        )
        self.records[project, store, record_id] = made
        return made

    def item(self, store: str, record_id: str, project: str | None = None) -> Item | None:
        """Return a record, None without one."""
        return self.records.get((self._place(store, project or self.project), store, record_id))

    def one(self, store: str, record_id: str) -> Item:
        """Return a record that must be there."""
        found = self.item(store, record_id)
        assert found is not None, f"{store}/{record_id}"
        return found

    def items(self, store: str, project: str | None = None) -> list[Item]:
        """Return the records of a store, the oldest first."""
        place = self._place(store, project or self.project)
        return sorted((i for k, i in self.records.items() if k[:2] == (place, store)), key=lambda item: item.seq)

    def kept(self, store: str, project: str | None = None) -> dict[str, dict[str, Any]]:
        """Return the bodies of a store by id."""
        return {item.id: item.body for item in self.items(store, project)}

    def drop(self, store: str, record_id: str, project: str | None = None) -> None:
        """Delete a record past all rules."""
        del self.records[self._place(store, project or self.project), store, record_id]

    def version(self, task_id: str) -> int:
        """Return the version of a task's record, 0 without one."""
        item = self.item("tasks", task_id)
        return item.version if item else 0

    def send(self, message: Message, project: str | None = None, *, author: str = "manager") -> SentMessage:
        """Add a message of another service to the log."""
        data = message.model_dump(mode="json", exclude_none=True)
        return self._log(new_id(), project or self.project, message.TYPE, data, data.get("task_id"), author)

    def forget(self, upto: int | None = None, project: str | None = None) -> None:
        """Delete the log of a project up to a place, by default all of it."""
        project = project or self.project
        upto = self._seqs.get(project, 0) if upto is None else upto
        self._forgotten[project] = upto
        self.log = [sent for sent in self.log if sent.project != project or sent.seq > upto]

    def _named(self, name: str) -> Principal | None:
        named = (Principal.model_validate(item.body) for item in self.items("principals"))
        return next((one for one in named if one.name == name and one.revoked_at is None), None)

    def principal(self, token_id: str, **fields: Any) -> Principal:
        """Make a principal, known by the hash of its token."""
        made = Principal.model_validate({"created_at": self.now, **fields})
        self.put("principals", token_id, made.model_dump(mode="json", exclude_none=True))
        return made

    # the service

    async def transport(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        """Answer a request as memory does."""
        if self.away:
            raise Away("memory is away")
        self.requests += 1
        kind = subject.split(".")[2]
        replies: dict[str, Any] = {"query": QueryReply, "commit": CommitReply, "command": CommandReply}
        reply = replies.get(kind, IngestReply)
        try:
            match kind:
                case "query":
                    made: Any = await self._query(QueryRequest.model_validate_json(body))
                case "commit":
                    made = await self._commit(CommitRequest.model_validate_json(body))
                case "command":
                    made = self.command(CommandRequest.model_validate_json(body))
                case _:
                    made = self._ingest(IngestRequest.model_validate_json(body))
        except CounterpointError as error:
            refused = {"status": "refused"} if reply is CommitReply else {}
            made = reply(refusal=_refusal(error), **refused)
        return made.model_dump_json(exclude_none=True).encode()  # type: ignore[no-any-return]

    def grant(self, origin: Origin) -> Grant:
        """Return what a delivery may do. Raises `Denied`."""
        known = self.deliveries.get(origin.message_id)
        if known is not None and self.caller in policy().messages[known].audience:
            ends = self.now + timedelta(hours=1)
            return diode.capability(
                policy(), known, self.caller, origin.project, origin.task_id, origin.message_id, ends
            )
        principal = None
        if origin.principal is not None:
            principal = self._named(origin.principal)
            if principal is None:
                raise Denied("principal", "a principal that is known and not revoked")
            delegated = (Delegation.model_validate(item.body) for item in self.items("delegations", origin.project))
            if any(
                one.to == principal.name and one.holds(self._named(one.by), principal, self.now) for one in delegated
            ):
                principal = as_deputy(principal, origin.project)
        asked = diode.AccessRequest(self.caller, origin.project, None, origin.message_id, self.now)
        return diode.standing(policy(), asked, principal)

    async def search(self, query: Any, items: list[Item]) -> list[Item]:
        """Return the items that share words with the query, scored; a subclass may know better."""
        words = set(query.text.lower().split())
        scored = []
        for item in items:
            own = set(" ".join(str(value) for value in item.body.values()).lower().split())
            if shared := len(words & own) / len(words):
                scored.append(item.model_copy(update={"score": shared, "scores": {"cosine": shared}}))
        return sorted(scored, key=lambda item: -(item.score or 0))[: query.k]

    def reported(self, grant: Grant, query: Any) -> QueryResult:
        """Answer a query of an operator or auditor; a subclass may."""
        raise AssertionError(f"{self.caller} sends no {query.op}")

    def command(self, request: CommandRequest) -> CommandReply:
        """Execute a command; a subclass may."""
        raise AssertionError(f"{self.caller} sends no {request.command.op}")

    async def _query(self, request: QueryRequest) -> QueryReply:
        grant = self.grant(request.origin)
        if request.names:
            return QueryReply(names=tuple(names.redact_name(name, _fingerprint) for name in request.names))
        self.queries += request.queries
        found = tuple([await self._result(grant, query) for query in request.queries])
        if sum(len(answer.items) for answer in found) > self.reply_limit:
            raise Permanent("too_large")
        seen = [answer_of(answer).to(query) for answer, query in zip(found, request.queries, strict=True)]
        self._reads.note(self._key(request.origin), seen)
        return QueryReply(found=found)

    async def _result(self, grant: Grant, query: MemoryQuery) -> QueryResult:
        store = getattr(query, "store", None) or {"line": "actions", "log_after": "actions"}.get(query.op)
        if store is None:
            return self.reported(grant, query)
        rule = diode.read(policy(), grant, store)
        if rule is not None:
            raise Denied(rule, f"the right to read {store}")
        if self._ended(grant.task) and diode.read_after_end(policy(), self.deliveries.get(grant.message), store):
            raise Denied("ended", "a task that has not ended")
        if isinstance(query, LogAfter):
            return self._logged(grant, query)
        items = self.items(store, grant.project)
        items = [item for item in items if diode.visible(policy(), grant, store, item.id, grant.project, item.label)]
        match query:
            case Get():
                return _result([item for item in items if item.id == query.id])
            case List():
                items = [item for item in items if _contains(item.body, query.where)]
                items = [item for item in items if query.named_in is None or _is_named_in(item.body, query.named_in)]
                items = [item for item in items if query.task_id in (None, item.body.get("task_id"))]
                items = items if query.ascending else items[::-1]
                if (at := query.cursor) is not None:
                    items = [item for item in items if (item.seq > at if query.ascending else item.seq < at)]
                page = items[: query.limit]
                return _result(page, page[-1].seq if len(items) > len(page) else None)
            case Line():
                items = [item for item in items if item.body["task_id"] == query.task_id]
                return _result((items[::-1] if query.newest_first else items)[: query.limit])
            case EdgeWalk():
                return _result(_walked(items, query))
            case HybridSearch() | VectorSearch():
                items = [item for item in items if query.where.items() <= item.body.items()]
                return _result(await self.search(query, items))
            case _:
                return self.reported(grant, query)

    def _logged(self, grant: Grant, query: LogAfter) -> QueryResult:
        items = [sent.item for sent in self.log if sent.project == grant.project and sent.seq > query.after]
        items = [item for item in items if item.body["subject"].split(".")[0] in query.kinds]
        items = [item for item in items if query.task_id in (None, item.body["task_id"])][: query.limit]
        last = self._seqs.get(grant.project, 0)
        cursor = items[-1].seq if len(items) == query.limit else max(query.after, last)
        return _result(items, cursor, gap=query.after < self._forgotten.get(grant.project, 0))

    async def _commit(self, request: CommitRequest) -> CommitReply:
        if self.before_commit is not None:
            meanwhile, self.before_commit = self.before_commit, None
            waiting = meanwhile()
            if isawaitable(waiting):
                await waiting
        origin, commit = request.origin, request.commit
        if known := self.applied.get((origin.message_id, commit.step)):
            return known.model_copy(update={"status": "replayed"})
        grant = self.grant(origin)
        plan = plan_commit(
            policy(),
            grant,
            origin,
            commit,
            now=self.now,
            caused_by=Provenance(type=self.deliveries.get(origin.message_id)),
            memories=self._reads.so_far(self._key(origin), 0),
            task_version=None,
        )
        self._check(plan)
        self._apply(plan, commit)
        self.applied[origin.message_id, commit.step] = plan.reply
        return plan.reply

    def _check(self, plan: CommitPlan) -> None:
        if self._ended(plan.task_id) and not plan.ended_ok:
            raise Denied("ended", "a task that has not ended")
        for row in plan.writes:
            known = self.records.get((plan.project, row.store, row.id))
            if row.expect != (known.version if known else 0):
                raise Conflict(row.store, row.id)

    def _ended(self, task_id: str | None) -> bool:
        task = self.item("tasks", task_id) if task_id else None
        return task is not None and task.body.get("state") in ENDED

    def _apply(self, plan: CommitPlan, commit: Commit) -> None:
        self.commits.append(commit)
        for row in plan.writes:
            if row.body is None:
                del self.records[plan.project, row.store, row.id]
            else:
                self.put(
                    row.store,
                    row.id,
                    json.loads(row.body),
                    plan.project,
                    author=row.author,
                    label=row.label,
                    integrity=row.integrity,
                )
            self.written.append(Ref(store=row.store, id=row.id, version=row.expect + 1))
        self.timers = [timer for timer in self.timers if timer.timer not in commit.cancel_timers]
        for message in plan.messages[: len(commit.messages)]:
            self._log(
                message.id,
                plan.project,
                message.type,
                json.loads(message.body),
                message.task_id,
                plan.consumer,
                version=self.version(message.task_id or "") if message.versioned else None,
                due_at=message.due_at or (self.now if self.caller in message.audience else None),
                timer=message.timer,
            )

    def _log(
        self, message_id: str, project: str, type: str, data: Any, task_id: str | None, author: str, **more: Any
    ) -> SentMessage:
        Message.register[type].model_validate(data)
        seq = self._next(project)
        sent = SentMessage(message_id, project, type, data, task_id, author, seq, self.now, **more)
        (self.timers if sent.timer or sent.due_at else self.log).append(sent)
        self.heard(subjects.live(sent.subject), {"ce-correlationid": task_id} if task_id else {})
        return sent

    def _ingest(self, request: IngestRequest) -> IngestReply:
        self.ingested.append(request)
        return IngestReply(
            documents=tuple(DocumentResult(source=one.source, status="added") for one in request.documents),
            incidents=tuple(RecordResult(id=f"past-{one.id}", status="added") for one in request.incidents),
            providers=tuple(RecordResult(id=one.package, status="added") for one in request.providers),
            lessons=tuple(RecordResult(id=each.id, status="added") for one in request.lessons for each in one.attempts),
        )

    def _key(self, origin: Origin) -> tuple[str, str, int, int]:
        return self.caller, origin.message_id, origin.fence, origin.run

    def _place(self, store: str, project: str) -> str:
        return SYSTEM if policy().stores[store].system else project

    def _next(self, project: str) -> int:
        self._seqs[project] = self._seqs.get(project, 0) + 1
        return self._seqs[project]


def _item(store: str, record_id: str, project: str, body: dict[str, Any], seq: int, at: datetime) -> Item:
    return Item(
        store=store,
        id=record_id,
        project=project if project != SYSTEM else subjects.DEFAULT_PROJECT,
        version=1,
        body=body,
        author="test",
        label=0,
        integrity=2,
        seq=seq,
        at=at,
    )


def _result(items: Sequence[Item], cursor: int | None = None, *, gap: bool = False) -> QueryResult:
    return QueryResult(items=tuple(items), tier="record", plan="fake", took_us=0, next_cursor=cursor, gap=gap)


def _is_named_in(body: dict[str, Any], text: str) -> bool:
    names = (body.get("name", ""), *body.get("aliases", ()), *body.get("terms", ()))
    return any(f" {plain_text(name)} " in f" {plain_text(text)} " for name in names)


def _contains(held: Any, wanted: Any) -> bool:
    """Whether JSON contains other JSON, as `@>` of PostgreSQL."""
    match held, wanted:
        case dict(), dict():
            return all(key in held and _contains(held[key], value) for key, value in wanted.items())
        case list(), list():
            return all(any(_contains(each, value) for each in held) for value in wanted)
        case _:
            return bool(held == wanted)


def _walked(edges: list[Item], query: EdgeWalk) -> list[Item]:
    of, to = ("source", "target") if query.direction == "down" else ("target", "source")
    reached: dict[str, Item] = {}
    ahead, been = set(query.start), set[str]()
    for _ in range(query.depth):
        been |= ahead
        fresh = [edge for edge in edges if edge.body[of] in ahead]
        reached |= {edge.id: edge for edge in fresh if edge.id not in reached}
        ahead = {edge.body[to] for edge in fresh} - been
        if not ahead:
            break
    return list(reached.values())[: query.limit]


def _refusal(error: CounterpointError) -> Refusal:
    match error:
        case Denied():
            return Refusal(kind="denied", code=error.rule, needed=error.needed)
        case Permanent():
            problems = tuple(problem.model_dump() for problem in error.problems)
            return Refusal(kind="permanent", code=error.code, problems=problems)
        case Conflict():
            return Refusal(kind="conflict", code="conflict", detail=f"{error.store}/{error.record_id}")
        case _:
            return Refusal(kind="transient", code="transient", detail=str(error))


def _fingerprint(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:16]
