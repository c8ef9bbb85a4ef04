"""Ingest: a document becomes chunks with vectors, in one commit; what did not change is not embedded or written."""

import asyncio
import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import structlog

from counterpoint.guard.detector import scan
from counterpoint.guard.policy import Policy
from counterpoint.memory import diode
from counterpoint.memory.blobs import Blobs
from counterpoint.memory.committer import Committer
from counterpoint.memory.database import Database
from counterpoint.memory.prepare import prepare
from counterpoint.memory.provenance import Memories, Provenance
from counterpoint.memory.retrieval.chunk import Chunked, chunk, detect
from counterpoint.memory.rows import Prepared
from counterpoint.memory.search import Search
from counterpoint.proto.errors import Conflict, Permanent, Problem
from counterpoint.proto.ids import derived_id
from counterpoint.proto.memory import Commit, Document, Ingested, Origin, Write

log = structlog.get_logger()

DOCUMENT_LIMIT_CHARS = 8 * 1024 * 1024
_RETRIES = 3

_KNOWN = """
SELECT store, id, version, body FROM records WHERE project = $1 AND store = 'documents' AND id = $2
UNION ALL
SELECT store, id, version, body FROM records
WHERE project = $1 AND store = 'chunks' AND id BETWEEN $2 || '-0' AND $2 || '-9999999999'
"""
_CACHED = "SELECT sha256, embedding FROM embeddings WHERE project = $1 AND model = $2 AND sha256 = ANY ($3)"
_CACHE = """
INSERT INTO embeddings (project, model, sha256, embedding)
SELECT $1, $2, sha256, embedding::vector FROM unnest($3::bytea[], $4::text[]) AS new(sha256, embedding)
ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class _Known:
    """A record's version, 0 when there is none, and its body, None when it was deleted."""

    version: int = 0
    body: dict[str, Any] | None = None


class Ingest:
    """Ingests documents one at a time, at most `parallel` requests beside each other."""

    def __init__(
        self,
        database: Database,
        policy: Policy,
        search: Search,
        committer: Committer,
        blobs: Blobs,
        *,
        parallel: int = 2,
    ) -> None:
        self._database = database
        self._policy = policy
        self._search = search
        self._committer = committer
        self._blobs = blobs
        self._turn = asyncio.Semaphore(parallel)

    async def documents(self, origin: Origin, integrity: int, documents: Sequence[Document]) -> tuple[Ingested, ...]:
        """What became of each document; one that is refused does not stop the others. Raises `Transient`."""
        async with self._turn:
            return tuple([await self._document(origin, integrity, document) for document in documents])

    async def _document(self, origin: Origin, integrity: int, document: Document) -> Ingested:
        try:
            for attempt in range(_RETRIES):
                try:
                    return await self._replace(origin, integrity, document, attempt)
                except Conflict:
                    continue
            raise Permanent("busy", (Problem(field="source", problem="is being ingested by somebody else"),))
        except Permanent as error:
            problem = "; ".join(f"{p.field} {p.problem}" for p in error.problems) or error.code
            return Ingested(source=document.source, status="refused", problem=problem)

    async def _replace(self, origin: Origin, integrity: int, document: Document, attempt: int) -> Ingested:
        if document.blob is not None:
            text = await self._blobs.text(origin.project, document.blob)
            document = document.model_copy(update={"text": text, "blob": None})
        _check(document)
        document_id = "doc-" + hashlib.sha256(document.source.encode()).hexdigest()[:32]
        known = await self._known(origin.project, document_id)
        chunked = chunk(document.text, document.type or detect(document.source, document.text))
        body = _body(document, document_id, chunked, origin)
        before = known.get(("documents", document_id), _Known())
        wanted = {
            f"{document_id}-{n:05d}": _chunk_body(document, document_id, chunked, n) for n in range(len(chunked.chunks))
        }
        writes = _differences(known, wanted)
        if before.body is not None and not writes and _same(before.body, body):
            return Ingested(source=document.source, document_id=document_id, status="unchanged", chunks=len(wanted))
        writes.append(Write(store="documents", id=document_id, body=body, expect=before.version))
        inbound = derived_id(origin.message_id, "ingest", document.source, attempt)
        prepared = self._prepared(origin.model_copy(update={"message_id": inbound}), integrity, writes)
        prepared, embedded = await self._embedded(prepared, wanted, document.source)
        await self._committer.apply(prepared)
        log.info("document.ingested", document_id=document_id, chunks=len(wanted), embedded=embedded)
        status = "added" if before.body is None else "replaced"
        return Ingested(
            source=document.source,
            document_id=document_id,
            status=status,
            chunks=len(wanted),
            embedded=embedded,
            problem=chunked.problem,
        )

    async def _known(self, project: str, document_id: str) -> dict[tuple[str, str], _Known]:
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_KNOWN, project, document_id)
        return {(row["store"], row["id"]): _Known(row["version"], row["body"]) for row in rows}

    def _prepared(self, origin: Origin, integrity: int, writes: Sequence[Write]) -> Prepared:
        now = datetime.now(UTC)
        return prepare(
            self._policy,
            diode.own(self._policy, origin.project, origin.message_id, now),
            origin,
            Commit(step="ingest", writes=tuple(writes)),
            now=now,
            caused_by=Provenance(integrity=integrity),
            memories=Memories(),
            task_version=None,
        )

    async def _embedded(
        self, prepared: Prepared, wanted: dict[str, dict[str, Any]], source: str
    ) -> tuple[Prepared, int]:
        changed = [row for row in prepared.writes if row.store == "chunks" and row.body is not None]
        texts = [wanted[row.id]["text"] for row in changed]
        vectors, embedded = await self._vectors(prepared.project, texts)
        rows = tuple(
            self._search.row(
                "chunks",
                row.id,
                row.expect + 1,
                source,
                row.label,
                wanted[row.id]["text"],
                wanted[row.id]["context"],
                vector,
            )
            for row, vector in zip(changed, vectors, strict=True)
        )
        return dataclasses.replace(prepared, vectors=rows, model=self._search.model_id), embedded

    async def _vectors(self, project: str, texts: Sequence[str]) -> tuple[list[Any], int]:
        digests = [hashlib.sha256(text.encode()).digest() for text in texts]
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_CACHED, project, self._search.model_id, list(set(digests)))
        known = {bytes(row["sha256"]): np.asarray(row["embedding"].to_numpy(), np.float32) for row in rows}
        missing = {d: text for d, text in zip(digests, texts, strict=True) if d not in known}
        if missing:
            made = await self._search.embed_texts(list(missing.values()))
            fresh = dict(zip(missing, made, strict=True))
            known |= fresh
            async with self._database.writing(project) as connection:
                as_text = [str(vector.tolist()) for vector in fresh.values()]
                await connection.execute(_CACHE, project, self._search.model_id, list(fresh), as_text)
        return [known[d] for d in digests], len(missing)


def _check(document: Document) -> None:
    if "\x00" in document.text:
        raise Permanent("invalid", (Problem(field="text", problem="holds a NUL character: is it binary?"),))
    if len(document.text) > DOCUMENT_LIMIT_CHARS:
        problem = f"{len(document.text)} characters, more than {DOCUMENT_LIMIT_CHARS}"
        raise Permanent("too_large", (Problem(field="text", problem=problem),))
    if not document.text.strip():
        raise Permanent("empty", (Problem(field="text", problem="is empty"),))
    findings = scan(document.text)
    if findings:
        line = document.text.count("\n", 0, findings[0].start) + 1
        problem = f"holds what looks like a {findings[0].type} in line {line}"
        raise Permanent("sensitive", (Problem(field="text", problem=problem),))


def _body(document: Document, document_id: str, chunked: Chunked, origin: Origin) -> dict[str, Any]:
    return {
        "document_id": document_id,
        "source": document.source,
        "title": document.title or document.source,
        "type": chunked.type,
        "sha256": hashlib.sha256(document.text.encode(errors="replace")).hexdigest(),
        "chars": len(document.text),
        "chunks": len(chunked.chunks),
        "ingested_by": origin.principal or "memory",
        "metadata": document.metadata,
    }


def _chunk_body(document: Document, document_id: str, chunked: Chunked, n: int) -> dict[str, Any]:
    piece = chunked.chunks[n]
    return {
        "document_id": document_id,
        "source": document.source,
        "title": document.title or document.source,
        "type": chunked.type,
        "text": piece.text,
        "context": piece.context,
        "start": piece.start,
        "end": piece.end,
    }


def _same(known: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(known.get(name) == wanted[name] for name in ("sha256", "title", "type", "metadata"))


def _differences(known: dict[tuple[str, str], _Known], wanted: dict[str, dict[str, Any]]) -> list[Write]:
    """New versions of the chunks that changed, and deletions of those that are gone."""
    writes = []
    for chunk_id, body in wanted.items():
        before = known.get(("chunks", chunk_id), _Known())
        if before.body != body:
            writes.append(Write(store="chunks", id=chunk_id, body=body, expect=before.version))
    for (store, chunk_id), before in known.items():
        if store == "chunks" and chunk_id not in wanted and before.body is not None:
            writes.append(Write(store="chunks", id=chunk_id, body=None, expect=before.version))
    return writes
