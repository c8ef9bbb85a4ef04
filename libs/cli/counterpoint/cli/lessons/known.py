"""The lessons of a project: tasks that are over and past incidents, each with its attempts. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from counterpoint.proto.attempts import Attempt
from counterpoint.proto.lessons import LessonFailure, PastLesson, lesson_attempt
from counterpoint.proto.tasks import ENDED, Task

_LEARNED = frozenset({"succeeded", "failed", "partial"})
_Stored = tuple[Attempt, int]
"""An attempt and its integrity."""


@dataclass(frozen=True)
class KnownLessons:
    """The lessons by id, and the problems of those that cannot be written as a page."""

    by_id: Mapping[str, PastLesson]
    problems: tuple[str, ...] = ()

    def since(self, moment: datetime) -> "KnownLessons":
        """Return the lessons that changed at or after a time."""
        return KnownLessons(
            {key: each for key, each in self.by_id.items() if changed_at(each) >= moment}, self.problems
        )


def changed_at(lesson: PastLesson) -> datetime:
    """Return the time of the last outcome of a lesson, or of its end."""
    times = [each.decided_at or each.at for each in lesson.attempts]
    return max([*times, *([lesson.failure.ended_at] if lesson.failure.ended_at else [])])


def known_lessons(tasks: Iterable[Mapping[str, Any]], attempts: Iterable[Mapping[str, Any]]) -> KnownLessons:
    """Return the lessons in tasks and attempts as HTTP gives them.

    A lesson is a task that has ended, or a past incident, with an outcome that is known. Attempts in shadow are left
    out: nobody was shown them.
    """
    by_task = {task["task_id"]: Task.model_validate(task) for task in tasks}
    groups: dict[str, list[_Stored]] = defaultdict(list)
    for each in attempts:
        attempt = Attempt.model_validate(each)
        if not attempt.shadow:
            key = attempt.origin.lesson_id if attempt.origin else attempt.task_id
            groups[key].append((attempt, each.get("integrity", 0)))
    lessons, problems = {}, []
    for key in sorted(groups):
        task = by_task.get(key)
        if not _is_over(task, groups[key]):
            continue
        try:
            lessons[key] = _lesson(key, task, groups[key])
        except ValidationError as error:
            first = error.errors()[0]
            problems.append(f"{key}: {'.'.join(map(str, first['loc']))} cannot be written as a page: {first['msg']}")
    return KnownLessons(lessons, tuple(problems))


def _is_over(task: Task | None, stored: Sequence[_Stored]) -> bool:
    if not any(attempt.outcome in _LEARNED for attempt, _ in stored):
        return False
    if task is not None:
        return task.state in ENDED
    return all(attempt.source is not None for attempt, _ in stored)


def _lesson(key: str, task: Task | None, stored: Sequence[_Stored]) -> PastLesson:
    made = [lesson_attempt(attempt, integrity) for attempt, integrity in stored]
    attempts = {each.id: each for each in sorted(made, key=lambda each: (each.attempt, each.at, each.id))}
    return PastLesson(id=key, failure=_failure(task, stored), attempts=tuple(attempts.values()))


def _failure(task: Task | None, stored: Sequence[_Stored]) -> LessonFailure:
    """Return the failure: as a person edited it last, else as its task or its first attempt states it."""
    ordered = sorted(stored, key=lambda each: (each[0].attempt, each[0].at, each[0].attempt_id))
    edited = [attempt for attempt, _ in ordered if attempt.origin and attempt.origin.by is None]
    if task is not None and not edited:
        return _failure_of_task(task)
    attempt = edited[-1] if edited else ordered[0][0]
    values: dict[str, Any] = {
        name: getattr(attempt, name) for name in ("title", "description", "error_message", "systems", "job")
    }
    values["error_signature"] = None if attempt.error_message else attempt.error_signature
    if origin := attempt.origin:
        names = ("source", "submitted_by", "submitted_at", "ended_at", "resolution", "cited")
        values |= {name: getattr(origin, name) for name in names}
    else:
        values["source"] = attempt.source
    return LessonFailure(**values)


def _failure_of_task(task: Task) -> LessonFailure:
    return LessonFailure(
        title=task.title,
        description=task.description,
        error_message=task.error_message,
        error_signature=None if task.error_message else task.error_signature,
        systems=task.systems,
        job=task.target.job if task.target else None,
        submitted_by=task.submitted_by,
        submitted_at=task.submitted_at,
        ended_at=task.ended_at,
        resolution=task.resolution,
        cited=tuple(_cited(task)),
    )


def _cited(task: Task) -> Iterator[str]:
    for each in task.findings.citations if task.findings else ():
        if each.role != "candidate":
            yield f"{each.source_path}, characters {each.start} to {each.end}"
