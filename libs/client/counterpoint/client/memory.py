"""Memory as a handler sees it: bound to one delivery of one inbound message."""

import base64
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from counterpoint.guard.names import replaced, suspects
from counterpoint.proto import subjects
from counterpoint.proto.commands import Command, CommandReply, CommandRequest, IssueGatewayToken
from counterpoint.proto.errors import Away, Conflict, CounterpointError, Denied, ErrorCode, Permanent, Transient
from counterpoint.proto.ids import derived_id
from counterpoint.proto.incidents import PastIncident
from counterpoint.proto.ingest import Document, Ingested, IngestReply, IngestRequest, Job, PutPart, PutReply
from counterpoint.proto.memory import (
    Commit,
    CommitReply,
    CommitRequest,
    Get,
    Item,
    List,
    MemoryQuery,
    Origin,
    QueryReply,
    QueryRequest,
    QueryResult,
    Refusal,
    TokenPurpose,
)
from counterpoint.proto.messages import PART_BYTES, Blob, Shape
from counterpoint.proto.providers import Provider

S = TypeVar("S")


class Transport(Protocol):
    """One request over the bus and its reply. Raises `Transient` when nobody answers in time."""

    async def __call__(self, subject: str, body: bytes, timeout_s: float) -> bytes: ...


def error_of(refusal: Refusal) -> CounterpointError:
    """The error that a refusal stands for, with its id."""
    error = _error_of(refusal)
    error.refusal = refusal.id
    return error


def _error_of(refusal: Refusal) -> CounterpointError:
    match refusal.kind:
        case "transient" if refusal.code == ErrorCode.AWAY:
            return Away(refusal.detail)
        case "transient":
            return Transient(f"{refusal.code}: {refusal.detail}")
        case "denied":
            return Denied(refusal.code, refusal.needed)
        case "conflict":
            store, _, record_id = refusal.detail.partition("/")
            return Conflict(store, record_id)
        case "permanent":
            return Permanent(refusal.code, refusal.problems)


class Memory:
    """Queries and commits on behalf of one delivery.

    `now` is the time of the inbound message, so that a redelivery and a replay decide alike. `applied` is called after
    each step with its reply.
    """

    def __init__(
        self,
        transport: Transport,
        caller: str,
        origin: Origin,
        now: datetime,
        *,
        inbound: tuple[str | None, str | None, Any] | None = None,
        query_timeout_s: float = 5.0,
        commit_timeout_s: float = 5.0,
        applied: Callable[[Origin, Commit, CommitReply], None] | None = None,
    ) -> None:
        self._transport = transport
        self._caller = caller
        self._query_timeout_s = query_timeout_s
        self._commit_timeout_s = commit_timeout_s
        self._reads = 0
        self._steps = 0
        self._finished = False
        self._inbound = inbound
        self._applied = applied
        self.origin = origin
        self.now = now

    @property
    def project(self) -> str:
        """The project of the inbound message."""
        return self.origin.project

    @property
    def task_id(self) -> str | None:
        """The task of the inbound message, when it has one."""
        return self.origin.task_id

    @property
    def event(self) -> tuple[str, str] | None:
        """`ce-source` and `ce-id` of the inbound message, when its sender gave them."""
        source, event_id, _ = self._inbound or (None, None, None)
        return (source, event_id) if source and event_id else None

    @property
    def request_id(self) -> str | None:
        """The `Nats-Msg-Id` of an inbound message that is no CloudEvent, when its sender gave one."""
        source, event_id, _ = self._inbound or (None, None, None)
        return event_id if event_id and not source else None

    @property
    def body(self) -> Any:
        """The inbound message's body as it came, with what its model does not know."""
        return self._inbound[2] if self._inbound else None

    @property
    def stepped(self) -> bool:
        """Whether this run of the handler has applied a step already."""
        return self._steps > 0

    def id(self, *parts: str | int) -> str:
        """An id fixed by the inbound message and `parts`: the same again on a redelivery."""
        return derived_id(self.origin.message_id, *parts)

    @property
    def finished(self) -> bool:
        """Whether this run of the handler has applied its last step."""
        return self._finished

    async def query(self, *queries: MemoryQuery, timeout_s: float | None = None) -> tuple[QueryResult, ...]:
        """Answers in the order of the queries, from one snapshot. Raises `Transient` or `Denied`."""
        request = QueryRequest(origin=self.origin, queries=queries)
        timeout_s = timeout_s or self._query_timeout_s
        raw = await self._transport(subjects.query(self._caller), _dump(request), timeout_s)
        reply = QueryReply.model_validate_json(raw)
        if reply.refusal is not None:
            raise error_of(reply.refusal)
        self._reads += 1
        return reply.found

    async def gateway_token(self, purpose: TokenPurpose) -> str:
        """A token for calls of the gateway, made for what this delivery has read until now: ask again for each call.

        With one for the web all that is committed from then on is untrusted. Raises `Denied` (`label`, `gateway`,
        `ended`), or `Transient`.
        """
        reply = await self.command(IssueGatewayToken(purpose=purpose, reads=self._reads))
        if reply.token is None:
            raise Transient("memory returned no token")
        if purpose == "web":
            self._reads += 1
        return reply.token

    async def harmless(self, value: S) -> S:
        """A value without what is secret in the names it holds: see `counterpoint.guard.names`.

        Memory is asked where there is any. Raises like `query`.
        """
        found = sorted(suspects(value))
        if not found:
            return value
        request = QueryRequest(origin=self.origin, names=tuple(found))
        raw = await self._transport(subjects.query(self._caller), _dump(request), self._query_timeout_s)
        reply = QueryReply.model_validate_json(raw)
        if reply.refusal is not None:
            raise error_of(reply.refusal)
        return replaced(value, dict(zip(found, reply.names, strict=True)))

    async def get(self, store: str, record_id: str) -> Item | None:
        """One record, or None when there is none."""
        (found,) = await self.query(Get(store=store, id=record_id))
        return found.items[0] if found.items else None

    async def pages(self, query: List, first: QueryResult | None = None) -> AsyncIterator[QueryResult]:
        """A list to its end, a page a request; `first` is its first page where that was asked for among others.

        A page may hold less than the query's limit: what the bus carries. Raises like `query`.
        """
        page = first or (await self.query(query))[0]
        yield page
        while page.next_cursor is not None:
            (page,) = await self.query(query.model_copy(update={"cursor": page.next_cursor}))
            yield page

    async def step(self, commit: Commit) -> CommitReply:
        """Apply a commit once. Raises `Conflict`, `Denied`, `Permanent` or `Transient`."""
        request = CommitRequest(origin=self.origin, reads=self._reads, commit=commit)
        raw = await self._transport(subjects.commit(self._caller), _dump(request), self._commit_timeout_s)
        reply = CommitReply.model_validate_json(raw)
        if reply.refusal is not None:
            raise error_of(reply.refusal)
        self._steps += 1
        self._finished = commit.last
        if self._applied is not None:
            self._applied(self.origin, commit, reply)
        return reply

    async def command(self, command: Command) -> CommandReply:
        """Have memory execute a command. Raises like `step`."""
        request = CommandRequest(origin=self.origin, command=command)
        timeout_s = max(self._query_timeout_s, self._commit_timeout_s)
        raw = await self._transport(subjects.command(self._caller), _dump(request), timeout_s)
        reply = CommandReply.model_validate_json(raw)
        if reply.refusal is not None:
            raise error_of(reply.refusal)
        return reply

    async def ingest(
        self, documents: Sequence[Document], timeout_s: float = 120.0, *, job: Job | None = None
    ) -> tuple[Ingested, ...]:
        """Hand documents to memory; a large one goes ahead in parts. Raises like `step`."""
        light = tuple([await self._light(document) for document in documents])
        request = IngestRequest(origin=self.origin, documents=light, job=job)
        raw = await self._transport(subjects.ingest(self._caller), _dump(request), timeout_s)
        reply = IngestReply.model_validate_json(raw)
        if reply.refusal is not None:
            raise error_of(reply.refusal)
        return reply.documents

    async def hand_in(
        self,
        *,
        incidents: Sequence[PastIncident] = (),
        providers: Sequence[Provider] = (),
        timeout_s: float = 120.0,
    ) -> IngestReply:
        """Hand past incidents and rows of the provider index to memory. Raises like `step`."""
        request = IngestRequest(origin=self.origin, incidents=tuple(incidents), providers=tuple(providers))
        raw = await self._transport(subjects.ingest(self._caller), _dump(request), timeout_s)
        reply = IngestReply.model_validate_json(raw)
        if reply.refusal is not None:
            raise error_of(reply.refusal)
        return reply

    async def upload(self, content: bytes) -> Blob:
        """Put content into memory in parts; what is there already is not sent again. Raises like `step`."""
        sha256 = hashlib.sha256(content).hexdigest()
        reply = await self._put(PutPart(origin=self.origin, sha256=sha256, bytes=len(content), part=0))
        missing = sorted(set(range(-(-len(content) // PART_BYTES))) - set(reply.received))
        for part in missing:
            piece = base64.b64encode(content[part * PART_BYTES : (part + 1) * PART_BYTES])
            reply = await self._put(
                PutPart(origin=self.origin, sha256=sha256, bytes=len(content), part=part, content=piece)
            )
        if reply.blob is None:
            raise Transient("parts of the upload were lost")
        return reply.blob

    async def _put(self, part: PutPart) -> PutReply:
        raw = await self._transport(subjects.put(self._caller), _dump(part), self._query_timeout_s)
        reply = PutReply.model_validate_json(raw)
        if reply.refusal is not None:
            raise error_of(reply.refusal)
        return reply

    async def _light(self, document: Document) -> Document:
        content = document.content if document.content is not None else document.text.encode(errors="replace")
        if len(content) <= PART_BYTES:
            return document
        return document.model_copy(update={"text": "", "content": None, "blob": await self.upload(content)})


def _dump(value: Shape) -> bytes:
    return value.model_dump_json(exclude_none=True).encode()
