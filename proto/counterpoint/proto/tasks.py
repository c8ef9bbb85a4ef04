"""Tasks: their submission, events and record."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints

from counterpoint.proto.approvals import PendingApproval
from counterpoint.proto.decisions import Confidence
from counterpoint.proto.errors import Problem
from counterpoint.proto.findings import Findings, Objection
from counterpoint.proto.messages import Blob, Id, Message, ProjectName, Shape, Time, Usd
from counterpoint.proto.overrides import OverrideGiven, TaskConstraint
from counterpoint.proto.plans import Artifact, PlanDocument

Kind = Literal["question", "troubleshoot", "develop", "plan"]
Priority = Literal["low", "normal", "high", "urgent"]
Autonomy = Literal["supervised", "milestone", "autonomous"]
State = Literal["submitted", "working", "input_required", "completed", "failed", "cancelled"]
WaitingFor = Literal["outcome", "documents", "override", "approval"]
EscalationCode = Literal[
    "low_confidence", "insufficient_evidence", "no_provider", "repeated_failure", "architecture_scope", "budget",
    "no_model", "not_approved", "confidence_deadlock", "take_over",
]  # fmt: skip
ENDED: frozenset[str] = frozenset({"completed", "failed", "cancelled"})
UNANSWERED: frozenset[str] = frozenset({"proposed", "quiet"})
"""Resolutions without a reported outcome, after which one is still accepted."""

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
    """The subject of a task: a repository, job, run or dataset."""

    repo: str | None = Field(default=None, max_length=2_000)
    paths: tuple[Annotated[str, StringConstraints(max_length=2_000)], ...] = Field(default=(), max_length=200)
    job: JobRef | None = None
    run_id: str | None = Field(default=None, max_length=200)
    dataset: DatasetRef | None = None


class Budget(Shape):
    """The spending limits of a task."""

    usd: Usd | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0, le=10**12)


class SubmitTask(Message):
    """Submit a task. Only `kind` and `description` are required."""

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
    """A submission was refused; `errors` names every invalid field, `code` is an error code."""

    TYPE: ClassVar[str] = "counterpoint.task.rejected.v1"

    ce_id: str | None = None
    stream_sequence: int | None = None
    task_id: str | None = None
    code: str
    errors: tuple[Problem, ...] = ()


class TaskSubmitted(Message):
    """A submission was accepted. `ignored` names its unknown fields."""

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
    """A task was assigned to a lane."""

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


class TaskDelegated(Message):
    """Work for the developer: the task, the number of the attempt, any override, the constraints of all overrides so
    far, and the objections for which the work was returned. `web` says if the web may be searched; a search that a
    person has approved is the `permitted_search`."""

    TYPE: ClassVar[str] = "counterpoint.task.delegated.v1"

    task_id: Id
    project: ProjectName
    session_id: Id
    attempt: int
    task: SubmitTask
    lane: Lane | str
    override: OverrideGiven | None = None
    constraints: tuple[TaskConstraint, ...] = ()
    objections: tuple[Objection, ...] = ()
    purpose: Literal["work", "reassess"] | str = "work"
    web: Literal["allow", "ask", "refuse"] | str = "allow"
    permitted_search: str | None = None
    after: tuple[Id, ...] = ()


class Need(Shape):
    """Something that a person or system has to supply, and the command or call that supplies it."""

    kind: Literal["document", "decision", "provider", "model", "budget"] | str
    what: str
    how: str


class TaskWorked(Message):
    """The developer's result: an answer, a proposal, or a stop with its code. With `objections` of the reviewer it is
    made again, once. `plans` are about systems without a provider. `alternative`: the act of the rules, if one of
    a model took its place. `wanted_search`: words for the web that need an approval."""

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
    objections: tuple[Objection, ...] = ()
    plans: tuple[PlanDocument, ...] = ()
    alternative: str | None = None
    wanted_search: str | None = None


class TaskProposed(Message):
    """A proposal was made and waits for its outcome."""

    TYPE: ClassVar[str] = "counterpoint.task.proposed.v1"

    task_id: Id
    attempt: int
    proposal: str
    artifact_sha256: str
    findings: Findings
    confidence: Confidence | None = None


class TaskEscalated(Message):
    """Work stopped and needs `to`: why, what is needed to continue, and the documents made for it."""

    TYPE: ClassVar[str] = "counterpoint.task.escalated.v1"

    task_id: Id
    to: Literal["calling_llm", "human"] | str
    code: EscalationCode | str
    needs: tuple[Need, ...] = ()
    searched_for: tuple[str, ...] = ()
    confidence: Confidence | None = None
    findings: Findings
    artifacts: tuple[Artifact, ...] = ()


class TaskResumed(Message):
    """A waiting task continues, for `reason`."""

    TYPE: ClassVar[str] = "counterpoint.task.resumed.v1"

    task_id: Id
    reason: str
    sources: tuple[str, ...] = ()


class TaskDue(Message):
    """A timer of a task is due. `tool_refused` is due at once: a limit refused a call of a tool of a principal.
    `tool_approval`: a reminder of the approval `approval_id`, which that asked for."""

    TYPE: ClassVar[str] = "counterpoint.task.due.v1"

    task_id: Id
    timer: Literal["deadline", "outcome", "reassess", "quiet", "approval", "tool_refused", "tool_approval"] | str
    approval_id: Id | None = None


class Change(Shape):
    """A code change that a task made."""

    repo: str
    branch: str
    commit: str
    pull_request_url: str | None = None
    tests: dict[str, int] = {}


class TaskCompleted(Message):
    """A task ended successfully.

    `cost_usd`, `tokens`: those of its model calls so far; `unpriced_calls` had no known price and are in no `cost_usd`.
    """

    TYPE: ClassVar[str] = "counterpoint.task.completed.v1"

    task_id: Id
    resolution: Literal["answered", "proposed", "changed", "planned", "resolved", "quiet"] | str
    result: str | Blob
    change: Change | None = None
    confidence: Confidence | None = None
    cost_usd: Usd
    tokens: int
    unpriced_calls: int = 0
    duration_ms: int
    findings: Findings


class TaskFailed(Message):
    """A task ended in failure; `code` is an error code."""

    TYPE: ClassVar[str] = "counterpoint.task.failed.v1"

    task_id: Id
    code: str
    reason: str
    attempts: int
    findings: Findings


class TaskCancelled(Message):
    """A task was cancelled."""

    TYPE: ClassVar[str] = "counterpoint.task.cancelled.v1"

    task_id: Id
    by: str
    reason: str | None = None


class Escalation(Shape):
    """The pending escalation in a task's record."""

    to: str
    code: EscalationCode | str
    needs: tuple[Need, ...] = ()
    searched_for: tuple[str, ...] = ()


class Task(Shape):
    """The record of a task, as HTTP returns it.

    `needs` after the end asks people for what is missing, such as the cause of an unexplained recovery. `objections`:
    those for which the present work was returned by the reviewer. `quiet_s`: seconds without a failure after which the
    task ends. `shadow`: nothing is proposed for it.
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
    artifacts: tuple[Artifact, ...] = ()
    escalation: Escalation | None = None
    approval: PendingApproval | None = None
    permitted_search: str | None = None
    needs: tuple[Need, ...] = ()
    override: OverrideGiven | None = None
    constraints: tuple[TaskConstraint, ...] = ()
    objections: tuple[Objection, ...] = ()
    reason: str | None = None
    quiet_s: float | None = None
    shadow: bool = False
    resumes: int = 0
    last_action_id: Id | None = None
    ignored: tuple[str, ...] = ()
    version: int | None = None
