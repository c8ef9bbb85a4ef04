"""Ingest: a document becomes chunks with vectors; what did not change is not embedded or written.

A document is written in steps, so that nobody waits for the whole of it, and its own record in the last one: until then
it is not what `documents` says it is. When it is asked for again after a step that failed, what is written already does
not differ any more, and the rest follows. What an end of the process has left of one that was new is known by nothing
but its chunks: the next process forgets them.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import structlog

from counterpoint.bus.fair_limiter import FairLimiter
from counterpoint.client import retry_on_conflict
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.access.releases import Releases
from counterpoint.memory.access.screening import Screen
from counterpoint.memory.commit.committer import Committer
from counterpoint.memory.commit.pipeline import EmbeddingPipeline
from counterpoint.memory.commit.planner import plan_commit
from counterpoint.memory.ingest.blobs import Blobs
from counterpoint.memory.ingest.document_plan import DocumentPlan, ParsedDocument, StoredRecord, cut, differences, same
from counterpoint.memory.ingest.readers import read
from counterpoint.memory.provenance.read_sets import ReadSet
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.memory.record.stamps import UNTRUSTED, VOUCHED, Provenance
from counterpoint.proto import ids
from counterpoint.proto.errors import Conflict, CounterpointError, ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.ids import derived_id, new_id
from counterpoint.proto.ingest import TITLE_CHARS, Document, Ingested, Job, JobProgress
from counterpoint.proto.memory import Commit, Origin, Write

T = TypeVar("T")

log = structlog.get_logger()

DOCUMENT_LIMIT_CHARS = 8 * 1024 * 1024
STEP_WRITES = 200
"""Records per commit: as many as its announcement names."""
_RETRIES = 3
_LEFT_S = 600.0
"""Timeout of the search for unfinished documents, in seconds: no caller waits for it."""

_KNOWN = """
SELECT store, id, version, body, sha256 FROM records WHERE project = $1 AND store = 'documents' AND id = $2
UNION ALL
SELECT store, id, version, NULL, CASE WHEN body IS NOT NULL THEN sha256 END FROM records
WHERE project = $1 AND store = 'chunks' AND id BETWEEN $2 || '-0' AND $2 || '-9999999999'
"""


_PROJECTS = "SELECT project FROM projects"
_LEFT = """
SELECT r.body ->> 'source' AS source FROM (
    SELECT regexp_replace(id, '-[0-9]+$', '') AS document_id, min(id) AS id FROM records
    WHERE project = $1 AND store = 'chunks' AND body IS NOT NULL GROUP BY 1) AS piece
JOIN records r ON r.project = $1 AND r.store = 'chunks' AND r.id = piece.id
WHERE NOT EXISTS (
    SELECT FROM records WHERE project = $1 AND store = 'documents' AND id = document_id AND body IS NOT NULL)
"""
_JOB = "SELECT version, body FROM records WHERE project = $1 AND store = 'ingests' AND id = $2"


class Ingest:
    """Ingests at most `parallel` documents beside each other, and each by one request at a time.

    One process is active, so that a lock in RAM keeps the steps of two requests apart.
    """

    def __init__(
        self,
        database: Database,
        policy: Policy,
        vectors: EmbeddingPipeline,
        committer: Committer,
        blobs: Blobs,
        releases: Releases,
        *,
        parallel: int = 8,
    ) -> None:
        self._database = database
        self._policy = policy
        self._vectors = vectors
        self._committer = committer
        self._blobs = blobs
        self._releases = releases
        self._turns = FairLimiter(parallel)
        self._under_way: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def documents(
        self, origin: Origin, integrity: int, documents: Sequence[Document], job: Job | None = None
    ) -> tuple[Ingested, ...]:
        """Ingest documents; return the result of each. A refused one does not stop the others. Raises `Transient`.

        While one is written another is embedded; those of one source stay in their order.
        """
        ended = await asyncio.gather(
            *(self._document(origin, integrity, document) for document in documents), return_exceptions=True
        )
        became = tuple(_or_raised(each) for each in ended)
        if job is not None:
            await self._progressed(origin, integrity, job, became)
        return became

    async def tidy(self) -> None:
        """Delete the chunks of documents that have no record, which an end of the process has left, beside what else
        is ingested; to be called when commits are applied. What cannot be done now the next process does."""
        try:
            async with self._database.connection() as connection:
                projects = [row["project"] for row in await connection.fetch(_PROJECTS)]
            for project in projects:
                async with self._database.reading(project) as connection:
                    sources = [row["source"] for row in await connection.fetch(_LEFT, project, timeout=_LEFT_S)]
                for source in sources:
                    await self._forget(Origin(message_id=new_id(), project=project), source)
        except CounterpointError as error:
            log.warning("documents.cleanup_failed", reason=str(error))

    async def _forget(self, origin: Origin, source: str) -> None:
        document_id = ids.document_id(source)
        async with self._alone(origin.project, source):
            known = await self._known(origin.project, document_id)
            if known.get(("documents", document_id), StoredRecord()).body is None:
                await self._delete(origin, VOUCHED, differences(known, {}))
                log.info("document.forgotten", document_id=document_id)

    async def _document(self, origin: Origin, integrity: int, document: Document) -> Ingested:
        try:
            async with self._alone(origin.project, document.source), self._turns.slot(origin.project):
                return await retry_on_conflict(partial(self._replace, origin, integrity, document), _RETRIES)
        except Conflict as error:
            raise Transient(f"{document.source} is being ingested by another request") from error
        except Permanent as error:
            problem = "; ".join(f"{p.field} {p.problem}" for p in error.problems) or error.code
            return Ingested(source=document.source, status="refused", problem=problem)

    async def _replace(self, origin: Origin, integrity: int, document: Document) -> Ingested:
        document_id = ids.document_id(document.source)
        integrity = UNTRUSTED if document.untrusted else integrity
        if document.gone:
            return await self._gone(origin, integrity, document, document_id)
        pieces = await self._pieces(origin, document, document_id)
        known = await self._known(origin.project, document_id)
        writes = await asyncio.to_thread(differences, known, pieces.chunks)
        before = known.get(("documents", document_id), StoredRecord())
        result = Ingested(
            source=document.source,
            document_id=document_id,
            status="quarantined" if pieces.quarantined else "added" if before.body is None else "replaced",
            chunks=len(pieces.chunks),
            problem=pieces.problem,
        )
        if before.body is not None and not writes and same(before.body, pieces.body):
            stands = {} if pieces.quarantined else {"status": "unchanged", "problem": None}
            return result.model_copy(update=stands)
        writes.append(Write(store="documents", id=document_id, body=pieces.body, expect=before.version))
        embedded = 0
        for start in range(0, len(writes), STEP_WRITES):
            embedded += await self._step(origin, integrity, pieces, writes[start : start + STEP_WRITES])
        log.info("document.ingested", document_id=document_id, chunks=len(pieces.chunks), embedded=embedded)
        return result.model_copy(update={"embedded": embedded})

    async def _gone(self, origin: Origin, integrity: int, document: Document, document_id: str) -> Ingested:
        """Delete a document and its chunks, unless it was found elsewhere since. Its record goes last."""
        known = await self._known(origin.project, document_id)
        before = known.get(("documents", document_id), StoredRecord())
        result = Ingested(source=document.source, document_id=document_id, status="unchanged")
        if before.body is None or before.body.get("root") != document.root:
            return result
        record = Write(store="documents", id=document_id, body=None, expect=before.version)
        await self._delete(origin, integrity, [*differences(known, {}), record])
        log.info("document.deleted", document_id=document_id)
        return result.model_copy(update={"status": "deleted"})

    async def _delete(self, origin: Origin, integrity: int, writes: Sequence[Write]) -> None:
        pieces = DocumentPlan({"sha256": "gone"}, {}, None)
        for start in range(0, len(writes), STEP_WRITES):
            await self._step(origin, integrity, pieces, writes[start : start + STEP_WRITES])

    def _alone(self, project: str, what: str) -> asyncio.Lock:
        return self._under_way.setdefault((project, what), asyncio.Lock())

    async def _progressed(self, origin: Origin, integrity: int, job: Job, became: Sequence[Ingested]) -> None:
        """Write down how far a job has come; documents that were handed in again count once."""
        async with self._alone(origin.project, f"job {job.job_id}"):
            async with self._database.reading(origin.project) as connection:
                row = await connection.fetchrow(_JOB, origin.project, job.job_id)
            body = progressed(row["body"] if row else None, job, became)
            if row is not None and row["body"] == body:
                return
            write = Write(store="ingests", id=job.job_id, body=body, expect=row["version"] if row else 0)
            await self._step(origin, integrity, DocumentPlan({"sha256": "progress"}, {}, None), [write])

    async def _pieces(self, origin: Origin, document: Document, document_id: str) -> DocumentPlan:
        """Plan a document. A blob that may not be stored as a whole is deleted. Raises `Permanent`."""
        blob, given = document.blob, document.content
        if blob is not None:
            given = await self._blobs.content(origin.project, blob)
        screen = await self._releases.screen(origin.project)
        try:
            found = await asyncio.to_thread(_foreseen, partial(_read, document, given))
            pieces = await asyncio.to_thread(_foreseen, partial(cut, self._policy, screen, found, document_id, origin))
        except Permanent:
            if blob is not None:
                await self._blobs.drop(origin.project, blob.sha256)
            raise
        kept = None
        if pieces.quarantined:
            kept = await self._blobs.keep(origin.project, found.document.text)
            pieces.body["blob"] = kept.model_dump(mode="json")
        if (
            blob is not None
            and (pieces.quarantined or pieces.redacted)
            and (kept is None or kept.sha256 != blob.sha256)
        ):
            await self._blobs.drop(origin.project, blob.sha256)
        return pieces

    async def _known(self, project: str, document_id: str) -> dict[tuple[str, str], StoredRecord]:
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_KNOWN, project, document_id)
        return {(row["store"], row["id"]): StoredRecord(row["version"], row["body"], row["sha256"]) for row in rows}

    async def _step(self, origin: Origin, integrity: int, pieces: DocumentPlan, writes: Sequence[Write]) -> int:
        """Apply some of a document's writes; how many texts were embedded for them.

        The step is known by its content and by the version that it changes: what is asked again is applied once, and
        another text under the same source in the same request is another step.
        """
        first = writes[0]
        inbound = derived_id(origin.message_id, "ingest", pieces.body["sha256"], first.id, first.expect)
        origin = origin.model_copy(update={"message_id": inbound})
        screen = await self._releases.screen(origin.project)
        prepared = await asyncio.to_thread(own_step, self._policy, origin, integrity, writes, screen)
        _, embedded = await self._vectors.applied(self._committer, prepared)
        return embedded


def own_step(policy: Policy, origin: Origin, integrity: int, writes: Sequence[Write], screen: Screen) -> CommitPlan:
    """Writes of memory's own for somebody who may ingest, ready to be applied. Raises what `prepare` raises."""
    now = datetime.now(UTC)
    return plan_commit(
        policy,
        diode.own(policy, origin.project, origin.message_id, now),
        origin,
        Commit(step="ingest", writes=tuple(writes)),
        now=now,
        caused_by=Provenance(integrity=integrity),
        memories=ReadSet(),
        task_version=None,
        screen=screen,
    )


def _or_raised(ended: Ingested | BaseException) -> Ingested:
    if isinstance(ended, BaseException):
        raise ended
    return ended


def progressed(known: dict[str, Any] | None, job: Job, became: Sequence[Ingested]) -> dict[str, Any]:
    """The record of a job after some more of its documents; those that it knows already are not counted again. Pure."""
    before = JobProgress.model_validate(known) if known else JobProgress(state="running", documents=0, done=0)
    fresh = became[max(0, before.done - job.done) :]
    done = max(before.done, job.done + len(became))
    after = JobProgress(
        state="done" if done >= job.documents else "running",
        documents=job.documents,
        done=done,
        by_status=dict(sorted((Counter(before.by_status) + Counter(one.status for one in fresh)).items())),
        chunks=before.chunks + sum(one.chunks for one in fresh),
        embedded=before.embedded + sum(one.embedded for one in fresh),
    )
    return after.model_dump(mode="json")


def _foreseen(work: Callable[[], T]) -> T:
    """Return the result of one document. An unexpected exception is a refusal of that document, because it would
    occur again at a retry of all."""
    try:
        return work()
    except CounterpointError:
        raise
    except Exception as error:
        log.error("document.failed", exc_info=error)
        problem = Problem(field="text", problem=f"cannot be read: unexpected {type(error).__name__}")
        raise Permanent(ErrorCode.UNREADABLE, (problem,)) from error


def _read(document: Document, given: bytes | None) -> ParsedDocument:
    """Raises `Permanent` for a document that cannot be read."""
    found = read(document.source, document.text if given is None else given, document.type)
    if "\x00" in found.text:
        raise Permanent(ErrorCode.INVALID, (Problem(field="text", problem="contains a NUL character: is it binary?"),))
    if len(found.text) > DOCUMENT_LIMIT_CHARS:
        problem = f"{len(found.text)} characters, more than {DOCUMENT_LIMIT_CHARS}"
        raise Permanent(ErrorCode.TOO_LARGE, (Problem(field="text", problem=problem),))
    if not found.text.strip():
        raise Permanent(ErrorCode.EMPTY, (Problem(field="text", problem="is empty"),))
    own = {"text": found.text, "title": document.title or (found.title or "")[:TITLE_CHARS] or None}
    document = document.model_copy(update={**own, "content": None, "blob": None})
    return ParsedDocument(document, found.type, found.problem)
