"""Attempts at a task, and their outcomes."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from counterpoint.proto.decisions import Source
from counterpoint.proto.messages import Id, Message, ProjectName, Shape, Time
from counterpoint.proto.tasks import JobRef

Outcome = Literal["succeeded", "failed", "partial"]


def _underscored(value: Any) -> Any:
    """Accept the command line's spelling `something-else` for `something_else`."""
    return value.replace("-", "_") if isinstance(value, str) else value


FixedBy = Annotated[Literal["proposal", "something_else", "nothing"], BeforeValidator(_underscored)]
"""The cause of a success: the proposal that was made, another act, or no act at all (it recovered by itself)."""


class ReportOutcome(Message):
    """Report the outcome of an attempt. Identity is (task_id, attempt); attempts count from 1.

    `by` is the cause of a success, by default the proposal. With `something_else` the note describes the fix and
    becomes the lesson; with `nothing` there is no lesson; neither credits the proposal. `not_same` names earlier
    attempts that belong to another failure: they are not shown for this one again. `changed` lists known differences
    from the run that failed.
    """

    TYPE: ClassVar[str] = "counterpoint.outcome.report.v1"

    task_id: Id
    attempt: int | None = Field(default=None, ge=1, le=1_000)
    outcome: Outcome
    error_message: str | None = Field(default=None, max_length=16_000)
    note: str | None = Field(default=None, max_length=16_000)
    by: FixedBy | None = None
    not_same: tuple[Id, ...] = Field(default=(), max_length=50)
    changed: tuple[Annotated[str, Field(max_length=1_000)], ...] = Field(default=(), max_length=50)
    project: ProjectName | None = None


class TaskOutcomeReported(Message):
    """The outcome of an attempt, reported by a principal (`reported`) or inferred from a later run (`observed`).

    `by` is the principal; `fixed_by` is the `by` of ReportOutcome. `changed`: differences between the last failure and
    the run that ended it, as far as its events state them.
    """

    TYPE: ClassVar[str] = "counterpoint.task.outcome_reported.v1"

    task_id: Id
    attempt: int | None = None
    outcome: Outcome
    error_message: str | None = None
    note: str | None = None
    by: str
    by_kind: str
    evidence: Literal["reported", "observed"] | str = "reported"
    fixed_by: FixedBy | str | None = None
    not_same: tuple[Id, ...] = ()
    changed: tuple[str, ...] = ()
    action_id: Id


class LessonOrigin(Shape):
    """The lesson of an imported attempt, and what its page states about people and times. Nothing of it is verified.

    Without `by` the attempt is the importer's own.
    """

    lesson_id: Id
    attempt_id: Id
    source: str | None = None
    by: str | None = None
    by_kind: str | None = None
    override_by: str | None = None
    submitted_by: str | None = None
    submitted_at: Time | None = None
    ended_at: Time | None = None
    resolution: str | None = None
    cited: tuple[str, ...] = ()


SUPERSEDED = "superseded"
"""The outcome of a proposal whose failure ended for another reason: evidence neither for nor against it."""


class Attempt(Shape):
    """One attempt at a task: the proposal, the error it was for, and the outcome.

    `summary` is one line for a procedure of a document: its heading and the beginnings of its steps. `by` is the author
    or the reporter of the outcome, `by_kind` the kind of principal that reported it. `outcome` is `superseded` when the
    failure ended for another reason, given by `fixed_by`. `reason` and `constraints` are those of the override that led
    to the attempt. `changed`: known differences between the failure and the recovery. `shadow`: recorded, but not
    shown. `source` is the file or system of an imported incident, whose id is also its task id. `sources` are the
    records that the attempt is based on, when it names them itself. `origin`: the page of an imported lesson; `by` is
    then the importer. `cause` and `verification`: why it failed, and how to see that the fix works.
    """

    attempt_id: Id
    task_id: Id
    project: ProjectName
    attempt: int
    title: str | None = None
    description: str
    error_message: str | None = None
    error_signature: str | None = None
    systems: tuple[str, ...] = ()
    job: JobRef | None = None
    tried: str
    summary: str | None = None
    outcome: Outcome | Literal["superseded", "unknown"] | str = "unknown"
    outcome_error: str | None = None
    note: str | None = None
    evidence: Literal["reported", "observed"] | str = "reported"
    by: str
    by_kind: str | None = None
    fixed_by: FixedBy | str | None = None
    override_by: str | None = None
    reason: str | None = None
    constraints: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    shadow: bool = False
    confidence: float | None = None
    at: Time
    decided_at: Time | None = None
    source: str | None = None
    sources: tuple[Source, ...] = ()
    cause: str | None = None
    verification: str | None = None
    origin: LessonOrigin | None = None
