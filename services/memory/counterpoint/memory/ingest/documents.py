"""Ingest: a document becomes chunks with vectors; unchanged chunks are neither embedded nor written.

A document is written in several steps, so that other commits do not wait for all of it, and its own record in the last
one: until then `documents` has the former record. If a step failed and the document is sent again, chunks already
written no longer differ, and only the rest is written. Chunks of a new document that a killed process left have no
document record: the next process deletes them.
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
from counterpoint.memory.ingest.readers import READERS, NeedsWorker, read
from counterpoint.memory.provenance.read_sets import ReadSet
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.memory.record.stamps import UNTRUSTED, VOUCHED, Provenance
from counterpoint.proto import ids
from counterpoint.proto.errors import Conflict, CounterpointError, ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.ids import derived_id, new_id
from counterpoint.proto.ingest import TITLE_CHARS, Document, DocumentResult, Job, JobProgress
from counterpoint.proto.memory import Commit, Origin, Write

T = TypeVar("T")

log = structlog.get_logger()

DOCUMENT_LIMIT_CHARS = 8 * 1024 * 1024
STEP_WRITES = 200
"""Records per commit: as many as its announcement names."""
_RETRIES = 3
_ORPHANS_TIMEOUT_S = 600.0
"""Timeout of the search for chunks without a document, in seconds: no caller waits for it."""

NOTHING_READ = ReadSet()
_SQL = load_statements(__package__)


class Ingest:
    """Ingests at most `parallel` documents concurrently, and each by one request at a time.

    Only one process is active, so a lock in RAM separates the steps of two requests.
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
        self._readers = FairLimiter(READERS)
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def documents(
        self, origin: Origin, integrity: int, documents: Sequence[Document], job: Job | None = None
    ) -> tuple[DocumentResult, ...]:
        """Ingest documents; return the result of each. A refused one does not stop the others. Raises `Transient`.

        Documents are embedded and written concurrently; those of one source stay in their order.
        """
        outcomes = await asyncio.gather(
            *(self._document(origin, integrity, document) for document in documents), return_exceptions=True
        )
        results = tuple(_result_of(each) for each in outcomes)
        if job is not None:
            await self._update_job(origin, integrity, job, results)
        return results

    async def derived(self, origin: Origin, memories: ReadSet, document: Document) -> DocumentResult:
        """Ingest a document that is derived from a record, unless its source was ingested by somebody else.

        Return the result, `refused` for one that may not be stored. Raises `Transient`.
        """
        document_id = ids.document_id(document.source)
        try:
            async with self._lock(origin.project, document.source):
                known = await self._stored(origin.project, document_id)
                before = known.get(("documents", document_id), StoredRecord()).body
                if before is not None and "plan" not in before.get("metadata", {}):
                    return DocumentResult(source=document.source, document_id=document_id, status="unchanged")
                vouched = memories.provenance.integrity
                return await retry_on_conflict(partial(self._replace, origin, vouched, document, memories), _RETRIES)
        except Permanent as error:
            problem = "; ".join(f"{p.field} {p.problem}" for p in error.problems) or error.code
            return DocumentResult(source=document.source, status="refused", problem=problem)

    async def delete_orphans(self) -> None:
        """Delete the chunks of documents that have no record, left by a killed process. To be called when commits can
        be applied. The next process does what fails now."""
        try:
            for project in await self._database.projects():
                async with self._database.reading(project) as connection:
                    sources = [
                        row["source"]
                        for row in await connection.fetch(
                            _SQL["sources_without_document"], project, timeout=_ORPHANS_TIMEOUT_S
                        )
                    ]
                for source in sources:
                    await self._delete_orphans(Origin(message_id=new_id(), project=project), source)
        except CounterpointError as error:
            log.warning("documents.cleanup_failed", reason=str(error))

    async def _delete_orphans(self, origin: Origin, source: str) -> None:
        document_id = ids.document_id(source)
        async with self._lock(origin.project, source):
            known = await self._stored(origin.project, document_id)
            if known.get(("documents", document_id), StoredRecord()).body is None:
                await self._apply_deletions(origin, VOUCHED, differences(known, {}))
                log.info("document.orphan_deleted", document_id=document_id)

    async def _document(self, origin: Origin, integrity: int, document: Document) -> DocumentResult:
        try:
            async with self._lock(origin.project, document.source):
                replace = partial(self._replace, origin, integrity, document)
                try:
                    async with self._turns.slot(origin.project):
                        return await retry_on_conflict(partial(replace, apart=False), _RETRIES)
                except NeedsWorker:
                    # In turns of their own, so that documents that take long to read hold up only each other.
                    async with self._readers.slot(origin.project):
                        return await retry_on_conflict(replace, _RETRIES)
        except Conflict as error:
            raise Transient(f"{document.source} is being ingested by another request") from error
        except Permanent as error:
            problem = "; ".join(f"{p.field} {p.problem}" for p in error.problems) or error.code
            return DocumentResult(source=document.source, status="refused", problem=problem)

    async def _replace(
        self,
        origin: Origin,
        integrity: int,
        document: Document,
        memories: ReadSet = NOTHING_READ,
        apart: bool = True,
    ) -> DocumentResult:
        document_id = ids.document_id(document.source)
        integrity = UNTRUSTED if document.untrusted else integrity
        if document.gone:
            return await self._delete(origin, integrity, document, document_id)
        pieces = await self._pieces(origin, document, document_id, apart)
        known = await self._stored(origin.project, document_id)
        writes = await asyncio.to_thread(differences, known, pieces.chunks)
        before = known.get(("documents", document_id), StoredRecord())
        result = DocumentResult(
            source=document.source,
            document_id=document_id,
            status="quarantined" if pieces.quarantined else "added" if before.body is None else "replaced",
            chunks=len(pieces.chunks),
            problem=pieces.problem,
        )
        if before.body is not None and not writes and same(before.body, pieces.body):
            unchanged = {} if pieces.quarantined else {"status": "unchanged", "problem": None}
            return result.model_copy(update=unchanged)
        writes.append(Write(store="documents", id=document_id, body=pieces.body, expect=before.version))
        embedded = 0
        for start in range(0, len(writes), STEP_WRITES):
            part = writes[start : start + STEP_WRITES]
            embedded += await self._step(origin, integrity, pieces, part, memories)
        log.info("document.ingested", document_id=document_id, chunks=len(pieces.chunks), embedded=embedded)
        return result.model_copy(update={"embedded": embedded})

    async def _delete(self, origin: Origin, integrity: int, document: Document, document_id: str) -> DocumentResult:
        """Delete a document and its chunks, unless the source was found elsewhere since. Its record is deleted last."""
        known = await self._stored(origin.project, document_id)
        before = known.get(("documents", document_id), StoredRecord())
        result = DocumentResult(source=document.source, document_id=document_id, status="unchanged")
        if before.body is None or before.body.get("root") != document.root:
            return result
        record = Write(store="documents", id=document_id, body=None, expect=before.version)
        await self._apply_deletions(origin, integrity, [*differences(known, {}), record])
        log.info("document.deleted", document_id=document_id)
        return result.model_copy(update={"status": "deleted"})

    async def _apply_deletions(self, origin: Origin, integrity: int, writes: Sequence[Write]) -> None:
        pieces = DocumentPlan({"sha256": "gone"}, {}, None)
        for start in range(0, len(writes), STEP_WRITES):
            await self._step(origin, integrity, pieces, writes[start : start + STEP_WRITES])

    def _lock(self, project: str, what: str) -> asyncio.Lock:
        return self._locks.setdefault((project, what), asyncio.Lock())

    async def _update_job(self, origin: Origin, integrity: int, job: Job, results: Sequence[DocumentResult]) -> None:
        """Update the progress of a job; documents that were sent again count once."""
        async with self._lock(origin.project, f"job {job.job_id}"):
            async with self._database.reading(origin.project) as connection:
                row = await connection.fetchrow(_SQL["ingest_job"], origin.project, job.job_id)
            body = updated_job(row["body"] if row else None, job, results)
            if row is not None and row["body"] == body:
                return
            write = Write(store="ingests", id=job.job_id, body=body, expect=row["version"] if row else 0)
            await self._step(origin, integrity, DocumentPlan({"sha256": "progress"}, {}, None), [write])

    async def _pieces(self, origin: Origin, document: Document, document_id: str, apart: bool) -> DocumentPlan:
        """Plan a document. A blob that may not be stored as a whole is deleted. Raises `Permanent`, `NeedsWorker`."""
        blob, content = document.blob, document.content
        if blob is not None:
            content = await self._blobs.content(origin.project, blob)
        screen = await self._releases.of(origin.project)
        try:
            found = await asyncio.to_thread(_or_refusal, partial(_read, document, content, apart))
            pieces = await asyncio.to_thread(
                _or_refusal, partial(cut, self._policy, screen, found, document_id, origin)
            )
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

    async def _stored(self, project: str, document_id: str) -> dict[tuple[str, str], StoredRecord]:
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_SQL["document_and_chunks"], project, document_id)
        return {(row["store"], row["id"]): StoredRecord(row["version"], row["body"], row["sha256"]) for row in rows}

    async def _step(
        self,
        origin: Origin,
        integrity: int,
        pieces: DocumentPlan,
        writes: Sequence[Write],
        memories: ReadSet = NOTHING_READ,
    ) -> int:
        """Apply some of a document's writes; return the number of embedded texts.

        The step is identified by its content and the versions that it changes: a repeated step is applied once, and
        another text under the same source in the same request is another step.
        """
        first = writes[0]
        inbound = derived_id(origin.message_id, "ingest", pieces.body["sha256"], first.id, first.expect)
        origin = origin.model_copy(update={"message_id": inbound})
        screen = await self._releases.of(origin.project)
        plan = await asyncio.to_thread(own_plan, self._policy, origin, integrity, writes, screen, memories)
        _, embedded = await self._vectors.applied(self._committer, plan)
        return embedded


def own_plan(
    policy: Policy,
    origin: Origin,
    integrity: int,
    writes: Sequence[Write],
    screen: Screen,
    memories: ReadSet = NOTHING_READ,
) -> CommitPlan:
    """Plan writes of memory's own for a caller that may ingest, or derived from `memories`. Raises the errors of
    `plan_commit`."""
    now = datetime.now(UTC)
    return plan_commit(
        policy,
        diode.own(policy, origin.project, origin.message_id, now),
        origin,
        Commit(step="ingest", writes=tuple(writes)),
        now=now,
        caused_by=Provenance(integrity=integrity),
        memories=memories,
        task_version=None,
        screen=screen,
    )


def _result_of(outcome: DocumentResult | BaseException) -> DocumentResult:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def updated_job(known: dict[str, Any] | None, job: Job, results: Sequence[DocumentResult]) -> dict[str, Any]:
    """Return the record of a job after some more of its documents, without those that are already counted. Pure."""
    before = JobProgress.model_validate(known) if known else JobProgress(state="running", documents=0, done=0)
    new = results[max(0, before.done - job.done) :]
    done = max(before.done, job.done + len(results))
    after = JobProgress(
        state="done" if done >= job.documents else "running",
        documents=job.documents,
        done=done,
        by_status=dict(sorted((Counter(before.by_status) + Counter(one.status for one in new)).items())),
        chunks=before.chunks + sum(one.chunks for one in new),
        embedded=before.embedded + sum(one.embedded for one in new),
    )
    return after.model_dump(mode="json")


def _or_refusal(work: Callable[[], T]) -> T:
    """Return the result of one document. An unexpected exception is a refusal of that document, because it would occur
    again at a retry of all."""
    try:
        return work()
    except (CounterpointError, NeedsWorker):
        raise
    except Exception as error:
        log.error("document.failed", exc_info=error)
        problem = Problem(field="text", problem=f"cannot be read: unexpected {type(error).__name__}")
        raise Permanent(ErrorCode.UNREADABLE, (problem,)) from error


def _read(document: Document, content: bytes | None, apart: bool) -> ParsedDocument:
    """Return the text and type of a document. Raises `Permanent` if it cannot be read."""
    found = read(document.source, document.text if content is None else content, document.type, apart=apart)
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
