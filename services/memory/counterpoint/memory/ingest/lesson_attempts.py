"""The attempts of an imported lesson.

An attempt is recorded under the importer's name. Who made it, as its page states, is kept beside it in `origin`. It
counts for no more than the importer may vouch for, and for no more than the page states.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from counterpoint.proto.attempts import Attempt, LessonOrigin
from counterpoint.proto.lessons import LessonAttempt, PastLesson
from counterpoint.proto.principals import Principal
from counterpoint.proto.signature import signature

_VOUCHING = frozenset({"person", "system"})


@dataclass(frozen=True, slots=True)
class ImportedAttempt:
    """An attempt to record, its integrity, and the id of the record that it would repeat in its own project."""

    attempt: Attempt
    integrity: int
    original_id: str


def imported_attempts(
    lesson: PastLesson, project: str, importer: Principal, integrity: int
) -> Iterator[ImportedAttempt]:
    """Yield the attempts of a lesson as records of the importer."""
    for each in lesson.attempts:
        own = each.by is None
        yield ImportedAttempt(
            attempt=_attempt(lesson, each, project, importer),
            integrity=integrity if own else min(integrity, each.integrity),
            original_id=each.id,
        )


def lesson_task_id(lesson_id: str) -> str:
    """Return the task id that the attempts of an imported lesson share."""
    return _id(lesson_id)


def _attempt(lesson: PastLesson, stated: LessonAttempt, project: str, importer: Principal) -> Attempt:
    failure = lesson.failure
    error = failure.error_message
    return Attempt(
        attempt_id=_id(lesson.id, stated.id),
        task_id=lesson_task_id(lesson.id),
        project=project,
        attempt=stated.attempt,
        title=failure.title,
        description=failure.description,
        error_message=error,
        error_signature=signature(error).digest if error else failure.error_signature,
        systems=failure.systems,
        job=failure.job,
        tried=stated.tried,
        summary=stated.summary,
        outcome=stated.outcome,
        outcome_error=stated.outcome_error,
        note=stated.note,
        cause=stated.cause,
        verification=stated.verification,
        evidence=stated.evidence,
        by=importer.name,
        by_kind=_kind(stated, importer),
        fixed_by=stated.fixed_by,
        reason=stated.reason,
        constraints=stated.constraints,
        changed=stated.changed,
        confidence=stated.confidence,
        at=stated.at,
        decided_at=stated.decided_at,
        source=f"lesson {lesson.id}",
        origin=_origin(lesson, stated),
    )


def _kind(stated: LessonAttempt, importer: Principal) -> str | None:
    """Return the kind of reporter. What an agent or nobody vouched for gains nothing from a person's import."""
    return importer.kind if stated.by is None or stated.by_kind in _VOUCHING else stated.by_kind


def _origin(lesson: PastLesson, stated: LessonAttempt) -> LessonOrigin:
    failure = lesson.failure
    return LessonOrigin(
        lesson_id=lesson.id,
        attempt_id=stated.id,
        source=failure.source,
        by=stated.by,
        by_kind=stated.by_kind if stated.by else None,
        override_by=stated.override_by if stated.by else None,
        submitted_by=failure.submitted_by,
        submitted_at=failure.submitted_at,
        ended_at=failure.ended_at,
        resolution=failure.resolution,
        cited=failure.cited,
    )


def _id(*parts: str) -> str:
    digest = hashlib.sha256("\x1f".join(("lesson", *parts)).encode()).hexdigest()
    return f"past-{digest[:32]}"
