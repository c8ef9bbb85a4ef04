"""Outcomes: the task update for a reported or observed outcome (docs/workflow.md)."""

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
from counterpoint.manager.escalation import ask_cause, escalate_failures
from counterpoint.manager.task_history import TaskHistory
from counterpoint.manager.task_limits import TaskLimits
from counterpoint.manager.task_update import ReasoningStep, TaskUpdate, with_attempt, with_transition, without_effect
from counterpoint.manager.workflow import AWAITS_OUTCOME, ESCALATED, TransitionGuard, WorkflowEvent, transition
from counterpoint.proto.attempts import SUPERSEDED, Attempt, TaskOutcomeReported
from counterpoint.proto.findings import Findings
from counterpoint.proto.messages import Message
from counterpoint.proto.tasks import UNANSWERED, Need, TaskEscalated, TaskResumed


def on_outcome(history: TaskHistory, message: TaskOutcomeReported, now: datetime, limits: TaskLimits) -> TaskUpdate:
    """Return the update: completion, another attempt, an escalation, or only a record of the outcome.

    The same outcome again has no second effect. A different one for the same attempt has none either and is decided as
    a conflict, but a reported one takes the place of an observed one, after the end too, where the state stays.
    """
    found = classify_outcome(history, message, now)
    what = f"outcome {message.outcome} ({message.evidence} by {message.by})"
    if message.fixed_by:
        what = f"{what}, due to {message.fixed_by.replace('_', ' ')}"
    match found:
        case UnknownAttempt(number):
            return without_effect(history, f"{what} of {f'attempt {number}' if number else 'an attempt not named'}")
        case RepeatedOutcome(attempt):
            return without_effect(history, f"{what} of attempt {attempt.attempt} is known")
        case ConflictingOutcome(attempt):
            known = f"{attempt.outcome} ({attempt.evidence} by {attempt.by})"
            reasoning = f"{what} of attempt {attempt.attempt} contradicts what is known, {known}: no effect"
            return TaskUpdate(
                steps=(ReasoningStep("late", reasoning),), decision=f"conflict on attempt {attempt.attempt}"
            )
        case UncreditedRecovery():
            return _recovered(history, message, what, now)
        case FirstOutcome(attempt, lesson) | OutcomeCorrection(attempt, lesson):
            learned = (attempt, lesson) if lesson else (attempt,)
            return _learned(history, learned, isinstance(found, OutcomeCorrection), what, now, limits)
        case ReporterAttempt(attempt):
            return _learned(history, (attempt,), bool(history.task.needs), what, now, limits)
        case _:
            assert_never(found)


def _learned(
    history: TaskHistory, learned: tuple[Attempt, ...], awaited: bool, what: str, now: datetime, limits: TaskLimits
) -> TaskUpdate:
    """Return the update for new records of attempts. `awaited`: it applies after the end of the task too."""
    attempt, task = learned[0], history.task
    signed = failure_signature(attempt) if attempt.outcome in FAILURES else None
    learn = ReasoningStep(
        "learn", f"attempt {attempt.attempt}: {what}" + (f", error signature {signed}" if signed else "")
    )
    decision = f"remember attempt {learned[-1].attempt}"
    if history.workflow_state.ended:
        if not (awaited or task.resolution in UNANSWERED):
            return without_effect(history, f"{what} of attempt {attempt.attempt}")
        explained = task.model_copy(update={"needs": ()}) if attempt.evidence == "reported" else task
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
    asked = (ask_cause(history.task, last.attempt if credited else None),) if unexplained else ()
    findings = _asking(with_attempts(history.task.findings, _tried(history, *learned)), asked)
    result = last.tried if credited and last.evidence == "reported" else _said_of_end(last)
    task = with_transition(
        history.task,
        row,
        now,
        attempt=last.attempt,
        result=result,
        resolution="resolved",
        findings=findings,
        needs=asked,
    )
    reasoning = f"attempt {last.attempt} {last.outcome}, {last.evidence} by {last.by}"
    return TaskUpdate(
        steps=(learn, ReasoningStep("complete", reasoning)),
        decision="complete as resolved",
        task=task,
        messages=(completion(task, "resolved", result, findings, now),),
        learned=learned,
    )


def _recovered(history: TaskHistory, message: TaskOutcomeReported, what: str, now: datetime) -> TaskUpdate:
    """Complete a task whose failure recovered without a known attempt, and ask for the cause."""
    row = transition(history.workflow_state, WorkflowEvent.SUCCEEDED)
    if row is None:
        explained = history.task.model_copy(update={"needs": ()})
        if message.evidence == "observed" or explained == history.task:
            return without_effect(history, what)
        return TaskUpdate(steps=(ReasoningStep("learn", what),), decision="credit no attempt", task=explained)
    asked = () if message.fixed_by == "nothing" else (ask_cause(history.task, None),)
    findings = _asking(with_attempts(history.task.findings, history.tried), asked)
    result = "\n".join((message.note or f"recovered ({message.evidence} by {message.by})", *message.changed))
    task = with_transition(history.task, row, now, result=result, resolution="resolved", findings=findings, needs=asked)
    return TaskUpdate(
        steps=(ReasoningStep("complete", f"{what}: the failure is over, and no attempt is credited"),),
        decision="complete as resolved",
        task=task,
        messages=(completion(task, "resolved", result, findings, now),),
    )


def _said_of_end(attempt: Attempt) -> str:
    who = f"({attempt.evidence} by {attempt.by})"
    if attempt.evidence == "observed":
        return "\n".join((attempt.note or f"recovered {who}", *attempt.changed))
    match attempt.fixed_by:
        case "nothing":
            return attempt.note or f"recovered without a fix {who}"
        case "something_else":
            return f"fixed by something other than the proposal {who}"
        case _:
            return f"{attempt.outcome} {who}"


def _failed(
    history: TaskHistory, attempt: Attempt, learn: ReasoningStep, now: datetime, limits: TaskLimits
) -> TaskUpdate:
    tried = _tried(history, attempt)
    same = count_same_failures(tried, attempt)
    if attempt.attempt < limits.max_attempts and same < limits.max_same_failures:
        row = transition(history.workflow_state, WorkflowEvent.FAILED, TransitionGuard.MAY_RETRY)
        if row is None:
            return without_effect(history, "a failure")
        number = attempt.attempt + 1
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
    escalation, same = history.task.escalation, count_same_failures(_tried(history, attempt), attempt)
    used_up, repeated = attempt.attempt >= limits.max_attempts, same >= limits.max_same_failures
    asked_already = escalation is not None and escalation.code == "repeated_failure"
    to_human_already = asked_already and escalation is not None and escalation.to == "human"
    if to_human_already or not (used_up or (repeated and not asked_already)):
        return TaskUpdate(steps=(learn,), decision=f"remember attempt {attempt.attempt}", learned=(attempt,))
    return _escalated(history, attempt, learn, now, limits)


def _escalated(
    history: TaskHistory, attempt: Attempt, learn: ReasoningStep, now: datetime, limits: TaskLimits
) -> TaskUpdate:
    tried, waited = _tried(history, attempt), history.workflow_state in ESCALATED
    same = count_same_failures(tried, attempt)
    used_up = attempt.attempt >= limits.max_attempts
    guard, to = (TransitionGuard.USED_UP, "human") if used_up else (TransitionGuard.SAME_FAILURE, "calling_llm")
    row = transition(history.workflow_state, WorkflowEvent.FAILED, guard)
    if row is None:
        return without_effect(history, "a failure")
    escalation = escalate_failures(history.task, to, len(tried), same)
    findings = with_attempts(history.task.findings, tried)
    task = with_attempt(
        history.task, row, now, attempt.attempt, override=None, escalation=escalation, findings=findings
    )
    escalated = TaskEscalated(
        task_id=task.task_id,
        to=to,
        code=escalation.code,
        needs=escalation.needs,
        confidence=task.confidence,
        findings=findings,
    )
    counts = _counts(attempt, same, limits)
    resumed: tuple[Message, ...] = (TaskResumed(task_id=task.task_id, reason=counts),) if waited else ()
    return TaskUpdate(
        steps=(learn, ReasoningStep("escalate", f"{counts}: {to} has to decide")),
        decision=f"escalate to {to}: {escalation.code}",
        task=task,
        messages=(*resumed, escalated),
        learned=(attempt,),
    )


def _counts(attempt: Attempt, same: int, limits: TaskLimits) -> str:
    return (
        f"{same} of {limits.max_same_failures} failures with this error, "
        f"attempt {attempt.attempt} of {limits.max_attempts}"
    )


def _asking(findings: Findings, asked: tuple[Need, ...]) -> Findings:
    """Put the question into the findings as the next step."""
    steps = tuple(f"{need.what}: `{need.how}`" for need in asked)
    return findings.model_copy(update={"next_steps": steps}) if steps else findings


def _tried(history: TaskHistory, *learned: Attempt) -> tuple[Attempt, ...]:
    known = {one.attempt: one for one in history.tried} | {one.attempt: one for one in learned}
    return tuple(known[number] for number in sorted(known))
