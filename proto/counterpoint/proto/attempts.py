"""Attempts: the tries at a task, and how each of them went."""

from typing import ClassVar, Literal

from pydantic import Field

from counterpoint.proto.messages import Id, Message, ProjectName, Shape, Time
from counterpoint.proto.tasks import JobRef

Outcome = Literal["succeeded", "failed", "partial"]


class ReportOutcome(Message):
    """Say how an attempt went. Identity is (task_id, attempt); attempts count from 1."""

    TYPE: ClassVar[str] = "counterpoint.outcome.report.v1"

    task_id: Id
    attempt: int | None = Field(default=None, ge=1, le=1_000)
    outcome: Outcome
    error_message: str | None = Field(default=None, max_length=16_000)
    note: str | None = Field(default=None, max_length=16_000)
    project: ProjectName | None = None


class TaskOutcomeReported(Message):
    """How an attempt went, said by a principal (`reported`) or shown by a later run (`observed`)."""

    TYPE: ClassVar[str] = "counterpoint.task.outcome_reported.v1"

    task_id: Id
    attempt: int | None = None
    outcome: Outcome
    error_message: str | None = None
    note: str | None = None
    by: str
    by_kind: str
    evidence: Literal["reported", "observed"] | str = "reported"
    action_id: Id


class Attempt(Shape):
    """One try at a task: what was proposed, for which error, and how it went (row A8).

    `source` is the file or system that a past incident was taken from: its task is none of ours, and its id stands for
    both.
    """

    attempt_id: Id
    task_id: Id
    project: ProjectName
    attempt: int
    description: str
    error_message: str | None = None
    error_signature: str | None = None
    systems: tuple[str, ...] = ()
    job: JobRef | None = None
    tried: str
    outcome: Outcome | Literal["unknown"] | str = "unknown"
    outcome_error: str | None = None
    note: str | None = None
    evidence: Literal["reported", "observed"] | str = "reported"
    by: str
    override_by: str | None = None
    confidence: float | None = None
    at: Time
    decided_at: Time | None = None
    source: str | None = None
