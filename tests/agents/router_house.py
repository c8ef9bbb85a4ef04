"""A memory service in a dictionary, under the real policy, with what the router relies on.

The router talks to it through its real client: versions, conflicts, the log, principals. Searches are by shared words.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from counterpoint.bus.codec import Inbound
from counterpoint.bus.fair_limiter import FairLimiter
from counterpoint.client import Memory, record
from counterpoint.guard.capabilities import Grant
from counterpoint.guard.names import kept
from counterpoint.guard.policy import policy
from counterpoint.memory.access import diode
from counterpoint.proto import subjects
from counterpoint.proto.commands import CommandReply, CommandRequest, RetryDeadLetter
from counterpoint.proto.errors import Away, Conflict, CounterpointError, Denied, Permanent, Problem
from counterpoint.proto.ids import derived_id, new_id
from counterpoint.proto.ingest import Ingested, IngestReply, IngestRequest, Recorded
from counterpoint.proto.line import Action
from counterpoint.proto.memory import (
    AuditLeaves,
    Checkpoints,
    CommitReply,
    CommitRequest,
    Cypher,
    EdgeWalk,
    Explain,
    Get,
    HybridSearch,
    Item,
    Line,
    List,
    LogAfter,
    Origin,
    Outgoing,
    Prove,
    QueryReply,
    QueryRequest,
    QueryResult,
    Rebuild,
    Reembed,
    Refusal,
    VectorSearch,
    Verify,
    Write,
)
from counterpoint.proto.messages import Message
from counterpoint.proto.principals import Principal
from counterpoint.proto.validation import parse
from counterpoint.router.authentication import token_id
from counterpoint.router.handlers import register

NOW = datetime(2026, 3, 2, 3, 0, 1, tzinfo=UTC)
PROJECT = "orders"
SYSTEM = "_system"
AUDITED = ("verify", "prove", "checkpoints", "leaves", "explain")
ROLES = ("submit", "report", "read", "ingest", "override", "approve", "operate", "audit", "admin")


@dataclass
class House:
    """Projects with a router in front. `log` is all that was sent; `looked_at` is set when a task's record is read."""

    now: datetime = NOW
    records: dict[tuple[str, str, str], Item] = field(default_factory=dict)
    log: list[Item] = field(default_factory=list)
    timers: dict[str, Outgoing] = field(default_factory=dict)
    ingested: list[IngestRequest] = field(default_factory=list)
    handlers: dict[str, Any] = field(default_factory=dict)
    announce: Any = None
    seqs: dict[str, int] = field(default_factory=dict)
    forgotten: dict[str, int] = field(default_factory=dict)
    heard: Callable[[str, dict[str, str]], None] = lambda subject, headers: None
    before_commit: Callable[[], None] | None = None
    away: bool = False
    reply_limit: int = 1000
    looked_at: asyncio.Event = field(default_factory=asyncio.Event)
    report: dict[str, Any] = field(default_factory=dict)
    asked: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        register(self, timedelta(days=1), FairLimiter(1000))  # type: ignore[arg-type]

    # the service that the handlers are registered with

    def on(self, message_type: type[Message]) -> Any:
        assert message_type.TYPE in policy().consumed("router")
        return lambda handler: self.handlers.setdefault(message_type.TYPE, handler)

    def limit_intake(self, message_type: type[Message], limiter: FairLimiter) -> None:
        assert message_type.TYPE in self.handlers

    def on_rejected(self, announce: Any) -> None:
        self.announce = announce

    def memory(self, project: str, principal: str | None, message_id: str | None = None) -> Memory:
        origin = Origin(message_id=message_id or new_id(), fence=1, project=project, principal=principal)
        return Memory(self.transport, "router", origin, self.now)

    async def deliver(
        self,
        message_type: type[Message],
        body: Any,
        *,
        sequence: int = 1,
        event: tuple[str, str] | None = None,
        project: str = PROJECT,
        delivered: int = 1,
    ) -> str:
        """An intake message as the bus hands it on for the `delivered`-th time: `done`, or the code of its dead letter.

        Raises `Transient` when it is to be delivered again.
        """
        source, event_id = event or (None, None)
        inbound = Inbound(
            id=derived_id(new_id(lambda: int(NOW.timestamp() * 1e9)), "intake", sequence)
            if event is None
            else derived_id("intake", sequence),
            type=message_type.TYPE,
            project=project,
            subject=subjects.of(message_type.TYPE, project),
            body=body,
            time=self.now,
            trusted=False,
            source=source,
            event_id=event_id,
            fence=delivered,
            stream_sequence=sequence,
        )
        try:
            message = parse(message_type.TYPE, body)
            while True:
                memory = self._of(inbound)
                commit = await self.handlers[message_type.TYPE](message, memory)
                try:
                    if commit.writes or commit.messages:
                        await memory.step(commit)
                    return "done"
                except Conflict:
                    continue
        except Permanent as error:
            await self.bury(inbound, error)
            return error.code

    async def bury(self, inbound: Inbound, error: Permanent) -> None:
        """Announce a dead letter under the router's own standing."""
        grant = self._grant(Origin(message_id=inbound.id, project=inbound.project))
        for outgoing in self.announce(inbound, error):
            self._send(grant, inbound.id, outgoing, 99)

    def _of(self, inbound: Inbound) -> Memory:
        origin = Origin(message_id=inbound.id, fence=inbound.fence, project=inbound.project)
        known = (inbound.source, inbound.event_id, inbound.body)
        return Memory(self.transport, "router", origin, inbound.time, inbound=known)

    # what the tests look at and set up

    def principal(self, name: str, *roles: str, kind: str = "person", projects: Sequence[str] = ("*",)) -> str:
        """A principal with these roles, all of them when none is named; returns its token."""
        token = f"token-of-{name}"
        known = Principal.model_validate(
            {"name": name, "kind": kind, "projects": tuple(projects), "roles": roles or ROLES, "created_at": self.now}
        )
        self.put("principals", token_id(token), known.model_dump(mode="json", exclude_none=True), project=SYSTEM)
        return token

    def put(self, store: str, record_id: str, body: dict[str, Any], project: str = PROJECT) -> Item:
        known = self.records.get((project, store, record_id))
        made = Item(
            store=store,
            id=record_id,
            project=project if project != SYSTEM else "default",
            version=known.version + 1 if known else 1,
            body=body,
            author="test",
            label=1,
            integrity=2,
            seq=self._seq(project),
            at=self.now,
        )
        self.records[project, store, record_id] = made
        return made

    def of_type(self, message_type: type[Message], project: str = PROJECT) -> list[Any]:
        """The messages of a type that were sent, oldest first."""
        sent = [item for item in self.log if item.body["type"] == message_type.TYPE and item.project == project]
        return [message_type.model_validate(item.body["data"]) for item in sent]

    def forget(self, upto: int, project: str = PROJECT) -> None:
        """The log is no longer kept up to this place."""
        self.forgotten[project] = upto
        self.log = [item for item in self.log if item.project != project or item.seq > upto]

    def kept(self, store: str, project: str = PROJECT) -> dict[str, dict[str, Any]]:
        """The records of a store by id."""
        return {key[2]: item.body for key, item in self.records.items() if key[:2] == (project, store)}

    def line(self, task_id: str, project: str = PROJECT) -> list[Action]:
        found = [item for key, item in self.records.items() if key[:2] == (project, "actions")]
        said = [record(item, Action) for item in sorted(found, key=lambda item: item.seq)]
        return [action for action in said if action.task_id == task_id]

    def say(self, message: Message, project: str = PROJECT, author: str = "manager") -> Item:
        """A message of another service, in the log and live."""
        data = message.model_dump(mode="json", exclude_none=True)
        return self._logged(new_id(), project, message.TYPE, data, data.get("task_id"), author)

    # the memory service

    async def transport(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        if self.away:
            raise Away("memory is away")
        match subject.split(".")[2]:
            case "query":
                return self._answered(QueryReply, lambda: self._query(QueryRequest.model_validate_json(body)))
            case "commit":
                return self._answered(CommitReply, lambda: self._commit(CommitRequest.model_validate_json(body)))
            case "command":
                return self._answered(CommandReply, lambda: self._command(CommandRequest.model_validate_json(body)))
            case _:
                return self._answered(IngestReply, lambda: self._ingest(IngestRequest.model_validate_json(body)))

    def _answered(self, reply: Any, work: Callable[[], Any]) -> bytes:
        try:
            return work().model_dump_json(exclude_none=True).encode()  # type: ignore[no-any-return]
        except CounterpointError as error:
            more = {"status": "refused"} if reply is CommitReply else {}
            return reply(refusal=_refusal(error), **more).model_dump_json().encode()  # type: ignore[no-any-return]

    def _grant(self, origin: Origin) -> Grant:
        principal = None
        if origin.principal is not None:
            named = [Principal.model_validate(body) for body in self.kept("principals", SYSTEM).values()]
            live = [one for one in named if one.name == origin.principal and one.revoked_at is None]
            if not live:
                raise Denied("principal", "a principal that is known and not revoked")
            principal = live[0]
        asked = diode.Asked("router", origin.project, None, origin.message_id, datetime.now(UTC))
        return diode.standing(policy(), asked, principal)

    def _query(self, request: QueryRequest) -> QueryReply:
        grant = self._grant(request.origin)
        if request.names:
            return QueryReply(names=tuple(kept(name, _fingerprint) for name in request.names))
        found = tuple(self._found(grant, query) for query in request.queries)
        if sum(len(answer.items) for answer in found) > self.reply_limit:
            raise Permanent("too_large")
        return QueryReply(found=found)

    def _command(self, request: CommandRequest) -> CommandReply:
        grant, command = self._grant(request.origin), request.command
        self.asked.append(command)
        if not isinstance(command, RetryDeadLetter):
            rule = diode.read(policy(), grant, "projections")
            if rule is not None:
                raise Denied(rule, "the right to read projections")
            return CommandReply(report=self.report)
        rule = diode.write(policy(), grant, "dead_letters", "router", None, 1)
        if rule is not None:
            raise Denied(rule, "the right to write dead_letters")
        body = self.kept("dead_letters", grant.project)[command.id]
        if body["state"] != "dead":
            raise Permanent("conflict", (Problem(field="state", problem=f"is {body['state']}, not dead"),))
        marked = {"state": "retry", "retried_by": request.origin.principal, "retried_at": datetime.now(UTC).isoformat()}
        self.put("dead_letters", command.id, {**body, **marked}, grant.project)
        return CommandReply()

    def _found(self, grant: Grant, query: Any) -> QueryResult:
        named = {"line": "actions", "log_after": "actions"} | dict.fromkeys(AUDITED, "actions")
        named |= {"cypher": "projections", "rebuild": "projections", "reembed": "projections"}
        store = named.get(query.op) or query.store
        rule = diode.read(policy(), grant, store)
        if rule is not None:
            raise Denied(rule, f"the right to read {store}")
        project = SYSTEM if policy().stores[store].system else grant.project
        items = [item for key, item in self.records.items() if key[:2] == (project, store)]
        cursor = None
        match query:
            case Get():
                items = [item for item in items if item.id == query.id]
                if store == "tasks":
                    self.looked_at.set()
            case List():
                items = [item for item in items if _contains(item.body, query.where)]
                items = [item for item in items if query.task_id in (None, item.body.get("task_id"))]
                items.sort(key=lambda item: item.seq, reverse=not query.ascending)
                if query.cursor is not None:
                    items = [i for i in items if (i.seq > query.cursor if query.ascending else i.seq < query.cursor)]
                cursor = items[query.limit - 1].seq if len(items) > query.limit else None
                items = items[: query.limit]
            case Line():
                items = sorted(
                    (item for item in items if item.body["task_id"] == query.task_id),
                    key=lambda item: item.seq,
                    reverse=query.newest_first,
                )[: query.limit]
            case LogAfter():
                items = [item for item in self.log if item.project == project and item.seq > query.after]
                items = [item for item in items if item.body["subject"].split(".")[0] in query.kinds]
                items = [item for item in items if query.task_id in (None, item.body["task_id"])][: query.limit]
                gap = query.after < self.forgotten.get(project, 0)
                cursor = items[-1].seq if len(items) == query.limit else max(query.after, self.seqs.get(project, 0))
                return QueryResult(
                    items=tuple(items), tier="record", plan="log", took_us=0, next_cursor=cursor, gap=gap
                )
            case EdgeWalk():
                items = _walked(items, query)
            case HybridSearch() | VectorSearch():
                items = [item for item in items if all(item.body.get(k) == v for k, v in query.where.items())]
                items = _searched(items, query)
            case Cypher() | Rebuild() | Reembed():
                self.asked.append(query)
                return QueryResult(tier="graph", plan=query.op, took_us=7, report=self.report)
            case Verify() | Prove() | Checkpoints() | AuditLeaves() | Explain():
                return QueryResult(tier="record", plan="audit", took_us=0, report=self.report)
        return QueryResult(items=tuple(items), tier="record", plan="test", took_us=0, next_cursor=cursor)

    def _commit(self, request: CommitRequest) -> CommitReply:
        if self.before_commit is not None:
            meanwhile, self.before_commit = self.before_commit, None
            meanwhile()
        origin, commit = request.origin, request.commit
        grant, writes = self._grant(origin), list(commit.writes)
        for message in commit.messages:
            keep = policy().messages[message.type].keep
            if keep is not None:
                writes.append(Write(store=keep, id=message.data["decision_id"], body=message.data))
        system = {policy().stores[write.store].system for write in writes}
        assert len(system) <= 1
        project = SYSTEM if system == {True} else origin.project
        for write in writes:
            known = self.records.get((project, write.store, write.id))
            if (known.version if known else 0) != write.expect:
                raise Conflict(write.store, write.id, write.expect, known.version if known else 0)
            agent = (write.body or {}).get("agent", "router") if write.store in diode.ALWAYS else "router"
            rule = diode.write(policy(), grant, write.store, agent, None, 1)
            if rule is not None:
                raise Denied(rule, f"the right to write {write.store} as {agent}")
        for message in commit.messages:
            rule = diode.send(policy(), grant, message.type, message.task_id)
            if rule is not None:
                raise Denied(rule, f"the right to send {message.type}")
        for write in writes:
            if write.body is None:
                del self.records[project, write.store, write.id]
                continue
            self.put(write.store, write.id, write.body, project)
        for timer in commit.cancel_timers:
            self.timers.pop(timer, None)
        self.timers |= {each.timer: each for each in commit.messages if each.timer}
        sent = [self._send(grant, origin.message_id, each, place) for place, each in enumerate(commit.messages)]
        return CommitReply(status="done", message_ids=tuple(sent))

    def _send(self, grant: Grant, cause: str, outgoing: Outgoing, place: int) -> str:
        assert diode.send(policy(), grant, outgoing.type, outgoing.task_id) is None
        Message.register[outgoing.type].model_validate(outgoing.data)
        item = self._logged(
            derived_id(cause, place), grant.project, outgoing.type, outgoing.data, outgoing.task_id, grant.audience
        )
        return item.id

    def _logged(self, message_id: str, project: str, kind: str, data: Any, task_id: str | None, author: str) -> Item:
        subject = subjects.of(kind, project, agent=str(data.get("agent", "*")))
        about = {"type": kind, "subject": subject, "task_id": task_id, "data": data, "time": self.now.isoformat()}
        item = Item(
            store="messages",
            id=message_id,
            project=project,
            version=1,
            body=about,
            author=author,
            label=0,
            integrity=2,
            seq=self._seq(project),
            at=self.now,
        )
        self.log.append(item)
        self.heard(subjects.live(subject), {"ce-correlationid": task_id} if task_id else {})
        return item

    def _ingest(self, request: IngestRequest) -> IngestReply:
        self.ingested.append(request)
        return IngestReply(
            documents=tuple(Ingested(source=d.source, status="added") for d in request.documents),
            incidents=tuple(Recorded(id=f"past-{i.id}", status="added") for i in request.incidents),
            providers=tuple(Recorded(id=p.package, status="added") for p in request.providers),
        )

    def _seq(self, project: str) -> int:
        self.seqs[project] = self.seqs.get(project, 0) + 1
        return self.seqs[project]


def _contains(held: Any, wanted: Any) -> bool:
    """Whether JSON contains other JSON, as PostgreSQL's `@>` has it."""
    match held, wanted:
        case dict(), dict():
            return all(key in held and _contains(held[key], value) for key, value in wanted.items())
        case list(), list():
            return all(any(_contains(each, value) for each in held) for value in wanted)
        case _:
            return bool(held == wanted)


def _refusal(error: CounterpointError) -> Refusal:
    match error:
        case Denied():
            return Refusal(kind="denied", code=error.rule, needed=error.needed)
        case Permanent():
            return Refusal(kind="permanent", code=error.code, problems=error.problems)
        case Conflict():
            return Refusal(kind="conflict", code="conflict", detail=f"{error.store}/{error.record_id}")
        case _:
            return Refusal(kind="transient", code="transient", detail=str(error))


def _walked(edges: list[Item], query: EdgeWalk) -> list[Item]:
    of, to = ("source", "target") if query.direction == "down" else ("target", "source")
    found: dict[str, Item] = {}
    ahead = set(query.start)
    for _ in range(query.depth):
        step = [edge for edge in edges if edge.body[of] in ahead and edge.id not in found]
        found |= {edge.id: edge for edge in step}
        ahead = {edge.body[to] for edge in step}
    return list(found.values())[: query.limit]


def _searched(items: list[Item], query: Any) -> list[Item]:
    words = set(query.text.lower().split())
    scored = []
    for item in items:
        own = set(" ".join(str(value) for value in item.body.values()).lower().split())
        if shared := len(words & own) / len(words):
            scored.append(item.model_copy(update={"score": shared, "scores": {"cosine": shared}}))
    return sorted(scored, key=lambda item: -(item.score or 0))[: query.k]


__all__ = ["NOW", "PROJECT", "House"]


def _fingerprint(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:16]
