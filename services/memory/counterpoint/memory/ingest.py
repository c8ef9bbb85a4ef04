"""Ingest: a document becomes chunks with vectors; what did not change is not embedded or written.

A document is written in steps, so that nobody waits for the whole of it, and its own record in the last one: until then
it is not what `documents` says it is. When it is asked for again after a step that failed, or after a restart, what is
written already does not differ any more, and the rest follows.
"""

import asyncio
import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from weakref import WeakValueDictionary

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
from counterpoint.memory.rows import Prepared, canonical
from counterpoint.memory.search import Search
from counterpoint.proto.errors import Conflict, Permanent, Problem
from counterpoint.proto.ids import derived_id
from counterpoint.proto.memory import Commit, Document, Ingested, Origin, Write

log = structlog.get_logger()

DOCUMENT_LIMIT_CHARS = 8 * 1024 * 1024
STEP_WRITES = 200
"""How many records are written at once: as many as the announcement of a commit names."""
_RETRIES = 3

_KNOWN = """
SELECT store, id, version, body, sha256 FROM records WHERE project = $1 AND store = 'documents' AND id = $2
UNION ALL
SELECT store, id, version, NULL, CASE WHEN body IS NOT NULL THEN sha256 END FROM records
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
    """A record's version, 0 when there is none; the body of a document, and the hash of the body of a chunk: None when
    it was deleted."""

    version: int = 0
    body: dict[str, Any] | None = None
    sha256: bytes | None = None


@dataclass(frozen=True, slots=True)
class _Pieces:
    """What a document is to become: its record and those of its chunks by id. `problem` is the chunker's."""

    body: dict[str, Any]
    chunks: dict[str, dict[str, Any]]
    problem: str | None


class Ingest:
    """Ingests at most `parallel` documents beside each other, and each by one request at a time.

    One process is active, so that a lock in RAM keeps the steps of two requests apart.
    """

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
        self._under_way: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def documents(self, origin: Origin, integrity: int, documents: Sequence[Document]) -> tuple[Ingested, ...]:
        """What became of each document; one that is refused does not stop the others. Raises `Transient`."""
        return tuple([await self._document(origin, integrity, document) for document in documents])

    async def _document(self, origin: Origin, integrity: int, document: Document) -> Ingested:
        alone = self._under_way.setdefault((origin.project, document.source), asyncio.Lock())
        try:
            async with alone, self._turn:
                for _ in range(_RETRIES):
                    try:
                        return await self._replace(origin, integrity, document)
                    except Conflict:
                        continue
            raise Permanent("busy", (Problem(field="source", problem="is being ingested by somebody else"),))
        except Permanent as error:
            problem = "; ".join(f"{p.field} {p.problem}" for p in error.problems) or error.code
            return Ingested(source=document.source, status="refused", problem=problem)

    async def _replace(self, origin: Origin, integrity: int, document: Document) -> Ingested:
        if document.blob is not None:
            text = await self._blobs.text(origin.project, document.blob)
            document = document.model_copy(update={"text": text, "blob": None})
        document_id = "doc-" + hashlib.sha256(document.source.encode()).hexdigest()[:32]
        pieces = await asyncio.to_thread(_cut, document, document_id, origin)
        known = await self._known(origin.project, document_id)
        writes = await asyncio.to_thread(_differences, known, pieces.chunks)
        before = known.get(("documents", document_id), _Known())
        result = Ingested(
            source=document.source,
            document_id=document_id,
            status="added" if before.body is None else "replaced",
            chunks=len(pieces.chunks),
            problem=pieces.problem,
        )
        if before.body is not None and not writes and _same(before.body, pieces.body):
            return result.model_copy(update={"status": "unchanged", "problem": None})
        writes.append(Write(store="documents", id=document_id, body=pieces.body, expect=before.version))
        embedded = 0
        for start in range(0, len(writes), STEP_WRITES):
            embedded += await self._step(origin, integrity, pieces, writes[start : start + STEP_WRITES])
        log.info("document.ingested", document_id=document_id, chunks=len(pieces.chunks), embedded=embedded)
        return result.model_copy(update={"embedded": embedded})

    async def _known(self, project: str, document_id: str) -> dict[tuple[str, str], _Known]:
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_KNOWN, project, document_id)
        return {(row["store"], row["id"]): _Known(row["version"], row["body"], row["sha256"]) for row in rows}

    async def _step(self, origin: Origin, integrity: int, pieces: _Pieces, writes: Sequence[Write]) -> int:
        """Apply some of a document's writes; how many texts were embedded for them.

        The step is known by its content and by the version that it changes: what is asked again is applied once, and
        another text under the same source in the same request is another step.
        """
        first = writes[0]
        inbound = derived_id(origin.message_id, "ingest", pieces.body["sha256"], first.id, first.expect)
        origin = origin.model_copy(update={"message_id": inbound})
        prepared = await asyncio.to_thread(self._prepared, origin, integrity, writes)
        bodies = [write.body for write in writes if write.store == "chunks" and write.body is not None]
        vectors, embedded = await self._vectors(origin.project, [body["text"] for body in bodies])
        await self._committer.apply(await asyncio.to_thread(self._with_vectors, prepared, bodies, vectors))
        return embedded

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

    def _with_vectors(self, prepared: Prepared, bodies: Sequence[dict[str, Any]], vectors: Sequence[Any]) -> Prepared:
        changed = [row for row in prepared.writes if row.store == "chunks" and row.body is not None]
        rows = tuple(
            self._search.row(
                "chunks", row.id, row.expect + 1, body["source"], row.label, body["text"], body["context"], vector
            )
            for row, body, vector in zip(changed, bodies, vectors, strict=True)
        )
        return dataclasses.replace(prepared, vectors=rows, model=self._search.model_id)

    async def _vectors(self, project: str, texts: Sequence[str]) -> tuple[list[Any], int]:
        digests = [hashlib.sha256(text.encode()).digest() for text in texts]
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_CACHED, project, self._search.model_id, list(set(digests)))
        known = {bytes(row["sha256"]): np.asarray(row["embedding"].to_numpy(), np.float32) for row in rows}
        missing = {d: text for d, text in zip(digests, texts, strict=True) if d not in known}
        if missing:
            made = await self._search.embed_texts(list(missing.values()))
            known |= zip(missing, made, strict=True)
            as_text = await asyncio.to_thread(lambda: [str(vector.tolist()) for vector in made])
            async with self._database.writing(project) as connection:
                await connection.execute(_CACHE, project, self._search.model_id, list(missing), as_text)
        return [known[d] for d in digests], len(missing)


def _cut(document: Document, document_id: str, origin: Origin) -> _Pieces:
    """Raises `Permanent` for a document that is not taken."""
    _check(document)
    chunked = chunk(document.text, document.type or detect(document.source, document.text))
    chunks = {
        f"{document_id}-{n:05d}": _chunk_body(document, document_id, chunked, n) for n in range(len(chunked.chunks))
    }
    return _Pieces(_body(document, document_id, chunked, origin), chunks, chunked.problem)


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
        if before.sha256 != hashlib.sha256(canonical(body).encode()).digest():
            writes.append(Write(store="chunks", id=chunk_id, body=body, expect=before.version))
    for (store, chunk_id), before in known.items():
        if store == "chunks" and chunk_id not in wanted and before.sha256 is not None:
            writes.append(Write(store="chunks", id=chunk_id, body=None, expect=before.version))
    return writes
