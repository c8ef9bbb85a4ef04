"""Client of the memory service, bound to one delivery of one inbound message."""

import base64
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from counterpoint.guard.names import replace_texts, texts_with_secrets
from counterpoint.proto import subjects
from counterpoint.proto.commands import Command, CommandReply, CommandRequest, IssueGatewayToken
from counterpoint.proto.errors import Away, Conflict, CounterpointError, Denied, ErrorCode, Permanent, Transient
from counterpoint.proto.ids import derived_id
from counterpoint.proto.incidents import PastIncident
from counterpoint.proto.ingest import Document, DocumentResult, IngestReply, IngestRequest, Job, PutPart, PutReply
from counterpoint.proto.lessons import PastLesson
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
_INGEST_TIMEOUT_S = 120.0


class Transport(Protocol):
    """A request over the bus that returns the reply. Raises `Transient` on a timeout."""

    async def __call__(self, subject: str, body: bytes, timeout_s: float) -> bytes: ...


def error_of(refusal: Refusal) -> CounterpointError:
    """Return the error of a refusal, with the id of the refusal."""
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

    `now` is the time of the inbound message, so that a redelivery and a replay make the same decision. `applied` is
    called after each step with its reply.
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
        """The task of the inbound message, if it has one."""
        return self.origin.task_id

    @property
    def event(self) -> tuple[str, str] | None:
        """`ce-source` and `ce-id` of the inbound message, if both are set."""
        source, event_id, _ = self._inbound or (None, None, None)
        return (source, event_id) if source and event_id else None

    @property
    def request_id(self) -> str | None:
        """The `Nats-Msg-Id` of an inbound message that is not a CloudEvent, if it is set."""
        source, event_id, _ = self._inbound or (None, None, None)
        return event_id if event_id and not source else None

    @property
    def body(self) -> Any:
        """The body of the inbound message as received, with fields unknown to its model."""
        return self._inbound[2] if self._inbound else None

    @property
    def stepped(self) -> bool:
        """Whether this run of the handler has applied a step."""
        return self._steps > 0

    def id(self, *parts: str | int) -> str:
        """Return an id derived from the inbound message and `parts`, the same on a redelivery."""
        return derived_id(self.origin.message_id, *parts)

    @property
    def finished(self) -> bool:
        """Whether this run of the handler has applied its last step."""
        return self._finished

    async def query(self, *queries: MemoryQuery, timeout_s: float | None = None) -> tuple[QueryResult, ...]:
        """Return the answers in the order of the queries, from one snapshot. Raises `Transient` or `Denied`."""
        if not queries:
            return ()
        request = QueryRequest(origin=self.origin, queries=queries)
        timeout_s = timeout_s or self._query_timeout_s
        raw = await self._transport(subjects.query(self._caller), _dump(request), timeout_s)
        reply = QueryReply.model_validate_json(raw)
        if reply.refusal is not None:
            raise error_of(reply.refusal)
        self._reads += 1
        return reply.found

    async def gateway_token(self, purpose: TokenPurpose) -> str:
        """Return a token for one call of the gateway, bound to what this delivery has read so far.

        After a token for the web all later commits are untrusted. Raises `Denied` (`label`, `gateway`,
        `ended`), or `Transient`.
        """
        reply = await self.command(IssueGatewayToken(purpose=purpose, reads=self._reads))
        if reply.token is None:
            raise Transient("memory returned no token")
        if purpose == "web":
            self._reads += 1
        return reply.token

    async def redact_names(self, value: S) -> S:
        """Return a value with the secrets in its names redacted: see `counterpoint.guard.names`.

        Memory redacts them, since the fingerprints need its key. Raises like `query`.
        """
        names = sorted(texts_with_secrets(value))
        if not names:
            return value
        request = QueryRequest(origin=self.origin, names=tuple(names))
        raw = await self._transport(subjects.query(self._caller), _dump(request), self._query_timeout_s)
        reply = QueryReply.model_validate_json(raw)
        if reply.refusal is not None:
            raise error_of(reply.refusal)
        return replace_texts(value, dict(zip(names, reply.names, strict=True)))

    async def get(self, store: str, record_id: str) -> Item | None:
        """Return a record, or None if there is none."""
        (result,) = await self.query(Get(store=store, id=record_id))
        return result.items[0] if result.items else None

    async def get_all(self, store: str, record_ids: Sequence[str]) -> list[Item]:
        """Return those of some records that exist, in as many replies as their size needs. Raises like `query`."""
        try:
            return [
                item
                for result in await self.query(*(Get(store=store, id=each) for each in record_ids))
                for item in result.items
            ]
        except Permanent as error:
            if error.code != ErrorCode.TOO_LARGE or len(record_ids) < 2:
                raise
        middle = len(record_ids) // 2
        return [
            *await self.get_all(store, record_ids[:middle]),
            *await self.get_all(store, record_ids[middle:]),
        ]

    async def pages(self, query: List, first: QueryResult | None = None) -> AsyncIterator[QueryResult]:
        """Yield all pages of a list; `first` is the first page if it has been read already.

        A page may have fewer items than the query's limit, so that it fits into a message. Raises like `query`.
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
        """Execute a command in memory and return its reply. Raises like `step`."""
        request = CommandRequest(origin=self.origin, command=command)
        timeout_s = max(self._query_timeout_s, self._commit_timeout_s)
        raw = await self._transport(subjects.command(self._caller), _dump(request), timeout_s)
        reply = CommandReply.model_validate_json(raw)
        if reply.refusal is not None:
            raise error_of(reply.refusal)
        return reply

    async def ingest(
        self, documents: Sequence[Document], timeout_s: float = _INGEST_TIMEOUT_S, *, job: Job | None = None
    ) -> tuple[DocumentResult, ...]:
        """Ingest documents; the content of a large one is uploaded first. Raises like `step`."""
        small = tuple([await self._upload_large(document) for document in documents])
        request = IngestRequest(origin=self.origin, documents=small, job=job)
        return (await self._ingest(request, timeout_s)).documents

    async def bulk_import(
        self,
        *,
        incidents: Sequence[PastIncident] = (),
        providers: Sequence[Provider] = (),
        lessons: Sequence[PastLesson] = (),
    ) -> IngestReply:
        """Import past incidents, rows of the provider index and lessons. Raises like `step`."""
        request = IngestRequest(
            origin=self.origin, incidents=tuple(incidents), providers=tuple(providers), lessons=tuple(lessons)
        )
        return await self._ingest(request, _INGEST_TIMEOUT_S)

    async def _ingest(self, request: IngestRequest, timeout_s: float) -> IngestReply:
        raw = await self._transport(subjects.ingest(self._caller), _dump(request), timeout_s)
        reply = IngestReply.model_validate_json(raw)
        if reply.refusal is not None:
            raise error_of(reply.refusal)
        return reply

    async def upload(self, content: bytes) -> Blob:
        """Upload content in parts, except parts that memory has already. Raises like `step`."""
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

    async def _upload_large(self, document: Document) -> Document:
        content = document.content if document.content is not None else document.text.encode(errors="replace")
        if len(content) <= PART_BYTES:
            return document
        return document.model_copy(update={"text": "", "content": None, "blob": await self.upload(content)})


def _dump(value: Shape) -> bytes:
    return value.model_dump_json(exclude_none=True).encode()
