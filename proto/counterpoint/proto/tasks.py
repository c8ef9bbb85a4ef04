"""Tasks: what another system asks for, what happens to it, and the record of it."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints

from counterpoint.proto.decisions import Confidence
from counterpoint.proto.errors import Problem
from counterpoint.proto.findings import Findings
from counterpoint.proto.messages import Blob, Id, Message, ProjectName, Shape, Time, Usd

Kind = Literal["question", "troubleshoot", "develop", "plan"]
Priority = Literal["low", "normal", "high", "urgent"]
Autonomy = Literal["supervised", "milestone", "autonomous"]
State = Literal["submitted", "working", "input_required", "completed", "failed", "cancelled"]
WaitingFor = Literal["outcome", "documents", "override", "approval"]
EscalationCode = Literal[
    "low_confidence",
    "insufficient_evidence",
    "no_provider",
    "repeated_failure",
    "architecture_scope",
    "budget",
    "no_model",
]
ENDED: frozenset[str] = frozenset({"completed", "failed", "cancelled"})
UNANSWERED: frozenset[str] = frozenset({"proposed", "quiet"})
"""Resolutions after which an outcome is still learned: nobody had said how it went."""

ShortText = Annotated[str, StringConstraints(min_length=1, max_length=16_000, pattern=r"\S")]
Label = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class JobRef(Shape):
    """A job of another system, as OpenLineage names it."""

    namespace: str = Field(min_length=1, max_length=500)
    name: str = Field(min_length=1, max_length=500)


class DatasetRef(Shape):
    """A dataset of another system, as OpenLineage names it."""

    namespace: str = Field(min_length=1, max_length=500)
    name: str = Field(min_length=1, max_length=500)


class Target(Shape):
    """Subject of a task: a repository, a job, a run, a dataset."""

    repo: str | None = Field(default=None, max_length=2_000)
    paths: tuple[Annotated[str, StringConstraints(max_length=2_000)], ...] = Field(default=(), max_length=200)
    job: JobRef | None = None
    run_id: str | None = Field(default=None, max_length=200)
    dataset: DatasetRef | None = None


class Budget(Shape):
    """The most a task may spend."""

    usd: Usd | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0, le=10**12)


class SubmitTask(Message):
    """Ask for work. Only `kind` and `description` are required."""

    TYPE: ClassVar[str] = "counterpoint.task.submit.v1"

    kind: Kind
    description: ShortText
    task_id: Id | None = None
    session_id: Id | None = None
    title: str | None = Field(default=None, max_length=300)
    error_message: str | None = Field(default=None, max_length=16_000)
    systems: tuple[Label, ...] = Field(default=(), max_length=20)
    target: Target | None = None
    context: dict[str, Any] | None = None
    priority: Priority = "normal"
    budget: Budget | None = None
    autonomy: Autonomy = "supervised"
    deadline: Time | None = None
    source_ref: str | None = Field(default=None, max_length=2_000)
    project: ProjectName | None = None


class TaskRejected(Message):
    """A submission that was not accepted, with every field at fault."""

    TYPE: ClassVar[str] = "counterpoint.task.rejected.v1"

    ce_id: str | None = None
    stream_sequence: int | None = None
    task_id: str | None = None
    code: str
    errors: tuple[Problem, ...] = ()


class TaskSubmitted(Message):
    """A submission was accepted. `ignored` names the fields that no one understood."""

    TYPE: ClassVar[str] = "counterpoint.task.submitted.v1"

    task_id: Id
    project: ProjectName
    kind: Kind
    title: str | None = None
    submitted_by: str
    ignored: tuple[str, ...] = ()
    submitted_at: Time


Lane = Literal["answer", "investigate", "plan", "build"]


class TaskRouted(Message):
    """A task and the lane it was given."""

    TYPE: ClassVar[str] = "counterpoint.task.routed.v1"

    task_id: Id
    project: ProjectName
    task: SubmitTask
    submitted_by: str
    submitted_by_kind: str
    submitted_at: Time
    lane: Lane | str
    reason: str
    action_id: Id


class OverrideGiven(Shape):
    """An override as it was recorded: `by` and `by_kind` come from the principal, never from the body."""

    instruction: str
    reasoning: str
    constraints: tuple[str, ...] = ()
    confidence_override: bool = False
    by: str
    by_kind: str


class TaskDelegated(Message):
    """Work for the developer: the task, which attempt it is, what was tried in it, and any override."""

    TYPE: ClassVar[str] = "counterpoint.task.delegated.v1"

    task_id: Id
    project: ProjectName
    session_id: Id
    attempt: int
    task: SubmitTask
    lane: Lane | str
    override: OverrideGiven | None = None
    purpose: Literal["work", "reassess"] | str = "work"
    after: tuple[Id, ...] = ()


class Need(Shape):
    """Something a person or system has to supply, and the command or call that supplies it."""

    kind: Literal["document", "decision", "provider", "model", "budget"] | str
    what: str
    how: str


class TaskWorked(Message):
    """What the developer came to: an answer, a proposal, or a stop with its reason."""

    TYPE: ClassVar[str] = "counterpoint.task.worked.v1"

    task_id: Id
    attempt: int
    outcome: Literal["answered", "proposed", "stopped"] | str
    text: str | None = None
    artifact_sha256: str | None = None
    code: EscalationCode | str | None = None
    needs: tuple[Need, ...] = ()
    searched_for: tuple[str, ...] = ()
    confidence: Confidence | None = None
    findings: Findings = Findings()
    attempt_id: Id | None = None
    action_id: Id


class TaskProposed(Message):
    """A proposal that waits for its outcome."""

    TYPE: ClassVar[str] = "counterpoint.task.proposed.v1"

    task_id: Id
    attempt: int
    proposal: str
    artifact_sha256: str
    findings: Findings
    confidence: Confidence | None = None


class TaskEscalated(Message):
    """Work stopped and somebody is needed: who, why, and what would let it go on."""

    TYPE: ClassVar[str] = "counterpoint.task.escalated.v1"

    task_id: Id
    to: Literal["calling_llm", "human"] | str
    code: EscalationCode | str
    needs: tuple[Need, ...] = ()
    searched_for: tuple[str, ...] = ()
    confidence: Confidence | None = None
    findings: Findings


class TaskResumed(Message):
    """A waiting task goes on, and why."""

    TYPE: ClassVar[str] = "counterpoint.task.resumed.v1"

    task_id: Id
    reason: str
    sources: tuple[str, ...] = ()


class TaskDue(Message):
    """A timer of a task came due."""

    TYPE: ClassVar[str] = "counterpoint.task.due.v1"

    task_id: Id
    timer: Literal["deadline", "outcome", "reassess", "quiet"] | str


class Change(Shape):
    """A code change that a task made."""

    repo: str
    branch: str
    commit: str
    pull_request_url: str | None = None
    tests: dict[str, int] = {}


class TaskCompleted(Message):
    """The end of a task that went well."""

    TYPE: ClassVar[str] = "counterpoint.task.completed.v1"

    task_id: Id
    resolution: Literal["answered", "proposed", "changed", "planned", "resolved", "quiet"] | str
    result: str | Blob
    change: Change | None = None
    confidence: Confidence | None = None
    cost_usd: Usd
    tokens: int
    duration_ms: int
    findings: Findings


class TaskFailed(Message):
    """The end of a task that did not go well."""

    TYPE: ClassVar[str] = "counterpoint.task.failed.v1"

    task_id: Id
    code: str
    reason: str
    attempts: int
    findings: Findings


class TaskCancelled(Message):
    """The end of a task that somebody called off."""

    TYPE: ClassVar[str] = "counterpoint.task.cancelled.v1"

    task_id: Id
    by: str
    reason: str | None = None


class Escalation(Shape):
    """The escalation that a task waits on, kept in its record."""

    to: str
    code: EscalationCode | str
    needs: tuple[Need, ...] = ()
    searched_for: tuple[str, ...] = ()


class Task(Shape):
    """The record of a task, and what HTTP shows of it.

    `needs` is what is asked of people although the task has ended: after a recovery that nobody has explained, what was
    changed. `quiet_s`: it ends by itself after so long without a failure. `shadow`: nothing is proposed for it.
    """

    task_id: Id
    project: ProjectName
    kind: Kind | str
    state: State | str
    waiting_for: WaitingFor | str | None = None
    description: str
    title: str | None = None
    error_message: str | None = None
    error_signature: str | None = None
    systems: tuple[str, ...] = ()
    target: Target | None = None
    context: dict[str, Any] | None = None
    priority: str = "normal"
    budget: Budget | None = None
    autonomy: str = "supervised"
    deadline: Time | None = None
    source_ref: str | None = None
    session_id: Id | None = None
    submitted_by: str
    submitted_at: Time
    ended_at: Time | None = None
    lane: str | None = None
    attempt: int | None = None
    attempt_id: Id | None = None
    attempt_action_id: Id | None = None
    outcomes: dict[str, dict[str, Any]] = {}
    proposal: str | None = None
    artifact_sha256: str | None = None
    result: str | None = None
    resolution: str | None = None
    confidence: Confidence | None = None
    findings: Findings | None = None
    escalation: Escalation | None = None
    needs: tuple[Need, ...] = ()
    override: OverrideGiven | None = None
    reason: str | None = None
    quiet_s: float | None = None
    shadow: bool = False
    resumes: int = 0
    last_action_id: Id | None = None
    ignored: tuple[str, ...] = ()
    version: int | None = None
