"""Attempts: the attempt that an outcome is about, the lesson of it, and the failures that repeat (row A8).

The identity of an outcome is (task, attempt). The attempts are its record; `Task.outcomes` is made from them. A success
that is due to something else than the proposal credits nothing to it: the proposal is `superseded`, and the note of the
report is an attempt of the reporter's own.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from counterpoint.manager.dossier import Dossier
from counterpoint.manager.workflow import AWAITS_OUTCOME, ESCALATED, WORKING, Place
from counterpoint.proto.attempts import SUPERSEDED, Attempt, TaskOutcomeReported
from counterpoint.proto.decisions import Source
from counterpoint.proto.findings import Findings, SimilarAttempt
from counterpoint.proto.ids import derived_id
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import Task

UNKNOWN = "unknown"
FAILURES = frozenset({"failed", "partial"})


OTHER_CAUSES = frozenset({"something_else", "nothing"})


@dataclass(frozen=True, slots=True)
class First:
    """The first outcome of an attempt that was made in this task. `lesson`: the act that helped instead of it."""

    attempt: Attempt
    lesson: Attempt | None = None


@dataclass(frozen=True, slots=True)
class Own:
    """The outcome of an attempt that the reporter made himself; `attempt` is its new record."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Correction:
    """A reported outcome in the place of an observed one. `lesson`: the act that helped instead of the attempt."""

    attempt: Attempt
    lesson: Attempt | None = None


@dataclass(frozen=True, slots=True)
class Recovery:
    """The failure is over, and by no attempt that is known: nothing is learned from it."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """The same outcome again, or an observation where a report says the same."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Another outcome than the one that is known, and no better evidence."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class NoSuchAttempt:
    """An outcome that belongs to no attempt of this task; `number` is the one that was named."""

    number: int | None


Verdict = First | Own | Correction | Recovery | Repetition | Contradiction | NoSuchAttempt


def verdict(dossier: Dossier, message: TaskOutcomeReported, now: datetime) -> Verdict:
    """Return the meaning of a report. Without a number it is about the latest attempt, or the reporter's next one."""
    task, place = dossier.task, dossier.place
    unshown = task.shadow and task.override is None
    if unshown and message.fixed_by is None and message.outcome == "succeeded":
        # Nobody was shown the proposal: whatever helped, it was not that.
        message = message.model_copy(update={"fixed_by": "something_else"})
    if unshown and place == AWAITS_OUTCOME and message.outcome in FAILURES and message.attempt is None:
        return Own(_own(task, dossier.next_attempt, message, now))
    pending = task.attempt if place == AWAITS_OUTCOME else None
    if place.ended and message.attempt is None and _explains(dossier, message):
        return _own_or_recovery(dossier, dossier.next_attempt, message, now)
    number = message.attempt or pending or _superseded(dossier, message)
    latest = dossier.attempts[max(dossier.attempts)][0] if dossier.attempts else None
    if number in dossier.attempts:
        return _about(dossier, dossier.attempts[number][0], message, now)
    if number is not None and number == pending:
        return _first(dossier, _made(task, number, task.proposal or "", "developer", now), message, now)
    if number is None and latest and (place.ended or _is_open(latest, place) or _says_again(latest, message, place)):
        return _about(dossier, latest, message, now)
    if place in ESCALATED and number in (None, dossier.next_attempt, (task.attempt or 0) + 1):
        return _own_or_recovery(dossier, number or dossier.next_attempt, message, now)
    if place == WORKING and message.outcome == "succeeded" and number in (None, task.attempt, dossier.next_attempt):
        return _own_or_recovery(dossier, dossier.next_attempt, message, now)
    return NoSuchAttempt(message.attempt)


def is_superseding(message: TaskOutcomeReported) -> bool:
    """Whether a report is of a success that no proposal is to be credited with."""
    return message.outcome == "succeeded" and message.fixed_by in OTHER_CAUSES


def same_failures(tried: Iterable[Attempt], last: Attempt) -> int:
    """How many attempts failed with the error signature of `last`, itself included."""
    digest = failure(last)
    return sum(1 for attempt in tried if attempt.outcome in FAILURES and failure(attempt) == digest)


def failure(attempt: Attempt) -> str | None:
    """The signature of what an attempt failed with; where no error was told, that of the error it was made for."""
    error = attempt.outcome_error or attempt.error_message
    return signature(error).digest if error else None


def outcomes(tried: Iterable[Attempt]) -> dict[str, dict[str, Any]]:
    """What is known of each attempt, by its number: outcome, evidence, by, error_message, note, at."""
    known = {}
    for attempt in tried:
        if attempt.outcome != UNKNOWN:
            told = {
                "outcome": attempt.outcome,
                "evidence": attempt.evidence,
                "by": attempt.by,
                "error_message": attempt.outcome_error,
                "note": attempt.note,
                "fixed_by": attempt.fixed_by,
                "at": attempt.decided_at.isoformat() if attempt.decided_at else None,
            }
            known[str(attempt.attempt)] = {name: value for name, value in told.items() if value is not None}
    return known


def with_tried(findings: Findings | None, tried: Iterable[Attempt]) -> Findings:
    """The findings with every attempt of this task in front of what earlier tasks knew."""
    own = tuple(
        SimilarAttempt(
            id=attempt.attempt_id,
            when=attempt.at,
            tried=attempt.tried,
            summary=attempt.summary,
            outcome=attempt.outcome,
            note=attempt.note,
            evidence=attempt.evidence,
            by=attempt.override_by or attempt.by,
            reason=attempt.reason,
            constraints=attempt.constraints,
            changed=attempt.changed,
            score=1.0,
        )
        for attempt in tried
    )
    known = findings or Findings()
    ids = {attempt.id for attempt in own}
    others = tuple(attempt for attempt in known.similar_attempts if attempt.id not in ids)
    return known.model_copy(update={"similar_attempts": own + others})


def _explains(dossier: Dossier, message: TaskOutcomeReported) -> bool:
    """Whether a report answers what was asked after a recovery without a proposal."""
    reported = message.outcome == "succeeded" and message.evidence == "reported"
    credited = any(one.evidence == "observed" or one.outcome == SUPERSEDED for one in dossier.tried)
    return reported and bool(dossier.task.needs) and not credited


def _superseded(dossier: Dossier, message: TaskOutcomeReported) -> int | None:
    """The number of the attempt that an unnumbered report of another cause was about before."""
    known = (one.attempt for one in dossier.tried if one.outcome == SUPERSEDED)
    return max(known, default=None) if is_superseding(message) else None


def _about(dossier: Dossier, known: Attempt, message: TaskOutcomeReported, now: datetime) -> Verdict:
    if known.outcome == UNKNOWN:
        return _first(dossier, known, message, now)
    if known.evidence == "observed" and message.evidence == "reported":
        return Correction(_with_outcome(known, message, now), _lesson(dossier, known, message, now))
    if message.evidence == "observed" and known.outcome in (message.outcome, SUPERSEDED):
        return Repetition(known)
    if _says(known, message):
        return Repetition(known)
    if known.outcome == "succeeded" and known.fixed_by is None and is_superseding(message) and not _is_reporters(known):
        return Correction(_with_outcome(known, message, now), _lesson(dossier, known, message, now))
    if known.outcome == SUPERSEDED and known.note is None and message.fixed_by == known.fixed_by and message.note:
        return Correction(_with_outcome(known, message, now), _lesson(dossier, known, message, now))
    return Contradiction(known)


def _first(dossier: Dossier, made: Attempt, message: TaskOutcomeReported, now: datetime) -> First:
    return First(_with_outcome(made, message, now), _lesson(dossier, made, message, now))


def _own_or_recovery(dossier: Dossier, number: int, message: TaskOutcomeReported, now: datetime) -> Own | Recovery:
    unexplained = message.evidence == "observed" or message.fixed_by == "nothing"
    if message.outcome == "succeeded" and (unexplained or (is_superseding(message) and not message.note)):
        return Recovery()
    return Own(_own(dossier.task, number, message, now))


def _lesson(dossier: Dossier, known: Attempt, message: TaskOutcomeReported, now: datetime) -> Attempt | None:
    """The act that helped instead of an attempt, as the reporter's own attempt."""
    explained = is_superseding(message) and message.fixed_by != "nothing" and message.evidence == "reported"
    if not explained or not message.note or _is_reporters(known):
        return None
    number = max([known.attempt, dossier.task.attempt or 0, *dossier.attempts]) + 1
    return _own(dossier.task, number, message, now)


def _says(known: Attempt, message: TaskOutcomeReported) -> bool:
    said = SUPERSEDED if is_superseding(message) and not _is_reporters(known) else message.outcome
    return (known.outcome, known.outcome_error, known.note) == (said, message.error_message, message.note)


def _says_again(latest: Attempt, message: TaskOutcomeReported, place: Place) -> bool:
    """Whether a report without a number repeats the last one. On an escalated task a failure is one more try."""
    return _says(latest, message) and not (place in ESCALATED and message.outcome in FAILURES)


def _is_reporters(known: Attempt) -> bool:
    """Whether an attempt was made by who reported it: its note is the act."""
    return known.outcome != UNKNOWN and known.tried == (known.note or "")


def _with_outcome(known: Attempt, message: TaskOutcomeReported, now: datetime) -> Attempt:
    reporters = _is_reporters(known)
    superseded = is_superseding(message) and not reporters
    return known.model_copy(
        update={
            "outcome": SUPERSEDED if superseded else message.outcome,
            "outcome_error": message.error_message,
            "note": message.note,
            "evidence": message.evidence,
            "by": message.by,
            "by_kind": message.by_kind,
            "fixed_by": None if reporters else message.fixed_by,
            "changed": tuple(dict.fromkeys((*known.changed, *message.changed))),
            "decided_at": now,
            "tried": (message.note or "") if reporters else known.tried,
        }
    )


def _is_open(latest: Attempt, place: Place) -> bool:
    """A proposal that an override has put aside while it waited for its outcome."""
    return place == WORKING and latest.outcome == UNKNOWN


def _own(task: Task, number: int, message: TaskOutcomeReported, now: datetime) -> Attempt:
    """An attempt that the developer had no part in: neither its confidence nor an override is behind it, and it rests
    on the report alone."""
    made = _made(task, number, message.note or "", message.by, now)
    own = {"override_by": None, "reason": None, "constraints": (), "confidence": None, "fixed_by": None}
    rests_on = (Source(store="actions", id=message.action_id, version=1),)
    said = message.model_copy(update={"fixed_by": None})
    return _with_outcome(made.model_copy(update={**own, "sources": rests_on}), said, now)


def _made(task: Task, number: int, tried: str, by: str, now: datetime) -> Attempt:
    return Attempt(
        attempt_id=derived_id(task.task_id, "attempt", number),
        task_id=task.task_id,
        project=task.project,
        attempt=number,
        title=task.title,
        description=task.description,
        error_message=task.error_message,
        error_signature=task.error_signature,
        systems=task.systems,
        job=task.target.job if task.target else None,
        tried=tried,
        by=by,
        override_by=task.override.by if task.override else None,
        reason=task.override.reasoning if task.override else None,
        constraints=task.override.constraints if task.override else (),
        confidence=task.confidence.score if task.confidence else None,
        at=now,
    )
