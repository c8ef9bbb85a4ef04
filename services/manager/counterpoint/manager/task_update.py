"""Task updates: the manager's decision on a task as a value.

The record of a live task is written by workflow transitions only, because its version fences work in progress. Facts
learned without a transition go to the attempts and the line.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from counterpoint.manager.task_history import TaskHistory
from counterpoint.manager.timers import Timer
from counterpoint.manager.workflow import ESCALATED, Transition
from counterpoint.proto.approvals import Approval
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.decisions import Confidence
from counterpoint.proto.line import ActionKind
from counterpoint.proto.memory import Write
from counterpoint.proto.messages import Message
from counterpoint.proto.plans import PlanNote, PlanRecord
from counterpoint.proto.tasks import Task, TaskResumed


@dataclass(frozen=True, slots=True)
class ReasoningStep:
    """One step of the manager's reasoning; it becomes an action on the line."""

    kind: ActionKind
    reasoning: str


@dataclass(frozen=True, slots=True)
class TaskUpdate:
    """The effects of one commit on a task.

    `steps`: the reasoning, in order. `decision`: a short text; without it only the actions are written. `task`: the new
    record. `delegate`: the purpose of a delegation to the developer. `learned`: new records of attempts.
    `timers`: timers to set besides those of the new state, with their due times. `approvals`: new records of approvals.
    `plans`: new records of its plan, `plan_note`: what it came to. `warnings`: soft limits that calls of the task have
    reached. `reminder`: an approval that does not hold the task, and when its request is repeated.
    """

    steps: tuple[ReasoningStep, ...]
    decision: str | None = None
    confidence: Confidence | None = None
    task: Task | None = None
    delegate: Literal["work", "reassess"] | None = None
    messages: tuple[Message, ...] = ()
    learned: tuple[Attempt, ...] = ()
    timers: tuple[tuple[Timer, datetime], ...] = ()
    approvals: tuple[Approval, ...] = ()
    plans: tuple[PlanRecord, ...] = ()
    plan_note: PlanNote | None = None
    warnings: tuple[str, ...] = ()
    reminder: tuple[str, datetime] | None = None


UpdateAndWrites = tuple[TaskUpdate, tuple[Write, ...]]
"""An update, and writes of records that no update knows of."""


def with_transition(task: Task, row: Transition, now: datetime, **changes: Any) -> Task:
    """Return the record after a transition. Escalation and approval are cleared, unless `changes` set them."""
    always = {
        "state": row.to.state,
        "waiting_for": row.to.waiting_for,
        "ended_at": now if row.to.ended else None,
        "escalation": None,
        "approval": None,
    }
    return task.model_copy(update=always | changes)


def with_attempt(task: Task, row: Transition, now: datetime, number: int, **changes: Any) -> Task:
    """Return the record with attempt `number` delegated, no pending proposal, permitted search or objections."""
    no_proposal = dict.fromkeys(("attempt_id", "attempt_action_id", "proposal", "artifact_sha256", "permitted_search"))
    return with_transition(task, row, now, **({"attempt": number, "objections": ()} | no_proposal | changes))


def delegate_next(
    history: TaskHistory, task: Task, decision: str, reason: str, reasoning: str | None = None
) -> TaskUpdate:
    """Delegate the next attempt, with `task` as the new record. An escalated task resumes for `reason`."""
    waited = history.workflow_state in ESCALATED
    text = f"{reasoning or reason}; attempt {history.next_attempt} goes to the developer"
    return TaskUpdate(
        steps=(ReasoningStep("resume" if waited else "plan", text),),
        decision=decision,
        task=task,
        delegate="work",
        messages=(TaskResumed(task_id=task.task_id, reason=reason),) if waited else (),
    )


def without_effect(history: TaskHistory, what: str) -> TaskUpdate:
    """Note a message that has no effect in the current state of the task."""
    waiting = f" waiting for {history.workflow_state.waiting_for}" if history.workflow_state.waiting_for else ""
    return TaskUpdate(
        steps=(ReasoningStep("late", f"{what}: no effect, the task is {history.workflow_state.state}{waiting}"),)
    )
