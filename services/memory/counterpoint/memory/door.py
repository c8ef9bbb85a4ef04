"""The one door: every query and commit of every service comes in here, is authorised, done, and accounted for."""

import dataclasses
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import TypeVar

import structlog
from prometheus_client import Counter, Histogram
from pydantic import ValidationError

from counterpoint.guard.capabilities import Access, Grant, Keyring, verify
from counterpoint.guard.policy import Policy
from counterpoint.memory import diode
from counterpoint.memory.blobs import Blobs
from counterpoint.memory.committer import Committer
from counterpoint.memory.database import Database
from counterpoint.memory.fitting import shortened
from counterpoint.memory.ingest import Ingest
from counterpoint.memory.letters import RETRY, Letters
from counterpoint.memory.prepare import prepare, problems_of, refusal
from counterpoint.memory.principals import Principals
from counterpoint.memory.provenance import DERIVED, VOUCHED, Forgotten, Key, Origins, Provenance, Reads
from counterpoint.memory.queries import Queries, seen
from counterpoint.memory.rows import Prepared
from counterpoint.memory.search import Search
from counterpoint.proto import subjects
from counterpoint.proto.errors import Away, Conflict, CounterpointError, Denied, Permanent, Transient
from counterpoint.proto.memory import (
    Commit,
    CommitReply,
    CommitRequest,
    Found,
    IngestReply,
    IngestRequest,
    Origin,
    PutPart,
    PutReply,
    QueryReply,
    QueryRequest,
    Ref,
    Refusal,
)

log = structlog.get_logger()

T = TypeVar("T")

COMMITS = Histogram("counterpoint_commit_duration_seconds", "From request to reply", ["service"])
REFUSALS = Counter("counterpoint_diode_refusals_total", "What the diode refused", ["store", "rule"])

REPLY_LIMIT_BYTES = 1000 * 1000
"""What the bus carries, less what an envelope takes."""

_CAUSE = """
SELECT m.label, m.integrity, m.task_version, m.type, r.reads FROM messages m
LEFT JOIN read_sets r ON r.project = m.project AND r.commit_id = m.commit_id
WHERE m.id = $1
"""


class Door:
    """Answers requests as bytes; the caller's name comes from the subject, never from the body."""

    def __init__(
        self,
        policy: Policy,
        keyring: Keyring,
        database: Database,
        principals: Principals,
        queries: Queries,
        committer: Committer,
        reads: Reads,
        origins: Origins,
        search: Search,
        ingest: Ingest,
        blobs: Blobs,
        letters: Letters,
        revoked: frozenset[str] = frozenset(),
    ) -> None:
        self._policy = policy
        self._keyring = keyring
        self._database = database
        self._principals = principals
        self._queries = queries
        self._committer = committer
        self._reads = reads
        self._origins = origins
        self._search = search
        self._ingest = ingest
        self._blobs = blobs
        self._letters = letters
        self._revoked = revoked
        self._versions: OrderedDict[str, int | None] = OrderedDict()

    async def query(self, caller: str, raw: bytes) -> bytes:
        """Answer a `QueryRequest` with a `QueryReply`."""
        try:
            request = QueryRequest.model_validate_json(raw)
        except ValidationError as error:
            return QueryReply(refusal=await self._unread(caller, "query", error)).model_dump_json().encode()
        try:
            return await _foreseen(self._query(caller, request))
        except CounterpointError as error:
            refused = await self._refused(caller, request.origin, "query", error)
            return QueryReply(refusal=refused).model_dump_json().encode()

    async def commit(self, caller: str, raw: bytes) -> bytes:
        """Answer a `CommitRequest` with a `CommitReply`."""
        began = time.perf_counter()
        try:
            request = CommitRequest.model_validate_json(raw)
        except ValidationError as error:
            refused = await self._unread(caller, "commit", error)
            return CommitReply(status="refused", refusal=refused).model_dump_json().encode()
        try:
            reply = await _foreseen(self._commit(caller, request))
        except CounterpointError as error:
            refused = await self._refused(caller, request.origin, f"commit {request.commit.step}", error)
            reply = CommitReply(status="refused", refusal=refused)
        COMMITS.labels(caller).observe(time.perf_counter() - began)
        return reply.model_dump_json(exclude_none=True).encode()

    async def ingest(self, caller: str, raw: bytes) -> bytes:
        """Answer an `IngestRequest` with an `IngestReply`."""
        try:
            request = IngestRequest.model_validate_json(raw)
        except ValidationError as error:
            return IngestReply(refusal=await self._unread(caller, "ingest", error)).model_dump_json().encode()
        try:
            integrity = await self._may_ingest(caller, request.origin)
            ingested = await _foreseen(self._ingest.documents(request.origin, integrity, request.documents))
            reply = IngestReply(documents=ingested)
        except CounterpointError as error:
            refused = await self._refused(caller, request.origin, "ingest", error)
            reply = IngestReply(refusal=refused)
        return reply.model_dump_json(exclude_none=True).encode()

    async def put(self, caller: str, raw: bytes) -> bytes:
        """Answer a `PutPart` with a `PutReply`."""
        try:
            request = PutPart.model_validate_json(raw)
        except ValidationError as error:
            return PutReply(refusal=await self._unread(caller, "put", error)).model_dump_json().encode()
        try:
            await self._may_ingest(caller, request.origin)
            reply = await _foreseen(self._blobs.put(request))
        except CounterpointError as error:
            refused = await self._refused(caller, request.origin, "put", error)
            reply = PutReply(refusal=refused)
        return reply.model_dump_json(exclude_none=True).encode()

    async def _may_ingest(self, caller: str, origin: Origin) -> int:
        _, integrity = await self.authorise(caller, origin)
        principal = await self._principals.of(origin.principal)
        if principal is None or not principal.may("ingest", origin.project):
            raise Denied("role", f"the role ingest in project {origin.project}")
        return integrity

    async def authorise(self, caller: str, origin: Origin, accesses: tuple[Access, ...] = ()) -> tuple[Grant, int]:
        """What this caller may do for this origin, and the integrity of what it does. Raises `Denied`."""
        asked = diode.Asked(caller, origin.project, origin.task_id, origin.message_id, datetime.now(UTC))
        if origin.capability is not None:
            grant = verify(self._keyring, origin.capability, accesses, now=asked.now, revoked=self._revoked)
            integrity = VOUCHED
        else:
            principal = await self._principals.of(origin.principal)
            grant = diode.standing(self._policy, asked, principal)
            integrity = VOUCHED if principal is not None and principal.kind != "agent" else DERIVED
        rule = diode.holder(grant, asked)
        if rule is not None:
            raise Denied(rule, f"a capability of {caller} for this message, project and task")
        return grant, integrity

    async def _query(self, caller: str, request: QueryRequest) -> bytes:
        if not request.queries:
            await self._database.answers()
            return _dumped(())
        origin = request.origin
        accesses = tuple(Access(self._queries.store(query), "read") for query in request.queries)
        grant, _ = await self.authorise(caller, origin, accesses)
        for access in accesses:
            rule = diode.read(self._policy, grant, access.store)
            if rule is not None:
                raise Denied(rule, f"the right to read {access.store}")
        self._newest(caller, origin)
        found = await self._queries.answer(grant, request.queries)
        answer = _dumped(found)
        if len(answer) > REPLY_LIMIT_BYTES:
            found = shortened(found, REPLY_LIMIT_BYTES)
            answer = _dumped(found)
        self._reads.note(_key(caller, origin), [seen(item) for each in found for item in each.items])
        return answer

    async def _commit(self, caller: str, request: CommitRequest) -> CommitReply:
        origin, commit = request.origin, request.commit
        accesses = _accesses(commit)
        grant, integrity = await self.authorise(caller, origin, accesses)
        self._newest(caller, origin)
        try:
            memories = self._reads.of(_key(caller, origin), request.reads)
        except Forgotten as error:
            raise Transient("what this delivery has read is not known any more") from error
        cause, version = await self._cause(origin)
        prepared = prepare(
            self._policy,
            grant,
            origin,
            commit,
            now=datetime.now(UTC),
            caused_by=cause.with_(Provenance(integrity=integrity)),
            memories=memories,
            task_version=version,
        )
        again = [w.id for w in commit.writes if w.store == "dead_letters" and w.body and w.body.get("state") == RETRY]
        if again:
            retried = [await self._letters.again(origin.project, letter_id, prepared.commit_id) for letter_id in again]
            prepared = dataclasses.replace(prepared, messages=(*prepared.messages, *retried))
        reply = await self.apply(prepared)
        if commit.last:
            self._reads.drop(_key(caller, origin))
        return reply

    async def apply(self, prepared: Prepared) -> CommitReply:
        """Apply what was prepared, with the vectors of what the vector tier keeps."""
        try:
            return await self._committer.apply(await self._with_vectors(prepared))
        finally:
            if any(row.store == "principals" for row in prepared.writes):
                self._principals.forget()

    async def _with_vectors(self, prepared: Prepared) -> Prepared:
        vector_rows = [
            row for row in prepared.writes if row.body is not None and self._policy.stores[row.store].tier == "vector"
        ]
        if not vector_rows or prepared.vectors:
            return prepared
        texts = []
        for row in vector_rows:
            body = json.loads(row.body or "{}")
            values = (body.get(name) for name in self._policy.stores[row.store].text)
            texts.append("\n".join(value for value in values if isinstance(value, str)))
        embedded = await self._search.embed_texts(texts)
        rows = tuple(
            self._search.row(row.store, row.id, row.expect + 1, row.id, row.label, text, "", vector)
            for row, text, vector in zip(vector_rows, texts, embedded, strict=True)
        )
        return dataclasses.replace(prepared, vectors=rows, model=self._search.model_id)

    async def _cause(self, origin: Origin) -> tuple[Provenance, int | None]:
        """The provenance of the inbound message and its task version, from the log, never from the caller."""
        if origin.capability is None:
            return Provenance(), None
        known = self._origins.get(origin.message_id)
        if known is not None and origin.message_id in self._versions:
            return known, self._versions[origin.message_id]
        async with self._database.reading(origin.project) as connection:
            row = await connection.fetchrow(_CAUSE, origin.message_id)
        if row is None:
            raise Denied("message", "an inbound message that is in the log")
        refs = frozenset(Ref(store=s, id=i, version=v) for s, i, v, _ in (row["reads"] or ()))
        found = Provenance(row["label"], row["integrity"], refs)
        self._origins.remember(origin.message_id, found)
        self._versions[origin.message_id] = row["task_version"]
        while len(self._versions) > 50_000:
            self._versions.popitem(last=False)
        return found, row["task_version"]

    def sent_version(self, message_id: str, version: int | None) -> None:
        """Remember the task version of a message that was just sent."""
        self._versions[message_id] = version
        while len(self._versions) > 50_000:
            self._versions.popitem(last=False)

    def _newest(self, caller: str, origin: Origin) -> None:
        if not self._reads.fence(caller, origin.message_id, origin.fence):
            raise Denied("fence", "the newest delivery of the message")

    async def _unread(self, caller: str, what: str, error: ValidationError) -> Refusal:
        """A request that is none: refused with the fields at fault, and accounted for in the default project."""
        refused = Permanent("invalid", problems_of(error))
        return await self._refused(caller, Origin(message_id="unread", project=subjects.DEFAULT_PROJECT), what, refused)

    async def _refused(self, caller: str, origin: Origin, what: str, error: CounterpointError) -> Refusal:
        """What to answer. What the diode or a rule refused has a leaf in the audit log."""
        match error:
            case Denied(rule=rule, needed=needed):
                REFUSALS.labels(what.split(" ")[0], rule).inc()
                log.warning("diode.refused", caller=caller, what=what, rule=rule, project=origin.project)
            case Permanent(code=rule):
                needed = "; ".join(f"{p.field} {p.problem}" for p in error.problems)
            case _:
                return _refusal(error)
        try:
            await self._committer.apply(refusal(caller, origin, what, rule, needed, datetime.now(UTC)))
        except Transient as away:
            log.error("refusal.unaudited", rule=rule, reason=str(away))
        return _refusal(error)


async def _foreseen(work: Awaitable[T]) -> T:
    """What comes of `work`. Raises `Transient` for what nobody foresaw: no asker is left without an answer."""
    try:
        return await work
    except CounterpointError:
        raise
    except Exception as error:
        log.error("request.failed", exc_info=error)
        raise Transient(f"unexpected {type(error).__name__}") from error


def _key(caller: str, origin: Origin) -> Key:
    return caller, origin.message_id, origin.fence, origin.run


def _dumped(found: tuple[Found, ...]) -> bytes:
    return QueryReply(found=found).model_dump_json(exclude_none=True).encode()


def _refusal(error: CounterpointError) -> Refusal:
    match error:
        case Denied():
            return Refusal(kind="denied", code=error.rule, needed=error.needed)
        case Permanent():
            return Refusal(kind="permanent", code=error.code, problems=error.problems)
        case Conflict():
            return Refusal(kind="conflict", code="conflict", detail=f"{error.store}/{error.record_id}")
        case Away():
            return Refusal(kind="transient", code="away", detail=str(error))
        case Transient():
            return Refusal(kind="transient", code="transient", detail=str(error))
        case _:
            return Refusal(kind="permanent", code="refused", detail=str(error))


def _accesses(commit: Commit) -> tuple[Access, ...]:
    """All that a commit does, for an attenuation to look at; a commit that does nothing still answers for its time."""
    writes = [
        Access(write.store, "write", str(write.body.get("agent", "")) if write.body else "") for write in commit.writes
    ]
    sends = [Access(message.type, "send", str(message.data.get("agent", ""))) for message in commit.messages]
    timers = [Access("timers", "cancel") for _ in commit.cancel_timers[:1]]
    letters = [Access("dead_letters", "write")] if commit.dead_letter is not None else []
    return (*writes, *sends, *timers, *letters) or (Access("inbox", "write"),)
