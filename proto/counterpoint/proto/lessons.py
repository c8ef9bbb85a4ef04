"""Lessons: a failure that is over, what was tried for it, and how each attempt ended."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from counterpoint.proto.attempts import Attempt, FixedBy, Outcome
from counterpoint.proto.incidents import Word
from counterpoint.proto.messages import Id, Shape, Time
from counterpoint.proto.tasks import JobRef

LessonText = Annotated[str, StringConstraints(max_length=200_000, pattern=r"^[^\x00]*$")]
_Title = Annotated[str, StringConstraints(min_length=1, max_length=300, pattern=r"^[^\x00]*$")]


class LessonAttempt(Shape):
    """One attempt of a lesson.

    `by` is who made or reported it, as the page states it; without it the attempt is the importer's own. `integrity`
    is what it counted for where it was recorded: 2 said by a person or an operated system, 1 by an agent, 0 by nobody.
    `cause` and `verification`: why it failed, and how to see that the fix works, in a person's words.
    """

    id: Id
    attempt: int = Field(ge=1, le=1_000_000)
    tried: LessonText
    summary: LessonText | None = None
    outcome: Outcome | Literal["superseded", "unknown"] = "unknown"
    outcome_error: LessonText | None = None
    note: LessonText | None = None
    cause: LessonText | None = None
    verification: LessonText | None = None
    evidence: Literal["reported", "observed"] = "reported"
    by: Word | None = None
    by_kind: Word | None = None
    fixed_by: FixedBy | None = None
    override_by: Word | None = None
    reason: LessonText | None = None
    constraints: tuple[LessonText, ...] = Field(default=(), max_length=200)
    changed: tuple[LessonText, ...] = Field(default=(), max_length=200)
    confidence: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    integrity: int = Field(default=2, ge=0, le=2)
    at: Time
    decided_at: Time | None = None


class LessonFailure(Shape):
    """The failure of a lesson and its task. `source` is the file or system of a past incident, `error_signature` that
    of an error whose text is not recorded."""

    title: _Title | None = None
    description: LessonText
    error_message: LessonText | None = None
    error_signature: Word | None = None
    systems: tuple[Word, ...] = Field(default=(), max_length=50)
    job: JobRef | None = None
    source: Annotated[str, StringConstraints(min_length=1, max_length=2_000, pattern=r"^[^\x00]*$")] | None = None
    submitted_by: Word | None = None
    submitted_at: Time | None = None
    ended_at: Time | None = None
    resolution: Word | None = None
    cited: tuple[LessonText, ...] = Field(default=(), max_length=200)


class PastLesson(Shape):
    """A failure that is over: its id (that of its task or past incident), the failure, and the attempts in order."""

    id: Id
    failure: LessonFailure
    attempts: tuple[LessonAttempt, ...] = Field(min_length=1, max_length=500)

    @model_validator(mode="after")
    def _has_distinct_attempts(self) -> "PastLesson":
        if len({each.id for each in self.attempts}) < len(self.attempts):
            raise ValueError("attempts must have different ids")
        return self


_OF_ATTEMPT = frozenset(LessonAttempt.model_fields) & frozenset(Attempt.model_fields)
_STATED = ("by", "by_kind", "override_by")
"""Statements of a page about people, in place of the importer that the record names."""


def lesson_attempt(attempt: Attempt, integrity: int) -> LessonAttempt:
    """Return a stored attempt as a page states it. Raises `ValidationError` for one that no page can state."""
    values = {name: getattr(attempt, name) for name in _OF_ATTEMPT}
    values |= {"id": attempt.attempt_id, "integrity": integrity}
    if origin := attempt.origin:
        values["id"] = origin.attempt_id
        if origin.by is not None:
            values |= {name: getattr(origin, name) for name in _STATED}
    return LessonAttempt.model_validate(values)
