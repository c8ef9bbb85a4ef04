"""Outcomes: the move that follows when somebody reports, or a run shows, how an attempt went (rows A6, A8)."""

from datetime import datetime
from typing import assert_never

from counterpoint.manager.attempts import (
    FAILURES,
    Contradiction,
    Correction,
    First,
    NoSuchAttempt,
    Own,
    Recovery,
    Repetition,
    failure,
    same_failures,
    verdict,
    with_tried,
)
from counterpoint.manager.bounds import Bounds
from counterpoint.manager.dossier import Dossier
from counterpoint.manager.escalation import of_failures, of_recovery
from counterpoint.manager.moves import Move, Said, attempting, late, moved
from counterpoint.manager.work import completed
from counterpoint.manager.workflow import AWAITS_OUTCOME, ESCALATED, Event, Guard, transition
from counterpoint.proto.attempts import SUPERSEDED, Attempt, TaskOutcomeReported
from counterpoint.proto.findings import Findings
from counterpoint.proto.messages import Message
from counterpoint.proto.tasks import UNANSWERED, Need, TaskEscalated, TaskResumed


def told(dossier: Dossier, message: TaskOutcomeReported, now: datetime, bounds: Bounds) -> Move:
    """Return the move: an end, another attempt, an escalation, or only that it is remembered.

    The same outcome again has no second effect. A different one for the same attempt has none either and is decided as
    a conflict, but a reported one takes the place of an observed one, after the end too, where the state stays.
    """
    found = verdict(dossier, message, now)
    what = f"outcome {message.outcome} ({message.evidence} by {message.by})"
    if message.fixed_by:
        what = f"{what}, due to {message.fixed_by.replace('_', ' ')}"
    match found:
        case NoSuchAttempt(number):
            return late(dossier, f"{what} of {f'attempt {number}' if number else 'an attempt not named'}")
        case Repetition(attempt):
            return late(dossier, f"{what} of attempt {attempt.attempt} is known")
        case Contradiction(attempt):
            known = f"{attempt.outcome} ({attempt.evidence} by {attempt.by})"
            reasoning = f"{what} of attempt {attempt.attempt} contradicts what is known, {known}: no effect"
            return Move(said=(Said("late", reasoning),), decision=f"conflict on attempt {attempt.attempt}")
        case Recovery():
            return _recovered(dossier, message, what, now)
        case First(attempt, lesson) | Correction(attempt, lesson):
            learned = (attempt, lesson) if lesson else (attempt,)
            return _learned(dossier, learned, isinstance(found, Correction), what, now, bounds)
        case Own(attempt):
            return _learned(dossier, (attempt,), bool(dossier.task.needs), what, now, bounds)
        case _:
            assert_never(found)


def _learned(
    dossier: Dossier, learned: tuple[Attempt, ...], awaited: bool, what: str, now: datetime, bounds: Bounds
) -> Move:
    """Return the move on attempts as they become, the last one last. `awaited`: it counts after the end as well."""
    attempt, task = learned[0], dossier.task
    signed = failure(attempt) if attempt.outcome in FAILURES else None
    learn = Said("learn", f"attempt {attempt.attempt}: {what}" + (f", error signature {signed}" if signed else ""))
    decision = f"remember attempt {learned[-1].attempt}"
    if dossier.place.ended:
        if not (awaited or task.resolution in UNANSWERED):
            return late(dossier, f"{what} of attempt {attempt.attempt}")
        explained = task.model_copy(update={"needs": ()}) if attempt.evidence == "reported" else task
        return Move(said=(learn,), decision=decision, task=explained, learned=learned)
    if attempt.outcome in ("succeeded", SUPERSEDED):
        return _resolved(dossier, learned, learn, now)
    if dossier.place == AWAITS_OUTCOME and attempt.attempt == task.attempt:
        return _failed(dossier, attempt, learn, now, bounds)
    if dossier.place in ESCALATED:
        return _failed_again(dossier, attempt, learn, now, bounds)
    return Move(said=(learn,), decision=decision, learned=learned)


def _resolved(dossier: Dossier, learned: tuple[Attempt, ...], learn: Said, now: datetime) -> Move:
    row = transition(dossier.place, Event.SUCCEEDED)
    if row is None:
        return late(dossier, "a success")
    last = learned[-1]
    credited = last.outcome == "succeeded" and last.tried
    unexplained = last.evidence == "observed" or (last.outcome == SUPERSEDED and last.fixed_by != "nothing")
    asked = (of_recovery(dossier.task, last.attempt if credited else None),) if unexplained else ()
    findings = _asking(with_tried(dossier.task.findings, _tried(dossier, *learned)), asked)
    result = last.tried if credited and last.evidence == "reported" else _said_of_end(last)
    task = moved(
        dossier.task,
        row,
        now,
        attempt=last.attempt,
        result=result,
        resolution="resolved",
        findings=findings,
        needs=asked,
    )
    reasoning = f"attempt {last.attempt} {last.outcome}, {last.evidence} by {last.by}"
    return Move(
        said=(learn, Said("complete", reasoning)),
        decision="complete as resolved",
        task=task,
        messages=(completed(task, "resolved", result, findings, now),),
        learned=learned,
    )


def _recovered(dossier: Dossier, message: TaskOutcomeReported, what: str, now: datetime) -> Move:
    """Return the end of a failure that is over by no attempt that is known; people are asked for what was changed."""
    row = transition(dossier.place, Event.SUCCEEDED)
    if row is None:
        explained = dossier.task.model_copy(update={"needs": ()})
        if message.evidence == "observed" or explained == dossier.task:
            return late(dossier, what)
        return Move(said=(Said("learn", what),), decision="credit no attempt", task=explained)
    asked = () if message.fixed_by == "nothing" else (of_recovery(dossier.task, None),)
    findings = _asking(with_tried(dossier.task.findings, dossier.tried), asked)
    result = "\n".join((message.note or f"recovered ({message.evidence} by {message.by})", *message.changed))
    task = moved(dossier.task, row, now, result=result, resolution="resolved", findings=findings, needs=asked)
    return Move(
        said=(Said("complete", f"{what}: it is over, and no attempt is credited with it"),),
        decision="complete as resolved",
        task=task,
        messages=(completed(task, "resolved", result, findings, now),),
    )


def _said_of_end(attempt: Attempt) -> str:
    who = f"({attempt.evidence} by {attempt.by})"
    if attempt.evidence == "observed":
        return "\n".join((attempt.note or f"recovered {who}", *attempt.changed))
    match attempt.fixed_by:
        case "nothing":
            return attempt.note or f"recovered by itself {who}"
        case "something_else":
            return f"fixed by something else than the proposal {who}"
        case _:
            return f"{attempt.outcome} {who}"


def _failed(dossier: Dossier, attempt: Attempt, learn: Said, now: datetime, bounds: Bounds) -> Move:
    tried = _tried(dossier, attempt)
    same = same_failures(tried, attempt)
    if attempt.attempt < bounds.max_attempts and same < bounds.max_same_failures:
        row = transition(dossier.place, Event.FAILED, Guard.MAY_RETRY)
        if row is None:
            return late(dossier, "a failure")
        number = attempt.attempt + 1
        reasoning = f"{_counts(attempt, same, bounds)}: attempt {number} goes to the developer"
        return Move(
            said=(learn, Said("plan", reasoning)),
            decision=f"delegate attempt {number}",
            task=attempting(dossier.task, row, now, number, override=None),
            delegate="work",
            learned=(attempt,),
        )
    return _escalated(dossier, attempt, learn, now, bounds)


def _failed_again(dossier: Dossier, attempt: Attempt, learn: Said, now: datetime, bounds: Bounds) -> Move:
    """Return the move on a failure that is reported while the task waits: asked differently once it repeats."""
    escalation, same = dossier.task.escalation, same_failures(_tried(dossier, attempt), attempt)
    used_up, repeated = attempt.attempt >= bounds.max_attempts, same >= bounds.max_same_failures
    asked_already = escalation is not None and escalation.code == "repeated_failure"
    to_human_already = asked_already and escalation is not None and escalation.to == "human"
    if to_human_already or not (used_up or (repeated and not asked_already)):
        return Move(said=(learn,), decision=f"remember attempt {attempt.attempt}", learned=(attempt,))
    return _escalated(dossier, attempt, learn, now, bounds)


def _escalated(dossier: Dossier, attempt: Attempt, learn: Said, now: datetime, bounds: Bounds) -> Move:
    tried, waited = _tried(dossier, attempt), dossier.place in ESCALATED
    same = same_failures(tried, attempt)
    used_up = attempt.attempt >= bounds.max_attempts
    guard, to = (Guard.USED_UP, "human") if used_up else (Guard.SAME_FAILURE, "calling_llm")
    row = transition(dossier.place, Event.FAILED, guard)
    if row is None:
        return late(dossier, "a failure")
    escalation = of_failures(dossier.task, to, len(tried), same)
    findings = with_tried(dossier.task.findings, tried)
    task = attempting(dossier.task, row, now, attempt.attempt, override=None, escalation=escalation, findings=findings)
    escalated = TaskEscalated(
        task_id=task.task_id,
        to=to,
        code=escalation.code,
        needs=escalation.needs,
        confidence=task.confidence,
        findings=findings,
    )
    counts = _counts(attempt, same, bounds)
    resumed: tuple[Message, ...] = (TaskResumed(task_id=task.task_id, reason=counts),) if waited else ()
    return Move(
        said=(learn, Said("escalate", f"{counts}: {to} has to decide")),
        decision=f"escalate to {to}: {escalation.code}",
        task=task,
        messages=(*resumed, escalated),
        learned=(attempt,),
    )


def _counts(attempt: Attempt, same: int, bounds: Bounds) -> str:
    return (
        f"{same} of {bounds.max_same_failures} failures with this error, "
        f"attempt {attempt.attempt} of {bounds.max_attempts}"
    )


def _asking(findings: Findings, asked: tuple[Need, ...]) -> Findings:
    """The findings with the question as the next step."""
    steps = tuple(f"{need.what}: `{need.how}`" for need in asked)
    return findings.model_copy(update={"next_steps": steps}) if steps else findings


def _tried(dossier: Dossier, *learned: Attempt) -> tuple[Attempt, ...]:
    known = {one.attempt: one for one in dossier.tried} | {one.attempt: one for one in learned}
    return tuple(known[number] for number in sorted(known))
