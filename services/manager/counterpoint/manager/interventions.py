"""Interventions in a task: overrides, amendments, cancellations and timers (docs/workflow.md)."""

from datetime import datetime, timedelta

from counterpoint.manager.attempts import with_attempts
from counterpoint.manager.developer_results import completion
from counterpoint.manager.escalation import escalate_trigger, escalation_message
from counterpoint.manager.task_history import TaskHistory
from counterpoint.manager.task_limits import TaskLimits
from counterpoint.manager.task_update import (
    ReasoningStep,
    TaskUpdate,
    delegate_next,
    with_attempt,
    with_transition,
    without_effect,
)
from counterpoint.manager.triggers import Trigger, only_asks_take_over
from counterpoint.manager.workflow import ESCALATED, WorkflowEvent, transition
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.findings import Findings
from counterpoint.proto.interventions import AmendTask, CancelTask, TaskOverridden
from counterpoint.proto.overrides import OverrideGiven, TaskConstraint
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import Task, TaskCancelled, TaskDue, TaskFailed, TaskResumed
from counterpoint.proto.words import quantity

CONSTRAINTS_MAX = 100
"""Maximum number of constraints of a task."""


def on_override(history: TaskHistory, message: TaskOverridden, now: datetime) -> TaskUpdate:
    """Delegate the next attempt under an override at once.

    Work in progress becomes stale, because the version of the record rises. The override applies to every delegation
    until an attempt under it has failed, its constraints to every proposal from now on.
    """
    row = transition(history.workflow_state, WorkflowEvent.OVERRIDDEN)
    override = message.override.model_copy(update={"action_id": message.action_id})
    if only_asks_take_over(override.instruction):
        return _taken_over(history, override, now)
    if row is None:
        return without_effect(history, f"an override by {override.by} ({override.by_kind})")
    number, constraints = history.next_attempt, _constraints(history.task, override)
    reason = f"override by {override.by} ({override.by_kind}), {quantity(len(override.constraints), 'constraint')}"
    if dropped := max(0, len(constraints) - CONSTRAINTS_MAX):
        reason += f", the {dropped} oldest of the task no longer hold"
    waiver = ", at any confidence" if override.confidence_override else ""
    task = with_attempt(history.task, row, now, number, override=override, constraints=constraints[-CONSTRAINTS_MAX:])
    return delegate_next(history, task, f"delegate attempt {number} under override", reason, f"{reason}{waiver}")


def _taken_over(history: TaskHistory, override: OverrideGiven, now: datetime) -> TaskUpdate:
    """Escalate at once for an override that says "take over" and nothing else. Its constraints hold."""
    row = transition(history.workflow_state, WorkflowEvent.TAKEN_OVER)
    if row is None:
        return without_effect(history, f"an override by {override.by} ({override.by_kind})")
    trigger = Trigger("take_over", f"an instruction: {override.by} said to take over")
    escalation = escalate_trigger(history.task, trigger)
    findings = with_attempts(history.task.findings, history.ordered_attempts)
    reason = f"override by {override.by} ({override.by_kind}): the calling LLM takes over"
    waited = history.workflow_state in ESCALATED
    constraints = _constraints(history.task, override)[-CONSTRAINTS_MAX:]
    task = with_transition(history.task, row, now, escalation=escalation, findings=findings, constraints=constraints)
    return TaskUpdate(
        steps=(ReasoningStep("escalate", reason),),
        decision=f"escalate to {escalation.to}: {escalation.code}",
        task=task,
        messages=(*((TaskResumed(task_id=task.task_id, reason=reason),) if waited else ()), escalation_message(task)),
    )


def _constraints(task: Task, override: OverrideGiven) -> tuple[TaskConstraint, ...]:
    """Return the constraints of a task under one more override, the oldest first."""
    given = [*([task.override] if task.override else ()), override]
    new = [TaskConstraint(text=text, by=each.by, by_kind=each.by_kind) for each in given for text in each.constraints]
    by_text = {each.text: each for each in (*task.constraints, *new)}
    return tuple(by_text.values())


def on_amendment(history: TaskHistory, message: AmendTask, now: datetime) -> TaskUpdate:
    """Change the error of a task and start its work again.

    Work in progress becomes stale, as under an override. An amendment without a change has no effect.
    """
    row = transition(history.workflow_state, WorkflowEvent.AMENDED)
    step = message.model_dump(
        exclude={"task_id", "by", "by_kind", "reason", "links", "removed_links"}, exclude_none=True
    )
    fields = {name: getattr(message, name) for name in step}
    if row is None:
        return without_effect(history, f"an amendment by {message.by}")
    if all(getattr(history.task, name) == value for name, value in fields.items()):
        return TaskUpdate(
            steps=(ReasoningStep("late", f"an amendment by {message.by}: no effect, the task is unchanged"),)
        )
    if message.error_message is not None:
        fields["error_signature"] = signature(message.error_message).digest
    number, reason = history.next_attempt, f"amended by {message.by}: {message.reason}"
    task = with_attempt(history.task, row, now, number, confidence=None, findings=None, **fields)
    return delegate_next(history, task, f"delegate attempt {number} with the new error", reason)


def on_links(history: TaskHistory, message: AmendTask, now: datetime) -> TaskUpdate:
    """Delegate the next attempt because new or removed links change the card."""
    row = transition(history.workflow_state, WorkflowEvent.LINKED)
    if row is None:
        return without_effect(history, f"a link by {message.by}")
    number, reason = history.next_attempt, f"{message.reason}, by {message.by}"
    task = with_attempt(history.task, row, now, number, confidence=None, findings=None)
    return delegate_next(history, task, f"delegate attempt {number} after a change of links", reason)


def on_cancellation(history: TaskHistory, message: CancelTask, now: datetime) -> TaskUpdate:
    """Cancel the task in any live state."""
    row = transition(history.workflow_state, WorkflowEvent.CANCEL)
    if row is None:
        return without_effect(history, f"a cancellation by {message.by}")
    reasoning = f"cancelled by {message.by} ({message.by_kind}) while {history.workflow_state.state}"
    return TaskUpdate(
        steps=(ReasoningStep("cancel", reasoning),),
        decision="cancel",
        task=with_transition(history.task, row, now, reason=message.reason),
        messages=(TaskCancelled(task_id=message.task_id, by=message.by, reason=message.reason),),
    )


def on_timer(
    history: TaskHistory, message: TaskDue, now: datetime, limits: TaskLimits, failed_at: datetime | None
) -> TaskUpdate:
    """Return the update for a timer that is due. `failed_at`: the last failure of the incident.

    Raises `Permanent` for an unknown timer.
    """
    match message.timer:
        case "deadline":
            return _deadline_passed(history, now)
        case "outcome":
            return _outcome_missing(history, now, limits)
        case "reassess":
            return _delegate_reassessment(history, now)
        case "quiet":
            return _quiet(history, now, failed_at)
        case unknown:
            raise Permanent(
                ErrorCode.INVALID_MESSAGE, (Problem(field="timer", problem=f"{unknown} is not a known timer"),)
            )


def _deadline_passed(history: TaskHistory, now: datetime) -> TaskUpdate:
    row = transition(history.workflow_state, WorkflowEvent.DEADLINE_DUE)
    deadline = history.task.deadline
    if row is None or deadline is None:
        return without_effect(history, "the deadline")
    reason = f"the deadline {deadline.isoformat()} has passed after {quantity(len(history.attempts), 'attempt')}"
    findings = with_attempts(history.task.findings, history.ordered_attempts)
    failed = TaskFailed(
        task_id=history.task.task_id,
        code=ErrorCode.DEADLINE,
        reason=reason,
        attempts=len(history.attempts),
        findings=findings,
    )
    return TaskUpdate(
        steps=(ReasoningStep("fail", reason),),
        decision="fail: deadline",
        task=with_transition(history.task, row, now, reason=reason, findings=findings),
        messages=(failed,),
    )


def _outcome_missing(history: TaskHistory, now: datetime, limits: TaskLimits) -> TaskUpdate:
    row = transition(history.workflow_state, WorkflowEvent.OUTCOME_DUE)
    if row is None:
        return without_effect(history, "the end of the wait for an outcome")
    result, findings = history.task.proposal or "", history.task.findings or Findings()
    task = with_transition(history.task, row, now, result=result, resolution="proposed")
    return TaskUpdate(
        steps=(ReasoningStep("complete", f"attempt {task.attempt} had no outcome for {limits.outcome_wait_s:.0f} s"),),
        decision="complete as proposed",
        task=task,
        messages=(completion(history, task, "proposed", result, findings, now),),
    )


def _quiet(history: TaskHistory, now: datetime, failed_at: datetime | None) -> TaskUpdate:
    row, quiet_s = transition(history.workflow_state, WorkflowEvent.QUIET_DUE), history.task.quiet_s
    if row is None or quiet_s is None:
        return without_effect(history, "the end of the quiet time")
    quiet_at = failed_at + timedelta(seconds=quiet_s) if failed_at else now
    if quiet_at > now:
        step = ReasoningStep("assess", f"the last failure was at {failed_at}: the quiet time is not over")
        return TaskUpdate(steps=(step,), timers=(("quiet", quiet_at),))
    result = f"no failure for {quiet_s:.0f} s, closed automatically"
    findings = with_attempts(history.task.findings, history.ordered_attempts)
    task = with_transition(history.task, row, now, result=result, resolution="quiet", findings=findings)
    return TaskUpdate(
        steps=(ReasoningStep("complete", result),),
        decision="complete as quiet",
        task=task,
        messages=(completion(history, task, "quiet", result, findings, now),),
    )


def _delegate_reassessment(history: TaskHistory, now: datetime) -> TaskUpdate:
    row = transition(history.workflow_state, WorkflowEvent.REASSESS_DUE)
    if row is None:
        return without_effect(history, "new knowledge")
    escalation, number = history.task.escalation, history.next_attempt
    return TaskUpdate(
        steps=(ReasoningStep("assess", "knowledge has changed: the developer computes the confidence again"),),
        task=with_attempt(history.task, row, now, number, escalation=escalation, proposal=history.task.proposal),
        delegate="reassess",
    )
