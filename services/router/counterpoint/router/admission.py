"""Admission: whether something submitted becomes a task. Pure: the arrival and what is known, to a verdict."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.tasks import SubmitTask
from counterpoint.proto.validation import check_submission
from counterpoint.router.submissions import Handled, Submission, content_sha256


@dataclass(frozen=True, slots=True)
class Keyed:
    """A request with an Idempotency-Key, or bare JSON with a `Nats-Msg-Id`: its record's id, and its body's hash."""

    key: str
    body_sha256: str


@dataclass(frozen=True, slots=True)
class Arrival:
    """A task as it was submitted: where, by whom and when.

    `task_id` is the sender's or ours. `event` is the CloudEvent's source and id when it came with them, `ignored` the
    fields nobody understood.
    """

    task: SubmitTask
    task_id: str
    project: str
    by: str
    by_kind: str
    at: datetime
    ignored: tuple[str, ...] = ()
    event: tuple[str, str] | None = None
    request: Keyed | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """What the store `submissions` holds under the arrival's task id, event and Idempotency-Key."""

    task: Submission | None = None
    event: Handled | None = None
    request: Handled | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """It becomes a task."""

    submission: Submission


@dataclass(frozen=True, slots=True)
class Duplicate:
    """It is a task already: nothing more happens."""

    task_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """It does not become a task: `conflict`, `idempotency_conflict` or `invalid`, with the fields at fault."""

    code: str
    problems: tuple[Problem, ...]


def admit(arrival: Arrival, known: Known, idempotency: timedelta) -> Accepted | Duplicate | Refused:
    """The verdict. An Idempotency-Key counts for `idempotency`; what an event id or a task id stands for, for ever.

    A deadline that passed after the task was accepted does not make its duplicate wrong.
    """
    request = known.request if known.request and arrival.at - known.request.at < idempotency else None
    if request and arrival.request:
        if request.content_sha256 != arrival.request.body_sha256:
            problem = Problem(field="Idempotency-Key", problem="was used for another body")
            return Refused("idempotency_conflict", (problem,))
        return Duplicate(request.task_id)
    if known.event:
        return Duplicate(known.event.task_id)
    first_at = known.task.submitted_at if known.task else arrival.at
    problems = check_submission(arrival.task, project=arrival.project, received_at=first_at)
    if problems:
        return Refused("invalid", problems)
    content = content_sha256(arrival.task)
    if known.task:
        if known.task.content_sha256 != content:
            return Refused("conflict", (Problem(field="task_id", problem="is a task with other content"),))
        return Duplicate(arrival.task_id)
    submission = Submission(
        task_id=arrival.task_id,
        project=arrival.project,
        content_sha256=content,
        kind=arrival.task.kind,
        title=arrival.task.title,
        description=arrival.task.description,
        submitted_by=arrival.by,
        submitted_by_kind=arrival.by_kind,
        submitted_at=arrival.at,
        ignored=arrival.ignored,
    )
    return Accepted(submission)


def in_senders_words(error: Permanent) -> Permanent:
    """What memory refused of a submission, named by the fields that the sender wrote."""
    said = tuple(p.model_copy(update={"field": p.field.removeprefix(_HANDED_ON)}) for p in error.problems)
    return Permanent(error.code, said)


_HANDED_ON = "task."
"""Where the submission is in the message that hands it on."""
