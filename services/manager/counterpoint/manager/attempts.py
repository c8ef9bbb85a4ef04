"""Attempts: what an outcome says about which attempt, what is learned from it, and what keeps failing (row A8).

The identity of an outcome is (task, attempt). The attempts are its record; `Task.outcomes` is made from them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from counterpoint.manager.dossier import Dossier
from counterpoint.manager.workflow import AWAITS_OUTCOME, ESCALATED, WORKING, Place
from counterpoint.proto.attempts import Attempt, TaskOutcomeReported
from counterpoint.proto.findings import Findings, SimilarAttempt
from counterpoint.proto.ids import derived_id
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import Task

UNKNOWN = "unknown"
FAILURES = frozenset({"failed", "partial"})


@dataclass(frozen=True, slots=True)
class Told:
    """The first outcome of an attempt that was made in this task."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Own:
    """The outcome of an attempt that the reporter made himself; `attempt` is its new record."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Corrected:
    """A reported outcome in the place of an observed one."""

    attempt: Attempt
    was: str


@dataclass(frozen=True, slots=True)
class Repeated:
    """The same outcome again, or an observation where a report says the same."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Contradicted:
    """Another outcome than the one that is known, and no better evidence."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class NoSuchAttempt:
    """An outcome that belongs to no attempt of this task; `number` is the one that was named."""

    number: int | None


Verdict = Told | Own | Corrected | Repeated | Contradicted | NoSuchAttempt


def verdict(dossier: Dossier, message: TaskOutcomeReported, now: datetime) -> Verdict:
    """What a report means. Without a number it is about the latest attempt, or about the reporter's own next one."""
    task, place = dossier.task, dossier.place
    pending = task.attempt if place == AWAITS_OUTCOME else None
    number = message.attempt or pending
    latest = dossier.attempts[max(dossier.attempts)][0] if dossier.attempts else None
    if number in dossier.attempts:
        return _about(dossier.attempts[number][0], message, now)
    if number is not None and number == pending:
        return Told(_with_outcome(_made(task, number, task.proposal or "", "developer", now), message, now))
    if number is None and latest and (_says(latest, message) or place.ended or _is_open(latest, place)):
        return _about(latest, message, now)
    if place in ESCALATED and number in (None, dossier.next_attempt, (task.attempt or 0) + 1):
        return Own(_own(task, number or dossier.next_attempt, message, now))
    if place == WORKING and message.outcome == "succeeded" and number in (None, task.attempt, dossier.next_attempt):
        return Own(_own(task, dossier.next_attempt, message, now))
    return NoSuchAttempt(message.attempt)


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
            outcome=attempt.outcome,
            note=attempt.note,
            evidence=attempt.evidence,
            by=attempt.override_by or attempt.by,
            score=1.0,
        )
        for attempt in tried
    )
    known = findings or Findings()
    ids = {attempt.id for attempt in own}
    others = tuple(attempt for attempt in known.similar_attempts if attempt.id not in ids)
    return known.model_copy(update={"similar_attempts": own + others})


def _about(known: Attempt, message: TaskOutcomeReported, now: datetime) -> Verdict:
    if known.outcome == UNKNOWN:
        return Told(_with_outcome(known, message, now))
    if known.evidence == "observed" and message.evidence == "reported":
        return Corrected(_with_outcome(known, message, now), known.outcome)
    if _says(known, message) or (message.evidence == "observed" and known.outcome == message.outcome):
        return Repeated(known)
    return Contradicted(known)


def _says(known: Attempt, message: TaskOutcomeReported) -> bool:
    return (known.outcome, known.outcome_error, known.note) == (message.outcome, message.error_message, message.note)


def _with_outcome(known: Attempt, message: TaskOutcomeReported, now: datetime) -> Attempt:
    made_by_reporter = known.outcome != UNKNOWN and known.tried == (known.note or "")
    return known.model_copy(
        update={
            "outcome": message.outcome,
            "outcome_error": message.error_message,
            "note": message.note,
            "evidence": message.evidence,
            "by": message.by,
            "decided_at": now,
            "tried": (message.note or "") if made_by_reporter else known.tried,
        }
    )


def _is_open(latest: Attempt, place: Place) -> bool:
    """A proposal that an override has put aside while it waited for its outcome."""
    return place == WORKING and latest.outcome == UNKNOWN


def _own(task: Task, number: int, message: TaskOutcomeReported, now: datetime) -> Attempt:
    """An attempt that the developer had no part in: neither its confidence nor an override is behind it."""
    made = _made(task, number, message.note or "", message.by, now)
    return _with_outcome(made.model_copy(update={"override_by": None, "confidence": None}), message, now)


def _made(task: Task, number: int, tried: str, by: str, now: datetime) -> Attempt:
    return Attempt(
        attempt_id=derived_id(task.task_id, "attempt", number),
        task_id=task.task_id,
        project=task.project,
        attempt=number,
        description=task.description,
        error_message=task.error_message,
        error_signature=task.error_signature,
        systems=task.systems,
        job=task.target.job if task.target else None,
        tried=tried,
        by=by,
        override_by=task.override.by if task.override else None,
        confidence=task.confidence.score if task.confidence else None,
        at=now,
    )
