"""Commit plans: the rows of the record, the messages of the log, and the step that contains them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from counterpoint.memory.record.canonical import NUL, canonical
from counterpoint.memory.record.message_bodies import StoredBody
from counterpoint.memory.record.stamps import Provenance
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import CommitReply
from counterpoint.proto.messages import BODY_LIMIT_BYTES

__all__ = [
    "SYSTEM",
    "CommitPlan",
    "PlannedMessage",
    "PlannedWrite",
    "canonical",
    "microseconds",
    "storable",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

SYSTEM = "_system"
"""Project of the system stores; no legal project name."""


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """A record's next version. `body` is canonical JSON, None for a deletion. A restored one has its original position
    (`place`) in the project's order and its original time."""

    store: str
    id: str
    expect: int
    body: str | None
    task_id: str | None
    author: str
    label: int
    integrity: int
    sha256: bytes
    schema_version: int = 1
    place: int | None = None
    at: datetime | None = None

    @property
    def stamps(self) -> list[Any]:
        """Return the columns that decide about its visibility and trust, as the audit log has them."""
        restored = [self.place, microseconds(self.at)] if self.place is not None and self.at is not None else []
        return [self.task_id, self.author, self.label, self.integrity, self.schema_version, *restored]


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """A message for the log and the bus. A `live` one is in no stream and reaches current subscribers only. A
    `structured` one has its envelope in its body; consequences of a `result` are derived from the items that its sender
    used."""

    id: str
    type: str
    subject: str
    task_id: str | None
    versioned: bool
    audience: tuple[str, ...]
    body: str
    label: int
    integrity: int
    due_at: datetime | None
    timer: str | None
    live: bool = False
    structured: bool = False
    result: bool = False
    stored: StoredBody | None = None
    """Its body as it is stored, if that is not the whole."""

    @property
    def stamps(self) -> list[Any]:
        """Return destination and stamps of the message, as the audit leaf contains them."""
        sent = [self.task_id, self.subject, list(self.audience), self.label, self.integrity, self.timer]
        return [*sent, self.due_at and microseconds(self.due_at), self.structured, self.versioned]


@dataclass(frozen=True, slots=True)
class PlannedVector:
    """Row of the vector tier for a record; `embeddings` by model, each in PostgreSQL's text format."""

    store: str
    id: str
    version: int
    source: str
    label: int
    words: str
    exact: tuple[str, ...]
    embeddings: Mapping[str, str]
    type: str
    names: tuple[str, ...]
    chars: int


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """A step ready to be applied; only versions, duplicates and fences are decided by the record.

    A refusal is one too: it has no rows and no step, only its audit leaf. `provenance` is that of its messages, `cause`
    the commit of its inbound message. The `announcement` is not logged: no service consumes it.
    """

    project: str
    commit_id: str
    consumer: str
    message_id: str
    step: str
    last: bool
    fence: int
    task_id: str | None
    task_version: int | None
    ended_ok: bool
    audit: str
    salt: bytes
    reads: str | None
    writes: tuple[PlannedWrite, ...] = ()
    messages: tuple[PlannedMessage, ...] = ()
    announcement: PlannedMessage | None = None
    cancel_timers: tuple[str, ...] = ()
    bound_to: str | None = None
    reply: CommitReply = field(default_factory=lambda: CommitReply(status="done"))
    provenance: Provenance = field(default_factory=Provenance)
    vectors: tuple[PlannedVector, ...] = ()
    traceparent: str | None = None
    cause: str | None = None
    answers: str | None = None
    kind: str = "commit"


def microseconds(moment: datetime) -> int:
    """Return a moment as leaves have it: whole microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def storable(text: str, where: str) -> str:
    """Return `text` if it may be stored and sent. Raises `Permanent` `too_large` or `invalid`."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise Permanent(ErrorCode.INVALID, (Problem(field=where, problem="contains an unpaired surrogate"),)) from error
    if size > BODY_LIMIT_BYTES:
        raise Permanent(
            ErrorCode.TOO_LARGE, (Problem(field=where, problem=f"{size} bytes, more than {BODY_LIMIT_BYTES}"),)
        )
    if "\\u0000" in text and NUL.search(text):
        raise Permanent(ErrorCode.INVALID, (Problem(field=where, problem="contains a NUL character"),))
    return text
