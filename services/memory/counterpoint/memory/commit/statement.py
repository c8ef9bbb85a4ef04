"""The statement that applies the steps of one project in one transaction: its parameters, its faults, its timeout."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import accumulate
from operator import attrgetter
from typing import Any, NamedTuple

import asyncpg

from counterpoint.memory.audit.leaf_body import inbox_reply
from counterpoint.memory.audit.packed_leaf import packed_leaf
from counterpoint.memory.record.answers import packed
from counterpoint.memory.record.database import AWAY
from counterpoint.memory.record.joint_decisions import joint_decisions
from counterpoint.memory.record.message_bodies import StoredBody
from counterpoint.memory.record.plan import CommitPlan, PlannedMessage
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.errors import Away, CounterpointError

_COMMIT = "SELECT * FROM commit_steps($1, $2, $3, $4, $5, $6, $7, $8)"
_STATEMENT_S = 30.0
_WRITE_S = 0.001
"""Timeout per write, in seconds, several times its duration: an erasure or a take-back may have 100,000s of them."""


class Fault(StrEnum):
    """Reasons for which no step of a group is applied. Codes from CP101 on are assigned here, not in SQL."""

    LEASE_LOST = "CP001"
    STEP_KNOWN = "CP002"
    FENCED = "CP003"
    STALE = "CP004"
    EARLY = "CP005"
    TASK_ENDED = "CP006"
    CONFLICT = "CP007"
    OLDER_WRITER = "CP011"
    TOMBSTONE = "CP012"
    OTHER_MODEL = "CP013"
    OVER_LIMIT = "CP014"
    DUPLICATE = "CP101"
    NOT_NOW = "CP102"
    INVALID_DATA = "CP103"


class StepFault(Exception):
    """A group was rolled back: its fault, and the message of the database."""

    def __init__(self, fault: Fault, text: str, detail: str = "") -> None:
        super().__init__(fault, text)
        self.fault = fault
        self.text = text
        self.detail = detail


class LeaseLost(CounterpointError):
    """Another memory process is active now."""


class DiskFull(Away):
    """The disk of the database is full."""


class StepRow(NamedTuple):
    """Parameter of `commit_steps`: a step. The fields are those of the SQL type of the same name, in its order.

    `writes_before` and `messages_before` are the numbers of those of the steps before it.
    """

    id: str
    consumer: str
    message: str
    step: str
    last: bool
    fence: int
    task: str | None
    version: int | None
    ended_ok: bool
    reads: str | None
    cause: str | None
    packed: bytes | None
    audit: str
    packed_audit: bytes | None
    kind: str
    salt: bytes
    outcome: str
    reply: str
    trace: str | None
    writes_before: int
    writes: int
    messages_before: int
    messages: int


class CancelledTimerRow(NamedTuple):
    """Parameter of `commit_steps`: a timer that a step cancels; with a task only a timer of that task."""

    timer: str
    sender: str
    task: str | None


class WriteRow(NamedTuple):
    """Parameter of `commit_steps`: a record's next version, and its joint decision. `number` and `decision_number` are
    their 1-based indexes among all writes."""

    step: int
    number: int
    store: str
    id: str
    expect: int
    body: str | None
    task: str | None
    author: str
    label: int
    integrity: int
    sha: bytes
    schema: int
    place: int | None
    at: datetime | None
    decision_id: str | None
    decision_number: int | None
    decision_sha: bytes | None
    decision: str | None


class MessageRow(NamedTuple):
    """Parameter of `commit_steps`: a message for the log, and messages of decisions that are stored with it.

    `number` and `records` are 1-based indexes among all messages and writes, as are those of the decisions.
    """

    step: int
    number: int
    id: str
    type: str
    subject: str
    task: str | None
    versioned: bool
    audience: tuple[str, ...]
    body: str
    label: int
    integrity: int
    due: datetime | None
    timer: str | None
    live: bool
    structured: bool
    records: tuple[int, ...] | None
    parts: str | None
    decision_ids: tuple[str, ...] | None
    decision_numbers: tuple[int, ...] | None
    decision_records: tuple[int, ...] | None
    decision_subjects: tuple[str, ...] | None


class VectorRow(NamedTuple):
    """Parameter of `commit_steps`: the row of the vector tier beside a record."""

    store: str
    id: str
    version: int
    source: str
    label: int
    words: str
    exact: tuple[str, ...]
    type: str
    names: tuple[str, ...]
    chars: int


class EmbeddingRow(NamedTuple):
    """Parameter of `commit_steps`: an embedding of a vector row, which `vector` gives as a 1-based index."""

    vector: int
    model: str
    embedding: str


def _values(fields: Sequence[str], **attributes: str) -> Callable[[object], tuple[Any, ...]]:
    """Return a getter of the values of some fields; `attributes` maps fields with other names."""
    return attrgetter(*(attributes.get(name, name) for name in fields))


_WRITE = _values(WriteRow._fields[2:-4], task="task_id", sha="sha256", schema="schema_version")
_VECTOR = _values(VectorRow._fields)


def statement_timeout_s(steps: Iterable[CommitPlan]) -> float:
    """Statement timeout, in seconds, for these steps."""
    return _STATEMENT_S + _WRITE_S * sum(len(step.writes) for step in steps)


async def apply_steps(connection: Any, epoch: int, project: str, steps: Sequence[CommitPlan]) -> list[Any]:
    """Apply steps of one project, all or none; return the place and task version of each message they send.

    Raises `StepFault`, `LeaseLost`, `DiskFull`, and `Away` when the database does not answer.
    """
    try:
        rows = list(
            await connection.fetch(
                _COMMIT, epoch, project, *_parameters(project, steps), timeout=statement_timeout_s(steps)
            )
        )
    except asyncpg.DataError as error:
        raise StepFault(Fault.INVALID_DATA, str(error)) from error
    except asyncpg.DiskFullError as error:
        raise DiskFull("the disk of the database is full") from error
    except AWAY as error:
        raise Away(f"the database is unavailable: {type(error).__name__}") from error
    except asyncpg.UniqueViolationError as error:
        raise StepFault(Fault.DUPLICATE, str(error)) from error
    except asyncpg.PostgresError as error:
        if error.sqlstate == Fault.LEASE_LOST:
            raise LeaseLost(str(error)) from error
        invalid = error.sqlstate.startswith(("22", "23", "54"))
        fault = Fault.INVALID_DATA if invalid else Fault.NOT_NOW
        raise StepFault(fault, f"{error.sqlstate}: {error}") from error
    if rows and rows[0]["error_code"] is not None:
        raise StepFault(Fault(rows[0]["error_code"]), rows[0]["error_text"], rows[0]["error_detail"])
    return rows


def _write_rows(project: str, steps: Sequence[CommitPlan]) -> list[WriteRow]:
    rows, before = [], 1
    for n, step in enumerate(steps, 1):
        joint = joint_decisions(project, step.writes)
        joined = {decision.at for decision in joint.values()}
        for index, write in enumerate(step.writes):
            if index in joined:
                continue
            decision: tuple[Any, ...] = (None, None, None, None)
            if index in joint:
                at, fields = joint[index]
                decision = (step.writes[at].id, before + at, step.writes[at].sha256, fields)
            rows.append(WriteRow(n, before + index, *_WRITE(write), *decision))
        before += len(step.writes)
    return rows


def _message_rows(steps: Sequence[CommitPlan]) -> list[MessageRow]:
    rows, writes_before, before = [], 1, 1
    for n, step in enumerate(steps, 1):
        with_last = _stored_with_last(step.messages)
        for index, row in enumerate(step.messages):
            if index in with_last:
                continue
            decisions = with_last if index == len(step.messages) - 1 else {}
            text, records, parts = row.stored or StoredBody(row.body)
            rows.append(
                MessageRow(
                    step=n,
                    number=before + index,
                    id=row.id,
                    type=row.type,
                    subject=row.subject,
                    task=row.task_id,
                    versioned=row.versioned,
                    audience=row.audience,
                    body=text,
                    label=row.label,
                    integrity=row.integrity,
                    due=row.due_at,
                    timer=row.timer,
                    live=row.live,
                    structured=row.structured,
                    records=None if records is None else tuple(writes_before + each for each in records),
                    parts=parts,
                    decision_ids=tuple(step.messages[at].id for at in decisions) or None,
                    decision_numbers=tuple(before + at for at in decisions) or None,
                    decision_records=tuple(writes_before + record for record in decisions.values()) or None,
                    decision_subjects=tuple(step.messages[at].subject for at in decisions) or None,
                )
            )
        writes_before += len(step.writes)
        before += len(step.messages)
    return rows


def _stored_with_last(messages: Sequence[PlannedMessage]) -> dict[int, int]:
    """Return the messages of decisions that are stored with the last message, by index, each with the index of its
    write."""
    found: dict[int, int] = {}
    for index, message in enumerate(messages[:-1]):
        stored, last = message.stored, messages[-1]
        if not (message.type == DecisionMade.TYPE and message.live and stored and stored.records and not stored.parts):
            continue
        own = message.task_id, message.label, message.integrity, message.audience, message.timer, message.versioned
        if own == (last.task_id, last.label, last.integrity, (), None, False):
            (found[index],) = stored.records
    return found


def _parameters(project: str, steps: Sequence[CommitPlan]) -> tuple[list[Any], ...]:
    vectors = [row for step in steps for row in step.vectors]
    writes_before = accumulate((len(step.writes) for step in steps), initial=0)
    messages_before = accumulate((len(step.messages) for step in steps), initial=0)
    return (
        [
            StepRow(
                id=s.commit_id,
                consumer=s.consumer,
                message=s.message_id,
                step=s.step,
                last=s.last,
                fence=s.fence,
                task=s.task_id,
                version=s.task_version,
                ended_ok=s.ended_ok,
                reads=s.reads,
                cause=s.cause,
                packed=packed(s.answers),
                audit=s.audit,
                packed_audit=packed_leaf(s.audit) if s.kind == "commit" else None,
                kind=s.kind,
                salt=s.salt,
                outcome=s.reply.status,
                reply=inbox_reply(s.reply.status),
                trace=s.traceparent,
                writes_before=writes,
                writes=len(s.writes),
                messages_before=messages,
                messages=len(s.messages),
            )
            for s, writes, messages in zip(steps, writes_before, messages_before, strict=False)
        ],
        [CancelledTimerRow(timer=t, sender=s.consumer, task=s.bound_to) for s in steps for t in s.cancel_timers],
        _write_rows(project, steps),
        _message_rows(steps),
        [VectorRow(*_VECTOR(row)) for row in vectors],
        [
            EmbeddingRow(vector=n, model=model, embedding=embedding)
            for n, row in enumerate(vectors, 1)
            for model, embedding in row.embeddings.items()
        ],
    )
