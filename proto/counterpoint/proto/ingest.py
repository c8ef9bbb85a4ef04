"""Handing documents in: whole, or in parts, and what became of each."""

import base64
from typing import Annotated, Any, Literal

from pydantic import Base64Bytes, EncodedBytes, EncoderProtocol, Field

from counterpoint.proto.incidents import PastIncident
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
"""What a document is read as."""


TITLE_CHARS = 500


class _Base64(EncoderProtocol):
    """Base64 as it is on the wire, and nothing else: what is no base64 is refused, not passed over."""

    @classmethod
    def decode(cls, data: bytes) -> bytes:
        try:
            return base64.b64decode(data, validate=True)
        except ValueError as error:
            raise ValueError(f"is no base64: {error}") from error

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return base64.b64encode(value)

    @classmethod
    def get_json_format(cls) -> Literal["base64"]:
        return "base64"


FileBytes = Annotated[bytes, EncodedBytes(encoder=_Base64)]
"""The bytes of a file; base64 on the wire."""


class PutPart(Shape):
    """One part of a blob of `bytes` bytes, known by its sha256 within the project; no `content`: only a question."""

    origin: Origin
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(ge=1, le=64 * 1024 * 1024)
    part: int = Field(ge=0)
    content: Base64Bytes | None = None


class PutReply(Shape):
    """Which parts memory has, and the blob once it is whole and was found harmless."""

    received: tuple[int, ...] = ()
    blob: Blob | None = None
    refusal: Refusal | None = None


class Document(Shape):
    """A text to remember: in `text`, as bytes that memory reads in `content`, or either uploaded before as `blob`.

    `source` is its path or address and its identity within the project. `root` is the folder or repository it was
    found in. `gone`: it is there no more, and is deleted if that is where it was found. `untrusted`: who hands it in
    does not vouch for it; it is found and cited, lifts no confidence, and nothing in it is proposed.
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
    """The run that documents are a part of: how many it has, and how many of them were handed in before these."""

    job_id: Id
    documents: int = Field(ge=0)
    done: int = Field(ge=0)


class JobProgress(Shape):
    """How far a job has come: its documents, how many of them are done and how, their chunks, and how many texts were
    embedded for them."""

    state: Literal["running", "done"]
    documents: int
    done: int
    by_status: dict[str, int] = {}
    chunks: int = 0
    embedded: int = 0


class IngestRequest(Shape):
    """Documents to ingest, past incidents, rows of the provider index."""

    origin: Origin
    documents: tuple[Document, ...] = ()
    incidents: tuple[PastIncident, ...] = ()
    providers: tuple[Provider, ...] = ()
    job: Job | None = None


class Ingested(Shape):
    """What became of one document. One under `quarantined` is kept but not found until `problem` has been released.

    `problem` of one that is taken says what of it was not read, or was not read as what it was meant to be.
    """

    source: str
    document_id: str | None = None
    status: Literal["added", "replaced", "unchanged", "deleted", "quarantined", "refused"]
    chunks: int = 0
    embedded: int = 0
    problem: str | None = None


class IngestReply(Shape):
    """One `Ingested` per document, one `Recorded` per incident and per provider, each in their order."""

    documents: tuple[Ingested, ...] = ()
    refusal: Refusal | None = None
    incidents: tuple["Recorded", ...] = ()
    providers: tuple["Recorded", ...] = ()


class Recorded(Shape):
    """What became of a record that was handed in whole; `id` is the record's, also where it was refused."""

    id: str
    status: Literal["added", "replaced", "unchanged", "refused"]
    problem: str | None = None
