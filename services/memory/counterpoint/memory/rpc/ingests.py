"""Ingest requests: documents, past incidents, lessons and provider rows, and parts of uploads."""

from counterpoint.guard.names import has_secret
from counterpoint.memory.ingest.blobs import Blobs
from counterpoint.memory.ingest.bulk_import import BulkImport
from counterpoint.memory.ingest.documents import Ingest
from counterpoint.memory.record.disk import DiskSpace
from counterpoint.memory.rpc.authority import Authority
from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.ingest import IngestReply, IngestRequest, PutPart, PutReply, RecordResult
from counterpoint.proto.lessons import PastLesson
from counterpoint.proto.memory import Origin


class IngestHandler:
    """Executes ingest requests and takes parts of uploads."""

    def __init__(
        self, authority: Authority, documents: Ingest, bulk: BulkImport, blobs: Blobs, room: DiskSpace
    ) -> None:
        self._authority = authority
        self._documents = documents
        self._bulk = bulk
        self._blobs = blobs
        self._room = room

    async def execute(self, caller: str, request: IngestRequest) -> IngestReply:
        """Ingest documents, past incidents and provider rows; report on each. Raises `Denied`, `Permanent` or
        `Transient`."""
        origin = request.origin
        integrity = await self._authority.ingests(caller, origin)
        if request.job is not None and has_secret(request.job.job_id):
            problem = "contains what looks like a secret, and cannot be redacted because it identifies the job"
            raise Permanent(ErrorCode.SENSITIVE, (Problem(field="job.job_id", problem=problem),))
        return IngestReply(
            documents=await self._documents.documents(origin, integrity, request.documents, request.job),
            incidents=await self._bulk.incidents(origin, integrity, request.incidents),
            providers=await self._bulk.providers(origin, integrity, request.providers),
            lessons=await self._lessons(origin, integrity, request.lessons),
        )

    async def _lessons(
        self, origin: Origin, integrity: int, lessons: tuple[PastLesson, ...]
    ) -> tuple[RecordResult, ...]:
        importer = await self._authority.asker(origin)
        if importer is None:
            raise Denied(ErrorCode.ROLE, f"the role ingest in project {origin.project}")
        return await self._bulk.lessons(origin, integrity, importer, lessons)

    async def put(self, caller: str, request: PutPart) -> PutReply:
        """Store a part of an upload; report the parts received. Raises `Denied`, `Permanent`, or `Away` on a full
        disk."""
        await self._authority.ingests(caller, request.origin)
        self._room.check()
        return await self._blobs.put(request)
