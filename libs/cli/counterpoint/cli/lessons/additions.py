"""The attempts that an import of a page adds to a project. Pure.

A part that nobody edited is imported as it is stated. An edited one is a new attempt, of the importer: it carries no
name of another. What is known already is not sent again, and nothing is replaced.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from counterpoint.cli.lessons.digests import digest
from counterpoint.cli.lessons.parse import ParsedPage
from counterpoint.proto.lessons import LessonAttempt, PastLesson

_NOT_OWN = frozenset({"id", "by", "by_kind", "override_by", "confidence", "integrity", "fixed_by", "evidence"})
"""Fields of an attempt that a person who edits its page cannot state."""


class AdditionStatus(StrEnum):
    """The treatment of an attempt of a page by an import."""

    UNCHANGED = "unchanged"
    ADDED = "added"
    EDITED = "edited"
    OUTDATED = "outdated"


@dataclass(frozen=True)
class Addition:
    """An attempt of a page and its status. `attempt` is sent if it is added or edited."""

    status: AdditionStatus
    attempt: LessonAttempt


@dataclass(frozen=True)
class PageAdditions:
    """The attempts of a page, each with its status."""

    page: ParsedPage
    additions: tuple[Addition, ...]

    @property
    def sent(self) -> PastLesson | None:
        """Return the lesson with the attempts to send, None if there are none."""
        new = tuple(
            each.attempt for each in self.additions if each.status in (AdditionStatus.ADDED, AdditionStatus.EDITED)
        )
        return self.page.lesson.model_copy(update={"attempts": new}) if new else None


def additions(page: ParsedPage, known: PastLesson | None) -> PageAdditions:
    """Return what the import of a page adds to the lesson that is known, if any."""
    existing = {each.id: each for each in known.attempts} if known else {}
    return PageAdditions(page, tuple(_additions(page, existing)))


def _additions(page: ParsedPage, existing: dict[str, LessonAttempt]) -> Iterator[Addition]:
    everywhere = page.failure_edited and not any(each.id in existing for each in page.lesson.attempts)
    fix = _fix(page.lesson)
    for each in page.lesson.attempts:
        corrects = page.failure_edited and each is fix
        if each.id in page.edited or everywhere or corrects:
            own = _own(page, each)
            status = AdditionStatus.UNCHANGED if own.id in existing else AdditionStatus.EDITED
            yield Addition(status, own)
        elif each.id not in existing:
            yield Addition(AdditionStatus.ADDED, each)
        elif digest(existing[each.id]) == digest(each):
            yield Addition(AdditionStatus.UNCHANGED, each)
        else:
            yield Addition(AdditionStatus.OUTDATED, each)


def _fix(lesson: PastLesson) -> LessonAttempt:
    """Return the attempt that an edit of the failure belongs to: the last that succeeded, else the last."""
    fixes = [each for each in lesson.attempts if each.outcome == "succeeded"]
    return (fixes or list(lesson.attempts))[-1]


def _own(page: ParsedPage, edited: LessonAttempt) -> LessonAttempt:
    """Return an edited attempt as one of the importer, with an id that follows from what it states."""
    stated = LessonAttempt.model_validate({"id": edited.id, **edited.model_dump(exclude=set(_NOT_OWN))})
    failure = digest(page.lesson.failure) if page.failure_edited else ""
    content = "\x1f".join((page.lesson.id, digest(stated, without=frozenset({"id", "attempt"})), failure))
    last = max(each.attempt for each in page.lesson.attempts)
    identity = f"page-{hashlib.sha256(content.encode()).hexdigest()[:32]}"
    return stated.model_copy(update={"id": identity, "attempt": last + 1})
