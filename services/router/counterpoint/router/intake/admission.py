"""Admission: the decision whether a submission becomes a task. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.tasks import SubmitTask
from counterpoint.proto.validation import check_submission
from counterpoint.router.intake.submissions import IdempotencyRecord, Submission, content_sha256


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The idempotency key of a request, or the `Nats-Msg-Id` of bare JSON: its record's id and the hash of the body."""

    key: str
    body_sha256: str


@dataclass(frozen=True, slots=True)
class Submitter:
    """The principal or event source that submits a task."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class TaskArrival:
    """A submission.

    `task_id` is the sender's or a generated one. `event` is the CloudEvent's source and id, if any; `ignored` are the
    unknown fields.
    """

    task: SubmitTask
    task_id: str
    project: str
    submitter: Submitter
    at: datetime
    ignored: tuple[str, ...] = ()
    event: tuple[str, str] | None = None
    request: IdempotencyKey | None = None


@dataclass(frozen=True, slots=True)
class PriorRecords:
    """Records of the store `submissions` under the arrival's task id, event and Idempotency-Key."""

    task: Submission | None = None
    event: IdempotencyRecord | None = None
    request: IdempotencyRecord | None = None


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The submission becomes a task."""

    submission: Submission


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The submission is a known task; it has no effect."""

    task_id: str


@dataclass(frozen=True, slots=True)
class Rejection:
    """The submission is rejected: `conflict`, `idempotency_conflict` or `invalid`, with the invalid fields."""

    code: str
    problems: tuple[Problem, ...]


def admit(arrival: TaskArrival, prior: PriorRecords, idempotency: timedelta) -> Acceptance | Duplicate | Rejection:
    """Decide on an arrival. An Idempotency-Key is valid for `idempotency`, event ids and task ids without limit.

    A duplicate stays valid after the deadline of its task.
    """
    request = prior.request if prior.request and arrival.at - prior.request.at < idempotency else None
    if request and arrival.request:
        if request.content_sha256 != arrival.request.body_sha256:
            problem = Problem(field="Idempotency-Key", problem="was used with a different body")
            return Rejection(ErrorCode.IDEMPOTENCY_CONFLICT, (problem,))
        return Duplicate(request.task_id)
    if prior.event:
        return Duplicate(prior.event.task_id)
    first_at = prior.task.submitted_at if prior.task else arrival.at
    problems = check_submission(arrival.task, project=arrival.project, received_at=first_at)
    if problems:
        return Rejection(ErrorCode.INVALID, problems)
    content = content_sha256(arrival.task)
    if prior.task:
        if prior.task.content_sha256 != content:
            return Rejection(
                ErrorCode.CONFLICT, (Problem(field="task_id", problem="is taken by a task with different content"),)
            )
        return Duplicate(arrival.task_id)
    submission = Submission(
        task_id=arrival.task_id,
        project=arrival.project,
        content_sha256=content,
        kind=arrival.task.kind,
        title=arrival.task.title,
        description=arrival.task.description,
        submitted_by=arrival.submitter.name,
        submitted_by_kind=arrival.submitter.kind,
        submitted_at=arrival.at,
        ignored=arrival.ignored,
    )
    return Acceptance(submission)


def with_sender_fields(error: Permanent) -> Permanent:
    """Return memory's error with the field names of the sender's message."""
    problems = tuple(p.model_copy(update={"field": p.field.removeprefix(_ROUTED_PREFIX)}) for p in error.problems)
    return Permanent(error.code, problems)


_ROUTED_PREFIX = "task."
"""Prefix of the submission's fields in `TaskRouted`."""
