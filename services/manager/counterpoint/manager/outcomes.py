"""Outcomes: what follows when somebody says, or a run shows, how an attempt went (rows A6, A8)."""

from datetime import datetime
from typing import assert_never

from counterpoint.manager.attempts import (
    Contradicted,
    Corrected,
    NoSuchAttempt,
    Own,
    Repeated,
    Told,
    failure,
    same_failures,
    verdict,
    with_tried,
)
from counterpoint.manager.bounds import Bounds
from counterpoint.manager.dossier import Dossier
from counterpoint.manager.escalation import of_failures
from counterpoint.manager.moves import Move, Said, attempting, late, moved
from counterpoint.manager.work import completed
from counterpoint.manager.workflow import AWAITS_OUTCOME, Event, Guard, transition
from counterpoint.proto.attempts import Attempt, TaskOutcomeReported
from counterpoint.proto.tasks import TaskEscalated


def told(dossier: Dossier, message: TaskOutcomeReported, now: datetime, bounds: Bounds) -> Move:
    """What follows from an outcome: an end, another attempt, an escalation, or only that it is remembered.

    The same outcome again has no second effect. A different one for the same attempt has none either and is decided as
    a conflict, but a reported one takes the place of an observed one, after the end too, where the state stays.
    """
    found = verdict(dossier, message, now)
    what = f"outcome {message.outcome} ({message.evidence} by {message.by})"
    match found:
        case NoSuchAttempt(number):
            return late(dossier, f"{what} of {f'attempt {number}' if number else 'an attempt not named'}")
        case Repeated(attempt):
            return late(dossier, f"{what} of attempt {attempt.attempt} is known")
        case Contradicted(attempt):
            known = f"{attempt.outcome} ({attempt.evidence} by {attempt.by})"
            reasoning = f"{what} of attempt {attempt.attempt} contradicts what is known, {known}: no effect"
            return Move(said=(Said("late", reasoning),), decision=f"conflict on attempt {attempt.attempt}")
        case Told() | Own() | Corrected():
            return _learned(dossier, found, what, now, bounds)
        case _:
            assert_never(found)


def _learned(dossier: Dossier, found: Told | Own | Corrected, what: str, now: datetime, bounds: Bounds) -> Move:
    attempt, task = found.attempt, dossier.task
    signed = failure(attempt) if attempt.outcome != "succeeded" else None
    learn = Said("learn", f"attempt {attempt.attempt}: {what}" + (f", error signature {signed}" if signed else ""))
    if dossier.place.ended:
        awaited = isinstance(found, Corrected) or task.resolution == "proposed"
        if not awaited:
            return late(dossier, f"{what} of attempt {attempt.attempt}")
        return Move(said=(learn,), decision=f"remember attempt {attempt.attempt}", task=task, learned=attempt)
    if attempt.outcome == "succeeded":
        return _resolved(dossier, attempt, learn, now)
    if dossier.place == AWAITS_OUTCOME and attempt.attempt == task.attempt:
        return _failed(dossier, attempt, learn, now, bounds)
    return Move(said=(learn,), decision=f"remember attempt {attempt.attempt}", learned=attempt)


def _resolved(dossier: Dossier, attempt: Attempt, learn: Said, now: datetime) -> Move:
    row = transition(dossier.place, Event.SUCCEEDED)
    if row is None:
        return late(dossier, "a success")
    findings = with_tried(dossier.task.findings, _tried(dossier, attempt))
    result = attempt.tried or f"{attempt.outcome} ({attempt.evidence} by {attempt.by})"
    task = moved(
        dossier.task, row, now, attempt=attempt.attempt, result=result, resolution="resolved", findings=findings
    )
    return Move(
        said=(learn, Said("complete", f"attempt {attempt.attempt} succeeded, {attempt.evidence} by {attempt.by}")),
        decision="complete as resolved",
        task=task,
        messages=(completed(task, "resolved", result, findings, now),),
        learned=attempt,
    )


def _failed(dossier: Dossier, attempt: Attempt, learn: Said, now: datetime, bounds: Bounds) -> Move:
    tried = _tried(dossier, attempt)
    same = same_failures(tried, attempt)
    if attempt.attempt >= bounds.max_attempts:
        guard, to = Guard.USED_UP, "human"
    elif same >= bounds.max_same_failures:
        guard, to = Guard.SAME_FAILURE, "calling_llm"
    else:
        guard, to = Guard.MAY_RETRY, "developer"
    row = transition(dossier.place, Event.FAILED, guard)
    if row is None:
        return late(dossier, "a failure")
    counts = (
        f"{same} of {bounds.max_same_failures} failures with this error, "
        f"attempt {attempt.attempt} of {bounds.max_attempts}"
    )
    if to == "developer":
        number = attempt.attempt + 1
        return Move(
            said=(learn, Said("plan", f"{counts}: attempt {number} goes to the developer")),
            decision=f"delegate attempt {number}",
            task=attempting(dossier.task, row, now, number, override=None),
            delegate="work",
            learned=attempt,
        )
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
    return Move(
        said=(learn, Said("escalate", f"{counts}: {to} has to decide")),
        decision=f"escalate to {to}: {escalation.code}",
        task=task,
        messages=(escalated,),
        learned=attempt,
    )


def _tried(dossier: Dossier, attempt: Attempt) -> tuple[Attempt, ...]:
    known = {one.attempt: one for one in dossier.tried} | {attempt.attempt: attempt}
    return tuple(known[number] for number in sorted(known))
