"""Outcomes: the task update for a reported or observed outcome (docs/workflow.md)."""

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from counterpoint.manager.attempts import (
    FAILURES,
    ConflictingOutcome,
    FirstOutcome,
    OutcomeCorrection,
    RepeatedOutcome,
    ReporterAttempt,
    UncreditedRecovery,
    UnknownAttempt,
    classify_outcome,
    count_same_failures,
    failure_signature,
    with_attempts,
)
from counterpoint.manager.developer_results import completion
from counterpoint.manager.escalation import ask_cause, escalate_failures, escalate_trigger, escalation_message
from counterpoint.manager.task_history import TaskHistory
from counterpoint.manager.task_limits import TaskLimits
from counterpoint.manager.task_update import ReasoningStep, TaskUpdate, with_attempt, with_transition, without_effect
from counterpoint.manager.timers import Timer, next_reassessment
from counterpoint.manager.triggers import Trigger, asks_take_over
from counterpoint.manager.workflow import (
    AWAITS_OUTCOME,
    ESCALATED,
    Transition,
    TransitionGuard,
    WorkflowEvent,
    transition,
)
from counterpoint.proto.attempts import SUPERSEDED, Attempt, TaskOutcomeReported
from counterpoint.proto.findings import Findings
from counterpoint.proto.messages import Message
from counterpoint.proto.tasks import UNANSWERED, Need, Task, TaskResumed


def on_outcome(history: TaskHistory, message: TaskOutcomeReported, now: datetime, limits: TaskLimits) -> TaskUpdate:
    """Return the update: completion, another attempt, an escalation, or only a record of the outcome.

    A repeated outcome has no effect. A different outcome of the same attempt is a conflict without effect, but a
    reported one replaces an observed one, also after the end of the task, without a change of state.
    """
    verdict = classify_outcome(history, message, now)
    summary = f"outcome {message.outcome} ({message.evidence} by {message.by})"
    if message.fixed_by:
        summary = f"{summary}, due to {message.fixed_by.replace('_', ' ')}"
    match verdict:
        case UnknownAttempt(number):
            return without_effect(history, f"{summary} of {f'attempt {number}' if number else 'an attempt not named'}")
        case RepeatedOutcome(attempt):
            return without_effect(history, f"{summary} of attempt {attempt.attempt} is known")
        case ConflictingOutcome(attempt):
            existing = f"{attempt.outcome} ({attempt.evidence} by {attempt.by})"
            reasoning = f"{summary} of attempt {attempt.attempt} contradicts what is known, {existing}: no effect"
            return TaskUpdate(
                steps=(ReasoningStep("late", reasoning),), decision=f"conflict on attempt {attempt.attempt}"
            )
        case UncreditedRecovery():
            return _recovered(history, message, summary, now)
        case FirstOutcome(attempt, lesson) | OutcomeCorrection(attempt, lesson):
            learned = (attempt, lesson) if lesson else (attempt,)
            return _learned(history, learned, isinstance(verdict, OutcomeCorrection), summary, now, limits)
        case ReporterAttempt(attempt):
            return _learned(history, (attempt,), bool(history.task.needs), summary, now, limits)
        case _:
            assert_never(verdict)


def _learned(
    history: TaskHistory, learned: tuple[Attempt, ...], awaited: bool, summary: str, now: datetime, limits: TaskLimits
) -> TaskUpdate:
    """Return the update for new records of attempts. `awaited`: it applies after the end of the task too."""
    attempt, task = learned[0], history.task
    signed = failure_signature(attempt) if attempt.outcome in FAILURES else None
    learn = ReasoningStep(
        "learn", f"attempt {attempt.attempt}: {summary}" + (f", error signature {signed}" if signed else "")
    )
    decision = f"remember attempt {learned[-1].attempt}"
    if history.workflow_state.ended:
        if not (awaited or task.resolution in UNANSWERED):
            return without_effect(history, f"{summary} of attempt {attempt.attempt}")
        findings = with_attempts(task.findings, _attempts_with(history, *learned))
        task = task.model_copy(update={"findings": findings})
        explained = _explained(task) if attempt.evidence == "reported" else task
        return TaskUpdate(steps=(learn,), decision=decision, task=explained, learned=learned)
    if attempt.outcome in ("succeeded", SUPERSEDED):
        return _resolved(history, learned, learn, now)
    if history.workflow_state == AWAITS_OUTCOME and attempt.attempt == task.attempt:
        return _failed(history, attempt, learn, now, limits)
    if history.workflow_state in ESCALATED:
        return _failed_again(history, attempt, learn, now, limits)
    return TaskUpdate(steps=(learn,), decision=decision, learned=learned)


def _resolved(history: TaskHistory, learned: tuple[Attempt, ...], learn: ReasoningStep, now: datetime) -> TaskUpdate:
    row = transition(history.workflow_state, WorkflowEvent.SUCCEEDED)
    if row is None:
        return without_effect(history, "a success")
    last = learned[-1]
    credited = last.outcome == "succeeded" and last.tried
    unexplained = last.evidence == "observed" or (last.outcome == SUPERSEDED and last.fixed_by != "nothing")
    possible = bool(last.tried) and last.evidence == "observed" and not last.shadow
    needs = (ask_cause(history.task, last.attempt if possible else None),) if unexplained else ()
    findings = _with_question(with_attempts(history.task.findings, _attempts_with(history, *learned)), needs)
    result = last.tried if credited and last.evidence == "reported" else _end_reason(last)
    task = with_transition(
        history.task,
        row,
        now,
        attempt=last.attempt,
        result=result,
        resolution="resolved",
        findings=findings,
        needs=needs,
    )
    reasoning = f"attempt {last.attempt} {last.outcome}, {last.evidence} by {last.by}"
    return TaskUpdate(
        steps=(learn, ReasoningStep("complete", reasoning)),
        decision="complete as resolved",
        task=task,
        messages=(completion(history, task, "resolved", result, findings, now),),
        learned=learned,
    )


def _recovered(history: TaskHistory, message: TaskOutcomeReported, summary: str, now: datetime) -> TaskUpdate:
    """Complete a task whose failure recovered without a known attempt, and ask for the cause."""
    row = transition(history.workflow_state, WorkflowEvent.SUCCEEDED)
    if row is None:
        explained = _explained(history.task)
        if message.fixed_by != "nothing" or explained == history.task:
            return without_effect(history, summary)
        return TaskUpdate(steps=(ReasoningStep("learn", summary),), decision="credit no attempt", task=explained)
    needs = () if message.fixed_by == "nothing" else (ask_cause(history.task, None),)
    findings = _with_question(with_attempts(history.task.findings, history.ordered_attempts), needs)
    said = message.note or f"recovered ({message.evidence} by {message.by})"
    if message.attempt and not message.note:
        said += f"; attempt {message.attempt} was never proposed, so none is credited"
    result = "\n".join((said, *message.changed))
    task = with_transition(history.task, row, now, result=result, resolution="resolved", findings=findings, needs=needs)
    return TaskUpdate(
        steps=(ReasoningStep("complete", f"{summary}: the failure is over, and no attempt is credited"),),
        decision="complete as resolved",
        task=task,
        messages=(completion(history, task, "resolved", result, findings, now),),
    )


def _end_reason(attempt: Attempt) -> str:
    source = f"({attempt.evidence} by {attempt.by})"
    if attempt.evidence == "observed":
        return "\n".join((attempt.note or f"recovered {source}", *attempt.changed))
    match attempt.fixed_by:
        case "nothing":
            return attempt.note or f"recovered without a fix {source}"
        case "something_else":
            return f"fixed by something other than the proposal {source}"
        case _:
            return f"{attempt.outcome} {source}"


def _failed(
    history: TaskHistory, attempt: Attempt, learn: ReasoningStep, now: datetime, limits: TaskLimits
) -> TaskUpdate:
    attempts = _attempts_with(history, attempt)
    same = count_same_failures(attempts, attempt)
    if attempt.note and asks_take_over(attempt.note):
        return _escalated(history, attempt, learn, now, limits, take_over=True)
    if attempt.attempt < limits.max_attempts and same < limits.max_same_failures:
        row = transition(history.workflow_state, WorkflowEvent.FAILED, TransitionGuard.MAY_RETRY)
        if row is None:
            return without_effect(history, "a failure")
        number = max(history.next_attempt, attempt.attempt + 1)
        reasoning = f"{_counts(attempt, same, limits)}: attempt {number} goes to the developer"
        return TaskUpdate(
            steps=(learn, ReasoningStep("plan", reasoning)),
            decision=f"delegate attempt {number}",
            task=with_attempt(history.task, row, now, number, override=None),
            delegate="work",
            learned=(attempt,),
        )
    return _escalated(history, attempt, learn, now, limits)


def _failed_again(
    history: TaskHistory, attempt: Attempt, learn: ReasoningStep, now: datetime, limits: TaskLimits
) -> TaskUpdate:
    """Return the update for a failure reported while the task is escalated."""
    escalation, same = history.task.escalation, count_same_failures(_attempts_with(history, attempt), attempt)
    used_up, repeated = attempt.attempt >= limits.max_attempts, same >= limits.max_same_failures
    is_repeated = escalation is not None and escalation.code == "repeated_failure"
    to_human_already = is_repeated and escalation is not None and escalation.to == "human"
    if to_human_already or not (used_up or (repeated and not is_repeated)):
        update = TaskUpdate(steps=(learn,), decision=f"remember attempt {attempt.attempt}", learned=(attempt,))
        row = transition(history.workflow_state, WorkflowEvent.FAILED, TransitionGuard.MAY_RETRY)
        return _assessed_anew(history, update, row, now, limits) if row else update
    return _escalated(history, attempt, learn, now, limits)


def _assessed_anew(
    history: TaskHistory, update: TaskUpdate, row: Transition, now: datetime, limits: TaskLimits
) -> TaskUpdate:
    """Make a reassessment under way stale: it knows nothing of the failure, whose attempt took its number."""
    again = history.task.resumes < limits.max_resumes
    timers: tuple[tuple[Timer, datetime], ...] = (("reassess", next_reassessment(now, limits)),) if again else ()
    task = with_transition(history.task, row, now, escalation=history.task.escalation)
    return replace(update, task=task, timers=timers)


def _escalated(
    history: TaskHistory,
    attempt: Attempt,
    learn: ReasoningStep,
    now: datetime,
    limits: TaskLimits,
    take_over: bool = False,
) -> TaskUpdate:
    attempts, was_escalated = _attempts_with(history, attempt), history.workflow_state in ESCALATED
    same = count_same_failures(attempts, attempt)
    used_up = attempt.attempt >= limits.max_attempts
    guard, to = (TransitionGuard.USED_UP, "human") if used_up else (TransitionGuard.SAME_FAILURE, "calling_llm")
    escalation = escalate_failures(history.task, to, len(attempts), same)
    row = transition(history.workflow_state, WorkflowEvent.FAILED, guard)
    if take_over:
        trigger = Trigger("take_over", "how to continue: the report of the failure asks you to take over")
        escalation, to = escalate_trigger(history.task, trigger), "calling_llm"
        row = transition(history.workflow_state, WorkflowEvent.TAKEN_OVER)
    if row is None:
        return without_effect(history, "a failure")
    findings = with_attempts(history.task.findings, attempts)
    task = with_attempt(
        history.task, row, now, attempt.attempt, override=None, escalation=escalation, findings=findings
    )
    counts = _counts(attempt, same, limits)
    resumed: tuple[Message, ...] = (TaskResumed(task_id=task.task_id, reason=counts),) if was_escalated else ()
    return TaskUpdate(
        steps=(learn, ReasoningStep("escalate", f"{counts}: {to} has to decide")),
        decision=f"escalate to {to}: {escalation.code}",
        task=task,
        messages=(*resumed, escalation_message(task)),
        learned=(attempt,),
    )


def _counts(attempt: Attempt, same: int, limits: TaskLimits) -> str:
    return (
        f"{same} of {limits.max_same_failures} failures with this error, "
        f"attempt {attempt.attempt} of {limits.max_attempts}"
    )


def _with_question(findings: Findings, needs: tuple[Need, ...]) -> Findings:
    """Replace the next steps of the failure, which is over, by the question."""
    return findings.model_copy(update={"next_steps": _questions(needs)})


def _explained(task: Task) -> Task:
    """Return the task without the question for the cause."""
    findings, questions = task.findings, _questions(task.needs)
    if findings is not None:
        steps = tuple(step for step in findings.next_steps if step not in questions)
        findings = findings.model_copy(update={"next_steps": steps})
    return task.model_copy(update={"needs": (), "findings": findings})


def _questions(needs: tuple[Need, ...]) -> tuple[str, ...]:
    return tuple(f"{need.what}: `{need.how}`" for need in needs)


def _attempts_with(history: TaskHistory, *learned: Attempt) -> tuple[Attempt, ...]:
    existing = {one.attempt: one for one in history.ordered_attempts} | {one.attempt: one for one in learned}
    return tuple(existing[number] for number in sorted(existing))
