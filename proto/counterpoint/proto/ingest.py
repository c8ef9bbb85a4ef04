"""Ingestion of documents, incidents and providers, and blob uploads in parts."""

import base64
from typing import Annotated, Any, Literal

from pydantic import Base64Bytes, EncodedBytes, EncoderProtocol, Field

from counterpoint.proto.incidents import PastIncident
from counterpoint.proto.lessons import PastLesson
from counterpoint.proto.memory import Origin, Refusal
from counterpoint.proto.messages import Blob, Id, Shape
from counterpoint.proto.providers import Provider

ContentType = Literal[
    "markdown",
    "restructuredtext",
    "python",
    "javascript",
    "typescript",
    "text",
    "pdf",
    "html",
    "notebook",
    "conversation",
]
"""The format of a document."""


TITLE_CHARS = 500


def chunk_id(document_id: str, n: int) -> str:
    """Return the id of the `n`th chunk of a document, from 0."""
    return f"{document_id}-{n:05d}"


class _Base64(EncoderProtocol):
    """Strict base64: other characters are refused, not skipped."""

    @classmethod
    def decode(cls, data: bytes) -> bytes:
        try:
            return base64.b64decode(data, validate=True)
        except ValueError as error:
            raise ValueError(f"is not valid base64: {error}") from error

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return base64.b64encode(value)

    @classmethod
    def get_json_format(cls) -> Literal["base64"]:
        return "base64"


FileBytes = Annotated[bytes, EncodedBytes(encoder=_Base64)]
"""The bytes of a file; base64 on the wire."""


class PutPart(Shape):
    """One part of a blob of `bytes` bytes, identified by its sha256; without `content` a status query."""

    origin: Origin
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(ge=1, le=64 * 1024 * 1024)
    part: int = Field(ge=0)
    content: Base64Bytes | None = None


class PutReply(Shape):
    """The parts received, and the blob once it is complete and has passed screening."""

    received: tuple[int, ...] = ()
    blob: Blob | None = None
    refusal: Refusal | None = None


class Document(Shape):
    """A document to ingest: as `text`, as file bytes in `content`, or as an uploaded `blob`.

    `source` is its path or address and its identity within the project. `root` is the folder or repository it was found
    in. `gone`: it no longer exists, and is deleted if it was found in `root`. `untrusted`: the caller does not vouch
    for it; it is found and cited, but adds no confidence and is never proposed.
    """

    source: str = Field(min_length=1, max_length=2_000)
    text: str = ""
    content: FileBytes | None = None
    root: str | None = Field(default=None, min_length=1, max_length=2_000)
    gone: bool = False
    blob: Blob | None = None
    type: ContentType | None = None
    title: str | None = Field(default=None, max_length=TITLE_CHARS)
    metadata: dict[str, Any] = {}
    untrusted: bool = False


class Job(Shape):
    """The ingest job of a request: its number of documents, and how many preceded this request."""

    job_id: Id
    documents: int = Field(ge=0)
    done: int = Field(ge=0)


class JobProgress(Shape):
    """The progress of a job: documents in total, done and by status, chunks, and texts embedded."""

    state: Literal["running", "done"]
    documents: int
    done: int
    by_status: dict[str, int] = {}
    chunks: int = 0
    embedded: int = 0


class IngestRequest(Shape):
    """Documents, past incidents, provider rows and lessons to ingest."""

    origin: Origin
    documents: tuple[Document, ...] = ()
    incidents: tuple[PastIncident, ...] = ()
    providers: tuple[Provider, ...] = ()
    lessons: tuple[PastLesson, ...] = ()
    job: Job | None = None


class DocumentResult(Shape):
    """The result of one document. A `quarantined` one is stored but not found until the `problem` is released.

    `problem` of an ingested one names the parts that were skipped or read in another format.
    """

    source: str
    document_id: str | None = None
    status: Literal["added", "replaced", "unchanged", "deleted", "quarantined", "refused"]
    chunks: int = 0
    embedded: int = 0
    problem: str | None = None


class IngestReply(Shape):
    """One result per document, incident, provider and attempt of a lesson, in the order of the request."""

    documents: tuple[DocumentResult, ...] = ()
    refusal: Refusal | None = None
    incidents: tuple["RecordResult", ...] = ()
    providers: tuple["RecordResult", ...] = ()
    lessons: tuple["RecordResult", ...] = ()


class RecordResult(Shape):
    """The result of one incident, provider or attempt of a lesson; `id` is the record's id, even if refused."""

    id: str
    status: Literal["added", "replaced", "unchanged", "refused"]
    problem: str | None = None
