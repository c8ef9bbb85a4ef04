"""Attempts: the tries at a task, and how each of them went."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from counterpoint.proto.decisions import Source
from counterpoint.proto.messages import Id, Message, ProjectName, Shape, Time
from counterpoint.proto.tasks import JobRef

Outcome = Literal["succeeded", "failed", "partial"]


def _underscored(value: Any) -> Any:
    """`something-else`, as the command line spells it, is `something_else`."""
    return value.replace("-", "_") if isinstance(value, str) else value


FixedBy = Annotated[Literal["proposal", "something_else", "nothing"], BeforeValidator(_underscored)]
"""The cause of a success: the proposal that was made, another act, or no act at all (it recovered by itself)."""


class ReportOutcome(Message):
    """Say how an attempt went. Identity is (task_id, attempt); attempts count from 1.

    `by` says what a success is due to, the proposal where it is left out: with `something_else` the note is what
    fixed it and becomes the lesson, with `nothing` there is none, and the proposal is credited with neither.
    `not_same` names earlier attempts that were taken for the same failure and are not: they are never shown for it
    again. `changed` is what is known to differ from the run that failed.
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
    """The outcome of an attempt, said by a principal (`reported`) or shown by a later run (`observed`).

    `by` is the principal; `fixed_by` is the `by` of ReportOutcome. `changed`: differences between the last failure
    and the run that shows it is over, as far as its events say.
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


SUPERSEDED = "superseded"
"""The outcome of a proposal when the failure is over for another reason: evidence neither for nor against it."""


class Attempt(Shape):
    """One try at a task: what was proposed, for which error, and how it went (row A8).

    `summary` is the act in a line, where it is a procedure of a document: its heading and the beginnings of its steps.
    `by` is who made it, or who said how it went, and `by_kind` is the kind of principal that reported the outcome.
    `outcome` is `superseded` where the failure ended for another reason: `fixed_by` says which. `reason` and
    `constraints` stood beside the override that led to it. `changed`: differences that were known between the failure
    and the recovery. `shadow`: it was recorded and shown to nobody. `source` is the file or system that a past incident
    was taken from: its task is none of ours, and its id stands for both. `sources` are the records that the attempt
    rests on, where it names them itself.
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
