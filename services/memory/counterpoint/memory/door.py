"""The one door: every query and commit of every service comes in here, is authorised, done, and accounted for."""

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import asyncpg
import structlog
from prometheus_client import Counter, Histogram
from pydantic import ValidationError

from counterpoint.guard.capabilities import Access, Grant, Keyring, verify
from counterpoint.guard.names import is_harmless, is_project
from counterpoint.guard.policy import Policy
from counterpoint.memory import diode, erasure, wishes
from counterpoint.memory.answers import Answer, Answers, answer_of
from counterpoint.memory.blobs import Blobs
from counterpoint.memory.causes import Causes
from counterpoint.memory.committer import Committer, Deleted
from counterpoint.memory.database import Database
from counterpoint.memory.embeddings import Embeddings
from counterpoint.memory.erasure import Erasures
from counterpoint.memory.fitting import shortened
from counterpoint.memory.handed import Handed
from counterpoint.memory.ingest import Ingest
from counterpoint.memory.leaves import also_sending, refusal
from counterpoint.memory.letters import RETRY, Letters
from counterpoint.memory.prepare import accesses_of, owned, prepare
from counterpoint.memory.principals import Principals
from counterpoint.memory.provenance import (
    DERIVED,
    UNTRUSTED,
    VOUCHED,
    Forgotten,
    Key,
    Memories,
    Provenance,
    Reads,
)
from counterpoint.memory.queries import Queries
from counterpoint.memory.reembed import Reembedding
from counterpoint.memory.refused import problems_of, refusal_of
from counterpoint.memory.releases import Releases
from counterpoint.memory.revocations import Revocations
from counterpoint.memory.rows import Prepared
from counterpoint.memory.takeback import TakeBacks
from counterpoint.memory.tokens import Tokens
from counterpoint.proto import subjects
from counterpoint.proto.errors import Conflict, CounterpointError, Denied, Permanent, Problem, Transient
from counterpoint.proto.ingest import IngestReply, IngestRequest, PutPart, PutReply
from counterpoint.proto.memory import (
    Commit,
    CommitReply,
    CommitRequest,
    Found,
    GatewayToken,
    Origin,
    QueryReply,
    QueryRequest,
    Reembed,
    Refusal,
    Write,
)
from counterpoint.proto.principals import Principal

log = structlog.get_logger()

T = TypeVar("T")

COMMITS = Histogram("counterpoint_commit_duration_seconds", "From request to reply", ["service"])
REFUSALS = Counter("counterpoint_diode_refusals_total", "What the diode refused", ["store", "rule"])

REPLY_LIMIT_BYTES = 1000 * 1000
"""What the bus carries, less what an envelope takes."""


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
        causes: Causes,
        vectors: Embeddings,
        ingest: Ingest,
        handed: Handed,
        blobs: Blobs,
        letters: Letters,
        takebacks: TakeBacks,
        erasures: Erasures,
        releases: Releases,
        answers: Answers,
        revocations: Revocations,
        tokens: Tokens | None = None,
        reembedding: Reembedding | None = None,
    ) -> None:
        self._policy = policy
        self._keyring = keyring
        self._database = database
        self._principals = principals
        self._queries = queries
        self._committer = committer
        self._reads = reads
        self._causes = causes
        self._vectors = vectors
        self._ingest = ingest
        self._handed = handed
        self._blobs = blobs
        self._letters = letters
        self._takebacks = takebacks
        self._wishes: dict[str, TakeBacks | Erasures] = {wishes.STORE: takebacks, erasure.STORE: erasures}
        self._releases = releases
        self._answers = answers
        self._revocations = revocations
        self._tokens = tokens or Tokens(policy, keyring)
        self._reembedding = reembedding

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
            if request.job is not None and not is_harmless(request.job.job_id):
                problem = "holds what looks like a secret, and is what the job is known by"
                raise Permanent("sensitive", (Problem(field="job.job_id", problem=problem),))
            reply = await _foreseen(self._ingested(request, integrity))
        except CounterpointError as error:
            refused = await self._refused(caller, request.origin, "ingest", error)
            reply = IngestReply(refusal=refused)
        return reply.model_dump_json(exclude_none=True).encode()

    async def _ingested(self, request: IngestRequest, integrity: int) -> IngestReply:
        origin = request.origin
        return IngestReply(
            documents=await self._ingest.documents(origin, integrity, request.documents, request.job),
            incidents=await self._handed.incidents(origin, integrity, request.incidents),
            providers=await self._handed.providers(origin, integrity, request.providers),
        )

    async def put(self, caller: str, raw: bytes) -> bytes:
        """Answer a `PutPart` with a `PutReply`."""
        try:
            request = PutPart.model_validate_json(raw)
        except ValidationError as error:
            return PutReply(refusal=await self._unread(caller, "put", error)).model_dump_json().encode()
        try:
            await self._may_ingest(caller, request.origin)
            self._committer.room.check()
            reply = await _foreseen(self._blobs.put(request))
        except CounterpointError as error:
            refused = await self._refused(caller, request.origin, "put", error)
            reply = PutReply(refusal=refused)
        return reply.model_dump_json(exclude_none=True).encode()

    async def _may_ingest(self, caller: str, origin: Origin) -> int:
        _, integrity = await self.authorise(caller, origin)
        principal = await self._asker(origin)
        if principal is None or not principal.may("ingest", origin.project):
            raise Denied("role", f"the role ingest in project {origin.project}")
        return integrity

    async def _asker(self, origin: Origin) -> Principal | None:
        """The principal that asks by itself; None for the work of a capability, whatever name the request holds."""
        return None if origin.capability is not None else await self._principals.of(origin.principal)

    async def authorise(self, caller: str, origin: Origin, accesses: tuple[Access, ...] = ()) -> tuple[Grant, int]:
        """What this caller may do for this origin, and the integrity of what it does. Raises `Denied`."""
        if not is_project(origin.project):
            raise Denied("project", "a project name, in which nothing looks like a secret")
        asked = diode.Asked(caller, origin.project, origin.task_id, origin.message_id, datetime.now(UTC))
        if origin.capability is not None:
            revoked = await self._revocations.of(self._keyring.verified(origin.capability).grant.project)
            grant = verify(self._keyring, origin.capability, accesses, now=asked.now, revoked=revoked)
            integrity = VOUCHED
        else:
            principal = await self._asker(origin)
            grant = diode.standing(self._policy, asked, principal)
            integrity = VOUCHED if principal is not None and principal.kind != "agent" else DERIVED
        rule = diode.holder(grant, asked)
        if rule is not None:
            raise Denied(rule, f"a capability of {caller} for this message, project and task")
        return grant, integrity

    async def _query(self, caller: str, request: QueryRequest) -> bytes:
        if request.gateway is not None:
            token = await self._gateway_token(caller, request.origin, request.gateway)
            return QueryReply(token=token).model_dump_json(exclude_none=True).encode()
        origin = request.origin
        if request.names:
            await self.authorise(caller, origin)
            screen = await self._releases.screen(origin.project)
            names = tuple([screen.name(name) for name in request.names])
            return QueryReply(names=names).model_dump_json(exclude_none=True).encode()
        if not request.queries:
            self._committer.room.check()
            await self._database.answers()
            return _reply(())
        accesses = tuple(Access(self._queries.store(query), "read") for query in request.queries)
        grant, _ = await self.authorise(caller, origin, accesses)
        for access in accesses:
            rule = diode.read(self._policy, grant, access.store)
            if rule is not None:
                raise Denied(rule, f"the right to read {access.store}")
        if await self._causes.has_ended(grant):
            cause, _ = await self._causes.of(origin)
            if any(diode.read_after_end(self._policy, cause.type, access.store) for access in accesses):
                raise Denied("ended", "a task that has not ended")
        self._newest(caller, origin)
        asked = [query for query in request.queries if isinstance(query, Reembed)]
        if asked:
            return await self._reembed(caller, origin, asked[0], len(request.queries))
        began = time.perf_counter()
        looked = await self._answers.look(grant, request.queries)
        answers = looked.answers
        took_us = int((time.perf_counter() - began) * 1e6)
        reply = _reply([answer.json(took_us, "hit") for answer in answers])
        if not answers or len(reply) > REPLY_LIMIT_BYTES:
            found = await self._queries.answer(grant, request.queries, await self._label(caller, origin))
            answers = self._answers.keep(looked, request.queries, found)
            cache = "off" if looked.epoch is None else "miss"
            reply = _fresh(answers, found, cache)
            if len(reply) > REPLY_LIMIT_BYTES:
                found = shortened(found, REPLY_LIMIT_BYTES)
                answers = tuple(answer_of(each) for each in found)
                reply = _fresh(answers, found, cache)
        self._reads.note(_key(caller, origin), [item for answer in answers for item in answer.seen])
        return reply

    async def _reembed(self, caller: str, origin: Origin, asked: Reembed, queries: int) -> bytes:
        """Every project is searched by the same model: who operates them all may change it."""
        principal = await self._asker(origin)
        if principal is None or not principal.may("operate", origin.project) or "*" not in principal.projects:
            raise Denied("role", "the role operate in all projects")
        if self._reembedding is None or queries > 1:
            raise Permanent("invalid", (Problem(field="queries", problem="this is asked alone"),))
        began = time.perf_counter()
        report = await self._reembedding.act(caller, origin, asked)
        took_us = int((time.perf_counter() - began) * 1e6)
        found = Found(tier="vector", plan="reembed", took_us=took_us, report=report)
        return QueryReply(found=(found,)).model_dump_json(exclude_none=True).encode()

    async def _gateway_token(self, caller: str, origin: Origin, wanted: GatewayToken) -> str:
        """A token for the gateway, for what this delivery has read until now; one for the web makes it untrusted."""
        held, _ = await self.authorise(caller, origin)
        if await self._causes.has_ended(held):
            raise Denied("ended", "a task that has not ended")
        self._newest(caller, origin)
        cause, _ = await self._causes.of(origin)
        read = _remembered(lambda: self._reads.so_far(_key(caller, origin), wanted.reads))
        label = cause.with_(read.provenance).label
        token = self._tokens.of_task(held, wanted.purpose, label, wanted.life_s)
        if wanted.purpose == "web":
            self._reads.note(_key(caller, origin), [], UNTRUSTED)
        return token

    async def _label(self, caller: str, origin: Origin) -> int | None:
        """The label of what may stand in a question; None where none is told to anybody outside."""
        if not self._queries.asks_outside:
            return None
        cause, _ = await self._causes.of(origin)
        return cause.with_(self._reads.by_any(origin.message_id)).label

    async def _commit(self, caller: str, request: CommitRequest) -> CommitReply:
        origin, commit = request.origin, request.commit
        accesses = accesses_of(commit)
        grant, integrity = await self.authorise(caller, origin, accesses)
        self._newest(caller, origin)
        memories = _remembered(lambda: self._reads.of(_key(caller, origin), request.reads))
        wished = [write for write in commit.writes if write.store in self._wishes]
        if wished:
            return await self._wished(grant, origin, commit, wished[0])
        wrong = self._takebacks.wrong(origin.project, memories)
        if wrong is not None:
            raise Conflict(wrong.store, wrong.id, wrong.version, -1)
        # A run begins anew because something was taken back: what comes of it does not rest on that.
        earlier = [ref for ref in memories.earlier if not self._takebacks.carried(origin.project, (ref,))]
        cause, version = await self._causes.of(origin)
        if origin.capability is not None:
            origin = origin.model_copy(update={"principal": cause.principal})
        caused_by = cause.with_(Provenance(integrity=integrity, refs=frozenset(earlier)))
        if diode.of_gateway(grant) and any(write.expect == 0 for write in commit.writes):
            caused_by = caused_by.with_(self._reads.by_any(origin.message_id))
        while True:
            prepared = prepare(
                self._policy,
                grant,
                origin,
                commit,
                now=datetime.now(UTC),
                caused_by=caused_by,
                memories=memories,
                task_version=version,
                owners=await self._causes.owners(origin.project, owned(self._policy, grant, commit)),
                screen=await self._releases.screen(origin.project),
            )
            again = [
                w.id for w in commit.writes if w.store == "dead_letters" and w.body and w.body.get("state") == RETRY
            ]
            if again:
                retried = [
                    await self._letters.again(origin.project, letter_id, prepared.commit_id) for letter_id in again
                ]
                prepared = also_sending(prepared, retried)
            try:
                reply = await self.apply(prepared)
            except Deleted as before:
                commit = _made_again(commit, before)
            else:
                break
        if self._takebacks.carried(origin.project, prepared.provenance.refs):
            await self._takebacks.follow(origin, prepared)
        if commit.last or diode.of_gateway(grant):
            self._reads.finish(caller, origin.message_id)
        return reply

    async def _wished(self, grant: Grant, origin: Origin, commit: Commit, wish: Write) -> CommitReply:
        """Do what a record wishes that memory itself has to do. Raises `Denied`, and what the doing raises."""
        if len(commit.writes) > 1 or commit.messages or commit.dead_letter is not None:
            raise Denied("store", "a commit that wishes one thing and does nothing else")
        agent = self._policy.services[grant.audience].agents[0]
        rule = diode.write(self._policy, grant, wish.store, agent, None, self._policy.store_level(wish.store))
        if rule is not None:
            raise Denied(rule, f"the right to write {wish.store}")
        return await self._wishes[wish.store].apply(origin, wish)

    async def apply(self, prepared: Prepared) -> CommitReply:
        """Apply what was prepared, with the vectors of what the vector tier keeps."""
        try:
            reply, _ = await self._vectors.applied(self._committer, prepared)
            return reply
        finally:
            if any(row.store == "principals" for row in prepared.writes):
                self._principals.forget()
            self._releases.changed(prepared)
            self._revocations.changed(prepared)
            self._causes.changed(prepared)

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
                return refusal_of(error)
        leaf = refusal(caller, origin, what, rule, needed, datetime.now(UTC))
        try:
            await self._committer.apply(leaf)
        except Transient as away:
            log.error("refusal.unaudited", rule=rule, reason=str(away))
            return refusal_of(error)
        return refusal_of(error).model_copy(update={"id": leaf.commit_id})


async def _foreseen(work: Awaitable[T]) -> T:
    """What comes of `work`. Raises `Permanent` for a value that the database cannot hold, and `Transient` for what
    nobody foresaw: no asker is left without an answer."""
    try:
        return await work
    except CounterpointError:
        raise
    except asyncpg.DataError as error:
        problem = Problem(field="request", problem="holds a value that cannot be looked for or kept, as a NUL is none")
        raise Permanent("invalid", (problem,)) from error
    except Exception as error:
        log.error("request.failed", exc_info=error)
        raise Transient(f"unexpected {type(error).__name__}") from error


def _remembered(look: Callable[[], Memories]) -> Memories:
    try:
        return look()
    except Forgotten as error:
        raise Transient("what this delivery has read is not known any more") from error


def _key(caller: str, origin: Origin) -> Key:
    return caller, origin.message_id, origin.fence, origin.run


def _reply(found: Sequence[bytes]) -> bytes:
    """A `QueryReply` of answers that are JSON already."""
    return b'{"found":[%b]}' % b",".join(found)


def _fresh(answers: Sequence[Answer], found: Sequence[Found], cache: str) -> bytes:
    return _reply([answer.json(each.took_us, cache) for answer, each in zip(answers, found, strict=True)])


def _made_again(commit: Commit, before: Deleted) -> Commit:
    """The same commit, making anew what was there before and was deleted. Raises `before` when it makes no such."""
    writes = tuple(
        write.model_copy(update={"expect": before.found})
        if (write.store, write.id, write.expect) == (before.store, before.record_id, 0)
        else write
        for write in commit.writes
    )
    if writes == commit.writes:
        raise before
    return commit.model_copy(update={"writes": writes})
