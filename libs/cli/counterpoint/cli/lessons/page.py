"""The page of a lesson: ids, times and names in its front matter, texts in blocks of code. Pure.

Lines in italics are derived from the rest and are not read again. `parse.py` reads a page back.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

import yaml
from pydantic import BaseModel

from counterpoint.card.inert import block, has_hidden, span
from counterpoint.cli.lessons.digests import digest
from counterpoint.proto.lessons import LessonAttempt, PastLesson

FORM = "counterpoint-lesson"
"""Key of the front matter that makes a file a page of a lesson; its value is the version of the form."""
VERSION = "1"
FAILURE_TEXTS = {"Description": "description", "Error": "error_message"}
ATTEMPT_TEXTS = {
    "Tried": "tried",
    "In short": "summary",
    "Error afterwards": "outcome_error",
    "Note": "note",
    "Reason": "reason",
}
ATTEMPT_LISTS = {"Constraint": "constraints", "Changed": "changed"}
REVIEWED = {"Cause": "cause", "How to verify": "verification"}
CITED = "Cited"
"""Sections and labels of the body, and the fields that they hold."""
NOT_RECORDED = "*Not recorded.*"
_SLUG_CHARS = 60
_NOT_SLUG = re.compile(r"[^a-z0-9]+")


def page(lesson: PastLesson) -> str:
    """Return the page of a lesson."""
    return f"---\n{_front_matter(lesson)}---\n\n" + "\n\n".join(_body(lesson)) + "\n"


def file_name(lesson: PastLesson) -> str:
    """Return the name of a lesson's page: the day, the failure, and a digest of its id."""
    failure = lesson.failure
    first = failure.submitted_at or min(each.at for each in lesson.attempts)
    named = failure.title or (failure.job.name if failure.job else None) or failure.description
    plain = unicodedata.normalize("NFKD", named).encode("ascii", "ignore").decode().lower()
    slug = _NOT_SLUG.sub("-", plain[: 4 * _SLUG_CHARS]).strip("-")[:_SLUG_CHARS].strip("-") or "lesson"
    return f"{first.date().isoformat()}-{slug}-{hashlib.sha256(lesson.id.encode()).hexdigest()[:12]}.md"


def _front_matter(lesson: PastLesson) -> str:
    texts = {*FAILURE_TEXTS.values(), "cited"}
    head: dict[str, Any] = {FORM: VERSION, "id": lesson.id, **_fields(lesson.failure, texts)}
    head["digest"] = digest(lesson.failure)
    texts = {*ATTEMPT_TEXTS.values(), *ATTEMPT_LISTS.values(), *REVIEWED.values()}
    head["attempts"] = [{**_fields(each, texts), "digest": digest(each)} for each in lesson.attempts]
    readable = _yaml(head, unicode=True)
    return readable if not has_hidden(readable) else _yaml(head, unicode=False)


def _yaml(head: dict[str, Any], *, unicode: bool) -> str:
    return yaml.safe_dump(head, allow_unicode=unicode, sort_keys=False, width=1_000_000)


def _fields(part: BaseModel, texts: set[str]) -> dict[str, Any]:
    dumped = part.model_dump(mode="json", exclude_none=True, exclude=texts)
    return {name: _plain(value) for name, value in dumped.items() if value != []}


def _plain(value: Any) -> Any:
    """Return a value of which YAML keeps the type and every digit as text."""
    return repr(value) if isinstance(value, float) else value


def _body(lesson: PastLesson) -> Iterator[str]:
    failure = lesson.failure
    yield f"# {span(failure.title or failure.description)}"
    yield "## What happened"
    for label, name in FAILURE_TEXTS.items():
        if (text := getattr(failure, name)) is not None:
            yield f"**{label}**\n\n{block(text)}"
    yield from _reviewed(lesson, "Cause")
    yield "## What was tried"
    for place, each in enumerate(lesson.attempts, 1):
        yield f"### Attempt {place}"
        yield f"*{_ending(each)}*"
        yield from _texts(each)
    yield "## What fixed it"
    fixes = [(place, each) for place, each in enumerate(lesson.attempts, 1) if each.outcome == "succeeded"]
    yield "\n\n".join(f"*Attempt {place}, {_evidence(each)}.*" for place, each in fixes) or NOT_RECORDED
    yield from _reviewed(lesson, "How to verify")
    yield "## Sources"
    yield from (f"**{CITED}**\n\n{block(each)}" for each in failure.cited)
    if not failure.cited:
        yield "*No document was cited.*"


def _texts(attempt: LessonAttempt) -> Iterable[str]:
    for label, name in ATTEMPT_TEXTS.items():
        if (text := getattr(attempt, name)) is not None:
            yield f"**{label}**\n\n{block(text)}"
    for label, name in ATTEMPT_LISTS.items():
        yield from (f"**{label}**\n\n{block(text)}" for text in getattr(attempt, name))


def _reviewed(lesson: PastLesson, title: str) -> Iterator[str]:
    yield f"## {title}"
    named = [(place, getattr(each, REVIEWED[title])) for place, each in enumerate(lesson.attempts, 1)]
    blocks = [f"**Attempt {place}**\n\n{block(text)}" for place, text in named if text is not None]
    yield from blocks or [NOT_RECORDED]


def _ending(attempt: LessonAttempt) -> str:
    if attempt.outcome == "superseded":
        return "Superseded: the failure ended for another reason."
    if attempt.outcome == "unknown":
        return "Its outcome is not recorded."
    return f"{attempt.outcome.capitalize()}, {_evidence(attempt)}."


def _evidence(attempt: LessonAttempt) -> str:
    day = (attempt.decided_at or attempt.at).date().isoformat()
    return f"{attempt.evidence} by {span(attempt.by or 'unknown')} on {day}"
