"""Blobs: large content in parts, each part once, known by its hash within a project and scanned when it is whole."""

import asyncio
import hashlib

from counterpoint.guard.detector import scan
from counterpoint.memory.database import Database
from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.memory import PutPart, PutReply
from counterpoint.proto.messages import PART_BYTES, Blob

_BEGIN = """
INSERT INTO blobs (project, sha256, bytes) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING
"""
_STATE = "SELECT bytes, complete FROM blobs WHERE project = $1 AND sha256 = $2"
_PUT = """
INSERT INTO blob_parts (project, sha256, part, content) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING
"""
_PARTS = "SELECT part FROM blob_parts WHERE project = $1 AND sha256 = $2 ORDER BY part"
_CONTENT = "SELECT content FROM blob_parts WHERE project = $1 AND sha256 = $2 ORDER BY part"
_WHOLE = "UPDATE blobs SET complete = true WHERE project = $1 AND sha256 = $2"
_DROP_PARTS = "DELETE FROM blob_parts WHERE project = $1 AND sha256 = $2"
_DROP = "DELETE FROM blobs WHERE project = $1 AND sha256 = $2"


class Blobs:
    """Takes parts in any order, as often as they come; an upload that broke off goes on with what is missing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, request: PutPart) -> PutReply:
        """Keep one part. Raises `Permanent` for a part of the wrong size, content of another hash, or a secret."""
        project, digest = request.origin.project, bytes.fromhex(request.sha256)
        parts = -(-request.bytes // PART_BYTES)
        if request.content is not None:
            _check_part(request, parts)
        async with self._database.writing(project) as connection:
            await connection.execute(_BEGIN, project, digest, request.bytes)
            known = await connection.fetchrow(_STATE, project, digest)
            if known is None or known["bytes"] != request.bytes:
                raise Permanent("invalid", (Problem(field="bytes", problem="was another number before"),))
            if known["complete"]:
                return PutReply(received=tuple(range(parts)), blob=_blob(request))
            if request.content is not None:
                await connection.execute(_PUT, project, digest, request.part, request.content)
            received = tuple(row["part"] for row in await connection.fetch(_PARTS, project, digest))
            if len(received) < parts:
                return PutReply(received=received)
            content = b"".join(row["content"] for row in await connection.fetch(_CONTENT, project, digest))
            fault = await asyncio.to_thread(_fault, content, request.sha256)
            if fault is None:
                await connection.execute(_WHOLE, project, digest)
                return PutReply(received=received, blob=_blob(request))
            await connection.execute(_DROP_PARTS, project, digest)
            await connection.execute(_DROP, project, digest)
        raise fault

    async def text(self, project: str, blob: Blob) -> str:
        """The content of a whole blob as text. Raises `Permanent` when it is not there or no text."""
        digest = bytes.fromhex(blob.sha256)
        async with self._database.snapshot(project) as connection:
            known = await connection.fetchrow(_STATE, project, digest)
            if known is None or not known["complete"]:
                raise Permanent("invalid", (Problem(field="blob", problem="is not uploaded"),))
            content = b"".join(row["content"] for row in await connection.fetch(_CONTENT, project, digest))
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise Permanent("invalid", (Problem(field="blob", problem="is no UTF-8 text"),)) from error


def _blob(request: PutPart) -> Blob:
    return Blob(blob=f"blob-{request.sha256[:32]}", sha256=request.sha256, bytes=request.bytes)


def _check_part(request: PutPart, parts: int) -> None:
    if request.part >= parts:
        raise Permanent("invalid", (Problem(field="part", problem=f"there are {parts} parts"),))
    wanted = PART_BYTES if request.part < parts - 1 else request.bytes - PART_BYTES * (parts - 1)
    if len(request.content or b"") != wanted:
        raise Permanent("invalid", (Problem(field="content", problem=f"must have {wanted} bytes"),))


def _fault(content: bytes, sha256: str) -> Permanent | None:
    if hashlib.sha256(content).hexdigest() != sha256:
        return Permanent("invalid", (Problem(field="content", problem="has another hash than was announced"),))
    findings = scan(content.decode(errors="replace"))
    if findings:
        problem = f"holds what looks like a {findings[0].type}"
        return Permanent("sensitive", (Problem(field="content", problem=problem),))
    return None
