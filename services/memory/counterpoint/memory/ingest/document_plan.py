"""Document plans: the record and chunks of a document, and their differences from the stored ones. Pure."""

import hashlib
from dataclasses import dataclass
from typing import Any

from counterpoint.guard.field_detector import FieldFinding
from counterpoint.guard.judge import Judgement, redacted_body
from counterpoint.guard.policy import Policy
from counterpoint.memory.access.screening import Screen, first_places
from counterpoint.memory.ingest.chunk import ChunkedDocument, chunk
from counterpoint.memory.record.plan import canonical, storable
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.ingest import ContentType, Document, chunk_id
from counterpoint.proto.memory import Origin, Write


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record's version, 0 if there is none; the body of a document, and the hash of the body of a chunk, None if it
    was deleted."""

    version: int = 0
    body: dict[str, Any] | None = None
    sha256: bytes | None = None


@dataclass(frozen=True, slots=True)
class DocumentPlan:
    """Planned document: its record and those of its chunks by id. `problem` is the chunker's, or the reason of a
    quarantine, in which case there are no chunks. `redacted`: the text is not all of the content."""

    body: dict[str, Any]
    chunks: dict[str, dict[str, Any]]
    problem: str | None
    quarantined: bool = False
    redacted: bool = False


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """A document with its parsed text, its type, and a problem of parsing, if any."""

    document: Document
    type: ContentType
    problem: str | None


def cut(policy: Policy, screen: Screen, found: ParsedDocument, document_id: str, origin: Origin) -> DocumentPlan:
    """Plan a parsed document. It is redacted before it is split, so that the same text always gives the same chunks.
    Raises `Permanent` if it is refused."""
    document = found.document
    texts = {"text": document.text, "title": document.title, "metadata": document.metadata}
    label = policy.store_level("documents")
    screen.refuse_name(policy, "source", document.source, label)
    if document.root is not None:
        screen.refuse_name(policy, "root", document.root, label)
    judged = screen.judge(policy, texts, texts, label)
    if judged.verdict == "block":
        raise Permanent(ErrorCode.SENSITIVE, _in_lines(texts, screen, judged))
    if judged.verdict == "quarantine":
        problems = _in_lines(texts, screen, judged)
        stub = document.model_copy(
            update=redacted_body(policy, {key: texts[key] for key in ("title", "metadata")}, texts, label)
        )
        stub_body = _body(stub, document_id, ChunkedDocument(found.type, ()), origin)
        return DocumentPlan(
            {**stub_body, "quarantined": True, "kinds": list(judged.kinds)},
            {},
            "under quarantine: " + "; ".join(f"{p.field} {p.problem}" for p in problems),
            quarantined=True,
        )
    redacted = judged.verdict == "redact"
    document = document.model_copy(update=judged.body)
    chunked = chunk(document.text, found.type, title=document.title or "")
    problem = "; ".join(filter(None, (found.problem, chunked.problem))) or None
    chunks = {}
    for n in range(len(chunked.chunks)):
        body = _chunk_body(document, document_id, chunked, n)
        chunks[chunk_id(document_id, n)] = screen.judge(policy, body, policy.stores["chunks"].text, label).body
    body = _body(document, document_id, chunked, origin)
    storable(canonical(body), f"documents/{document_id}")
    return DocumentPlan(body, chunks, problem, redacted=redacted)


def _in_lines(texts: dict[str, Any], screen: Screen, judged: Judgement) -> tuple[Problem, ...]:
    """Return the problems of a refused document, each with the line of its text."""
    return tuple(
        problem.model_copy(update={"problem": f"{problem.problem} in line {_line(texts['text'], found)}"})
        if found.path == ("text",)
        else problem
        for problem, found in zip(screen.problems(texts, judged), first_places(texts, judged), strict=True)
    )


def _line(text: str, found: FieldFinding) -> int:
    return text.count("\n", 0, found.finding.start) + 1


def _body(document: Document, document_id: str, chunked: ChunkedDocument, origin: Origin) -> dict[str, Any]:
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
        **({"root": document.root} if document.root is not None else {}),
        **({"untrusted": True} if document.untrusted else {}),
    }


def _chunk_body(document: Document, document_id: str, chunked: ChunkedDocument, n: int) -> dict[str, Any]:
    piece = chunked.chunks[n]
    turn_fields = {"speaker": piece.speaker, "around": list(piece.around)} if piece.speaker else {}
    return {
        "document_id": document_id,
        "source": document.source,
        "title": document.title or document.source,
        "type": chunked.type,
        "text": piece.text,
        "context": piece.context,
        "start": piece.start,
        "end": piece.end,
        **turn_fields,
        **({"untrusted": True} if document.untrusted else {}),
    }


def same(known: dict[str, Any], planned: dict[str, Any]) -> bool:
    """Whether the record of a document would not change."""
    return all(
        known.get(name) == planned.get(name)
        for name in ("sha256", "title", "type", "metadata", "quarantined", "root", "untrusted")
    )


def differences(known: dict[tuple[str, str], StoredRecord], planned: dict[str, dict[str, Any]]) -> list[Write]:
    """Return the writes of chunks that changed, and the deletions of chunks that no longer exist."""
    writes = []
    for planned_id, body in planned.items():
        before = known.get(("chunks", planned_id), StoredRecord())
        if before.sha256 != hashlib.sha256(canonical(body).encode()).digest():
            writes.append(Write(store="chunks", id=planned_id, body=body, expect=before.version))
    for (store, known_id), before in known.items():
        if store == "chunks" and known_id not in planned and before.sha256 is not None:
            writes.append(Write(store="chunks", id=known_id, body=None, expect=before.version))
    return writes
