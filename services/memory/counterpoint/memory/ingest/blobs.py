"""Blobs: large content, uploaded in parts, addressed by its hash within a project, and scanned when it is complete.

A blob cannot be redacted, because its hash is its name. Content that is blocked in a document is refused; content that
a document must not contain is redacted when the document is written (`Ingest`).
"""

import asyncio
import hashlib

from counterpoint.guard.policy import Policy
from counterpoint.memory.access.releases import Releases
from counterpoint.memory.access.screening import Screen
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.ingest import PutPart, PutReply
from counterpoint.proto.messages import PART_BYTES, Blob

_SQL = load_statements(__package__)


class Blobs:
    """Stores parts in any order and any number of times; an interrupted upload continues with the missing parts."""

    def __init__(self, database: Database, policy: Policy, releases: Releases) -> None:
        self._database = database
        self._policy = policy
        self._releases = releases

    async def put(self, request: PutPart) -> PutReply:
        """Store one part. Raises `Permanent` for a part of the wrong size, content of another hash, or a secret."""
        project, digest = request.origin.project, bytes.fromhex(request.sha256)
        parts = -(-request.bytes // PART_BYTES)
        if request.content is not None:
            _check_part(request, parts)
        screen = await self._releases.of(project)
        async with self._database.writing(project) as connection:
            await connection.execute(_SQL["add_blob"], project, digest, request.bytes)
            known = await connection.fetchrow(_SQL["blob"], project, digest)
            if known is None or known["bytes"] != request.bytes:
                raise Permanent(
                    ErrorCode.INVALID, (Problem(field="bytes", problem="differs from the number given before"),)
                )
            if known["complete"]:
                return PutReply(received=tuple(range(parts)), blob=_blob(request))
            if request.content is not None:
                await connection.execute(_SQL["add_blob_part"], project, digest, request.part, request.content)
            received = tuple(row["part"] for row in await connection.fetch(_SQL["blob_parts"], project, digest))
            if len(received) < parts:
                return PutReply(received=received)
            content = b"".join(row["content"] for row in await connection.fetch(_SQL["blob_content"], project, digest))
            fault = await asyncio.to_thread(self._fault, content, request.sha256, screen)
            if fault is None:
                await connection.execute(_SQL["complete_blob"], project, digest)
                return PutReply(received=received, blob=_blob(request))
            await connection.execute(_SQL["delete_blob_parts"], project, digest)
            await connection.execute(_SQL["delete_blob"], project, digest)
        raise fault

    async def content(self, project: str, blob: Blob) -> bytes:
        """Return the content of a complete blob. Raises `Permanent` if it is missing or does not match its hash."""
        digest = bytes.fromhex(blob.sha256)
        async with self._database.snapshot(project) as connection:
            known = await connection.fetchrow(_SQL["blob"], project, digest)
            if known is None or not known["complete"]:
                raise Permanent(ErrorCode.INVALID, (Problem(field="blob", problem="is not uploaded"),))
            content = b"".join(row["content"] for row in await connection.fetch(_SQL["blob_content"], project, digest))
        if (await asyncio.to_thread(hashlib.sha256, content)).digest() != digest:
            raise Permanent(ErrorCode.INVALID, (Problem(field="blob", problem="is not what was uploaded"),))
        return content

    async def keep(self, project: str, text: str) -> Blob:
        """Store a text unchanged, readable by memory alone."""
        content = text.encode()
        sha256 = hashlib.sha256(content).digest()
        async with self._database.writing(project) as connection:
            await connection.execute(_SQL["add_blob"], project, sha256, len(content))
            for part in range(-(-len(content) // PART_BYTES)):
                piece = content[part * PART_BYTES : (part + 1) * PART_BYTES]
                await connection.execute(_SQL["add_blob_part"], project, sha256, part, piece)
            await connection.execute(_SQL["complete_blob"], project, sha256)
        return Blob(blob=f"blob-{sha256.hex()[:32]}", sha256=sha256.hex(), bytes=len(content))

    async def drop(self, project: str, sha256: str) -> None:
        """Delete a blob."""
        async with self._database.writing(project) as connection:
            await connection.execute(_SQL["delete_blob_parts"], project, bytes.fromhex(sha256))
            await connection.execute(_SQL["delete_blob"], project, bytes.fromhex(sha256))

    def _fault(self, content: bytes, sha256: str, screen: Screen) -> Permanent | None:
        if hashlib.sha256(content).hexdigest() != sha256:
            return Permanent(ErrorCode.INVALID, (Problem(field="content", problem="does not match sha256"),))
        body = {"content": content.decode(errors="replace")}
        try:
            judged = screen.judge(self._policy, body, ("content",), self._policy.store_level("documents"))
        except Permanent as error:
            return error
        if judged.verdict == "block":
            return Permanent(ErrorCode.SENSITIVE, screen.problems(body, judged))
        return None


def _blob(request: PutPart) -> Blob:
    return Blob(blob=f"blob-{request.sha256[:32]}", sha256=request.sha256, bytes=request.bytes)


def _check_part(request: PutPart, parts: int) -> None:
    if request.part >= parts:
        raise Permanent(
            ErrorCode.INVALID, (Problem(field="part", problem=f"must be below {parts}, the number of parts"),)
        )
    size = PART_BYTES if request.part < parts - 1 else request.bytes - PART_BYTES * (parts - 1)
    if len(request.content or b"") != size:
        raise Permanent(ErrorCode.INVALID, (Problem(field="content", problem=f"must have {size} bytes"),))
