"""Attempts: the attempt that an outcome belongs to, and the failures that repeat (docs/workflow.md).

The identity of an outcome is (task, attempt). The attempts are its record; `Task.outcomes` is built from them. A
success with another cause than the proposal makes the proposal `superseded`, and the note of the report becomes an
attempt of the reporter.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from counterpoint.manager.task_history import TaskHistory
from counterpoint.manager.workflow import AWAITS_OUTCOME, ESCALATED, WORKING, WorkflowState
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
class FirstOutcome:
    """The first outcome of an attempt of this task. `lesson`: the reporter's attempt that helped instead."""

    attempt: Attempt
    lesson: Attempt | None = None


@dataclass(frozen=True, slots=True)
class ReporterAttempt:
    """The outcome of the reporter's own attempt; `attempt` is its new record."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class OutcomeCorrection:
    """A reported outcome that replaces an observed one. `lesson`: the reporter's attempt that helped instead."""

    attempt: Attempt
    lesson: Attempt | None = None


@dataclass(frozen=True, slots=True)
class UncreditedRecovery:
    """A recovery that is credited to no known attempt."""


@dataclass(frozen=True, slots=True)
class RepeatedOutcome:
    """The same outcome again, or an observation where a report says the same."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class ConflictingOutcome:
    """A different outcome than the known one, without better evidence."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class UnknownAttempt:
    """An outcome of no attempt of this task; `number` is the one in the report."""

    number: int | None


OutcomeVerdict = (
    FirstOutcome
    | ReporterAttempt
    | OutcomeCorrection
    | UncreditedRecovery
    | RepeatedOutcome
    | ConflictingOutcome
    | UnknownAttempt
)


def classify_outcome(history: TaskHistory, message: TaskOutcomeReported, now: datetime) -> OutcomeVerdict:
    """Classify a report. Without a number it belongs to the latest attempt, or to the reporter's next one."""
    task, state = history.task, history.workflow_state
    in_shadow = task.shadow and task.override is None
    if in_shadow and message.fixed_by is None and message.outcome == "succeeded":
        # The proposal was not shown, so it did not cause the success.
        message = message.model_copy(update={"fixed_by": "something_else"})
    if in_shadow and state == AWAITS_OUTCOME and message.outcome in FAILURES and message.attempt is None:
        return ReporterAttempt(_reporter_attempt(task, history.next_attempt, message, now))
    pending = task.attempt if state == AWAITS_OUTCOME else None
    if state.ended and message.attempt is None and _explains(history, message):
        return _reporter_attempt_or_recovery(history, history.next_attempt, message, now)
    number = message.attempt or pending or _superseded(history, message)
    latest = history.attempts[max(history.attempts)][0] if history.attempts else None
    if number in history.attempts:
        return _classify_existing(history, history.attempts[number][0], message, now)
    if number is not None and number == pending:
        return _first_outcome(history, _new_attempt(task, number, task.proposal or "", "developer", now), message, now)
    if number is None and latest and (state.ended or _is_open(latest, state) or _is_repetition(latest, message, state)):
        return _classify_existing(history, latest, message, now)
    if state in ESCALATED and number in (None, history.next_attempt, (task.attempt or 0) + 1):
        return _reporter_attempt_or_recovery(history, number or history.next_attempt, message, now)
    if state == WORKING and message.outcome == "succeeded" and number in (None, task.attempt, history.next_attempt):
        return _reporter_attempt_or_recovery(history, history.next_attempt, message, now)
    return UnknownAttempt(message.attempt)


def is_superseding(message: TaskOutcomeReported) -> bool:
    """Whether a report is a success with another cause than the proposal."""
    return message.outcome == "succeeded" and message.fixed_by in OTHER_CAUSES


def count_same_failures(attempts: Iterable[Attempt], last: Attempt) -> int:
    """Count the attempts that failed with the error signature of `last`, itself included."""
    digest = failure_signature(last)
    return sum(1 for attempt in attempts if attempt.outcome in FAILURES and failure_signature(attempt) == digest)


def failure_signature(attempt: Attempt) -> str | None:
    """Error signature of a failed attempt; without a reported error, that of the error it was made for."""
    error = attempt.outcome_error or attempt.error_message
    return signature(error).digest if error else None


def outcomes_by_number(attempts: Iterable[Attempt]) -> dict[str, dict[str, Any]]:
    """Return the outcome of each attempt, by number: outcome, evidence, by, error_message, note, at."""
    outcomes = {}
    for attempt in attempts:
        if attempt.outcome != UNKNOWN:
            entry = {
                "outcome": attempt.outcome,
                "evidence": attempt.evidence,
                "by": attempt.by,
                "error_message": attempt.outcome_error,
                "note": attempt.note,
                "fixed_by": attempt.fixed_by,
                "at": attempt.decided_at.isoformat() if attempt.decided_at else None,
            }
            outcomes[str(attempt.attempt)] = {name: value for name, value in entry.items() if value is not None}
    return outcomes


def with_attempts(findings: Findings | None, attempts: Iterable[Attempt]) -> Findings:
    """Put the attempts of this task before those of earlier tasks in the findings. Proposals in shadow, which nobody
    was shown, are left out."""
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
        for attempt in attempts
        if not attempt.shadow
    )
    existing = findings or Findings()
    ids = {attempt.id for attempt in own}
    others = tuple(attempt for attempt in existing.similar_attempts if attempt.id not in ids)
    return existing.model_copy(update={"similar_attempts": own + others})


def _explains(history: TaskHistory, message: TaskOutcomeReported) -> bool:
    """Whether a report explains an uncredited recovery."""
    reported = message.outcome == "succeeded" and message.evidence == "reported"
    credited = any(one.evidence == "observed" or one.outcome == SUPERSEDED for one in history.ordered_attempts)
    return reported and bool(history.task.needs) and not credited


def _superseded(history: TaskHistory, message: TaskOutcomeReported) -> int | None:
    """Number of the attempt that an unnumbered report of another cause superseded."""
    numbers = (one.attempt for one in history.ordered_attempts if one.outcome == SUPERSEDED)
    return max(numbers, default=None) if is_superseding(message) else None


def _classify_existing(
    history: TaskHistory, existing: Attempt, message: TaskOutcomeReported, now: datetime
) -> OutcomeVerdict:
    if existing.outcome == UNKNOWN:
        return _first_outcome(history, existing, message, now)
    if existing.evidence == "observed" and message.evidence == "reported":
        return OutcomeCorrection(_with_outcome(existing, message, now), _lesson(history, existing, message, now))
    if message.evidence == "observed" and existing.outcome in (message.outcome, SUPERSEDED):
        return RepeatedOutcome(existing)
    if _is_same(existing, message):
        return RepeatedOutcome(existing)
    if (
        existing.outcome == "succeeded"
        and existing.fixed_by is None
        and is_superseding(message)
        and not _is_by_reporter(existing)
    ):
        return OutcomeCorrection(_with_outcome(existing, message, now), _lesson(history, existing, message, now))
    if existing.note is None and message.note and _is_same_cause(existing, message):
        message = message.model_copy(update={"fixed_by": message.fixed_by or existing.fixed_by})
        return OutcomeCorrection(_with_outcome(existing, message, now), _lesson(history, existing, message, now))
    return ConflictingOutcome(existing)


def _first_outcome(history: TaskHistory, attempt: Attempt, message: TaskOutcomeReported, now: datetime) -> FirstOutcome:
    return FirstOutcome(_with_outcome(attempt, message, now), _lesson(history, attempt, message, now))


def _reporter_attempt_or_recovery(
    history: TaskHistory, number: int, message: TaskOutcomeReported, now: datetime
) -> ReporterAttempt | UncreditedRecovery:
    unexplained = message.evidence == "observed" or message.fixed_by == "nothing"
    act = _offered(history, message) or message.note
    if message.outcome == "succeeded" and (unexplained or not act):
        return UncreditedRecovery()
    return ReporterAttempt(_reporter_attempt(history.task, number, message, now, act))


def _offered(history: TaskHistory, message: TaskOutcomeReported) -> str | None:
    """Return the act that an escalated task offers, if the report is about it: by its cause, or without a note."""
    task = history.task
    about = message.fixed_by == "proposal" or (message.fixed_by is None and not message.note)
    if not about or message.evidence == "observed" or history.workflow_state not in ESCALATED:
        return None
    cited = {each.id for each in task.findings.citations if each.store == "attempts"} if task.findings else set()
    earlier = task.findings.similar_attempts if task.findings else ()
    return next((one.tried for one in earlier if one.id in cited), task.proposal)


def _lesson(history: TaskHistory, existing: Attempt, message: TaskOutcomeReported, now: datetime) -> Attempt | None:
    """Return the reporter's attempt that helped instead of an existing one."""
    explained = is_superseding(message) and message.fixed_by != "nothing" and message.evidence == "reported"
    if not explained or not message.note or _is_by_reporter(existing):
        return None
    number = max([existing.attempt, history.task.attempt or 0, *history.attempts]) + 1
    return _reporter_attempt(history.task, number, message, now)


def _is_same(existing: Attempt, message: TaskOutcomeReported) -> bool:
    report = SUPERSEDED if is_superseding(message) and not _is_by_reporter(existing) else message.outcome
    return (existing.outcome, existing.outcome_error, existing.note) == (report, message.error_message, message.note)


def _is_same_cause(existing: Attempt, message: TaskOutcomeReported) -> bool:
    """Whether a report repeats a success, by the same cause; its note may say more."""
    if is_superseding(message):
        return existing.outcome == SUPERSEDED and existing.fixed_by == message.fixed_by
    return existing.outcome == message.outcome == "succeeded"


def _is_repetition(latest: Attempt, message: TaskOutcomeReported, state: WorkflowState) -> bool:
    """Whether a report without a number repeats the last one. A failure of an escalated task is a new attempt."""
    return _is_same(latest, message) and not (state in ESCALATED and message.outcome in FAILURES)


def _is_by_reporter(existing: Attempt) -> bool:
    """Whether the reporter made the attempt: its note is the text tried."""
    return existing.outcome != UNKNOWN and existing.tried == (existing.note or "")


def _with_outcome(existing: Attempt, message: TaskOutcomeReported, now: datetime) -> Attempt:
    by_reporter = _is_by_reporter(existing)
    superseded = is_superseding(message) and not by_reporter
    return existing.model_copy(
        update={
            "outcome": SUPERSEDED if superseded else message.outcome,
            "outcome_error": message.error_message,
            "note": message.note,
            "evidence": message.evidence,
            "by": message.by,
            "by_kind": message.by_kind,
            "fixed_by": None if by_reporter else message.fixed_by,
            "changed": tuple(dict.fromkeys((*existing.changed, *message.changed))),
            "decided_at": now,
            "tried": (message.note or "") if by_reporter else existing.tried,
        }
    )


def _is_open(latest: Attempt, state: WorkflowState) -> bool:
    """Whether an override replaced the proposal while it waited for its outcome. One that was not shown did not."""
    return state == WORKING and latest.outcome == UNKNOWN and not latest.shadow


def _reporter_attempt(
    task: Task, number: int, message: TaskOutcomeReported, now: datetime, act: str | None = None
) -> Attempt:
    """Return an attempt of the reporter: `act`, else the note. It has no confidence or override, and the report as its
    only source."""
    attempt = _new_attempt(task, number, act or message.note or "", message.by, now)
    removed = {"override_by": None, "reason": None, "constraints": (), "confidence": None, "fixed_by": None}
    sources = (Source(store="actions", id=message.action_id, version=1),)
    report = message.model_copy(update={"fixed_by": None})
    return _with_outcome(attempt.model_copy(update={**removed, "sources": sources}), report, now)


def _new_attempt(task: Task, number: int, tried: str, by: str, now: datetime) -> Attempt:
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
