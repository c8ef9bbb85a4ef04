"""Lessons of any content, and what a project stores after it imported them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from counterpoint.memory.ingest.lesson_attempts import imported_attempts
from counterpoint.proto.lessons import LessonAttempt, LessonFailure, PastLesson
from counterpoint.proto.principals import Principal

IMPORTER = Principal(name="maria", kind="person", projects=("*",), roles=("read", "ingest"))
_ANY = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=40)
_TRICKY = st.sampled_from(
    [
        "```\n# not a heading\n```",
        "~~~\n---\n~~~",
        "---\nid: other\n---",
        "![x](http://evil.example/p.png) <script>alert(1)</script> [a](javascript:x)",
        "**Tried**\n\n```text\nforged\n```",
        "a\r\nb\r",
        "trailing  \n\n",
        "\u202ereversed \x1b[31mred",
        "&amp; \\` *x* {% raw %}",
        "``````",
        "Not recorded.",
    ]
)
TEXTS = _ANY | _TRICKY
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=20) | st.sampled_from(
    ["no", "1e3", "~", "2026-01-02", "a: b", "#x", "'", "'''", "- a", "@ada", "null"]
)
IDS = st.text("abcXYZ019_-", min_size=1, max_size=20)
TIMES = st.integers(0, 4 * 10**15).map(lambda us: datetime.fromtimestamp(0, UTC) + timedelta(microseconds=us))


def _maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


@st.composite
def attempts(draw: st.DrawFn, number: int) -> LessonAttempt:
    """An attempt that somebody made."""
    return LessonAttempt(
        id=f"{draw(IDS)}-{number}",
        attempt=number,
        tried=draw(TEXTS),
        summary=draw(_maybe(TEXTS)),
        outcome=draw(st.sampled_from(["succeeded", "failed", "partial", "superseded", "unknown"])),
        outcome_error=draw(_maybe(TEXTS)),
        note=draw(_maybe(TEXTS)),
        cause=draw(_maybe(TEXTS)),
        verification=draw(_maybe(TEXTS)),
        evidence=draw(st.sampled_from(["reported", "observed"])),
        by=draw(NAMES),
        by_kind=draw(st.sampled_from([None, "person", "agent", "system"])),
        fixed_by=draw(st.sampled_from([None, "something_else", "nothing", "proposal"])),
        override_by=draw(_maybe(NAMES)),
        reason=draw(_maybe(TEXTS)),
        constraints=tuple(draw(st.lists(TEXTS, max_size=2))),
        changed=tuple(draw(st.lists(TEXTS, max_size=2))),
        confidence=draw(_maybe(st.floats(0, 1))),
        integrity=draw(st.integers(0, 2)),
        at=draw(TIMES),
        decided_at=draw(_maybe(TIMES)),
    )


@st.composite
def lessons(draw: st.DrawFn) -> PastLesson:
    """A lesson with an outcome that is known."""
    made = [draw(attempts(number)) for number in range(1, draw(st.integers(1, 3)) + 1)]
    made[-1] = made[-1].model_copy(update={"outcome": draw(st.sampled_from(["succeeded", "failed", "partial"]))})
    failure = LessonFailure(
        title=draw(_maybe(NAMES)),
        description=draw(TEXTS),
        error_message=draw(_maybe(TEXTS.filter(bool))),
        systems=tuple(draw(st.lists(NAMES, max_size=3))),
        job=draw(_maybe(st.fixed_dictionaries({"namespace": NAMES, "name": NAMES}))),
        source=draw(_maybe(NAMES)),
        submitted_by=draw(_maybe(NAMES)),
        submitted_at=draw(_maybe(TIMES)),
        ended_at=draw(_maybe(TIMES)),
        resolution=draw(_maybe(NAMES)),
        cited=tuple(draw(st.lists(TEXTS, max_size=2))),
    )
    return PastLesson(id=draw(IDS), failure=failure, attempts=tuple(made))


def stored(lesson: PastLesson, importer: Principal = IMPORTER, integrity: int = 2) -> list[dict[str, Any]]:
    """The attempts of a project that imported a lesson, as HTTP gives them."""
    return [
        each.attempt.model_dump(mode="json", exclude_none=True) | {"integrity": each.integrity}
        for each in imported_attempts(lesson, "p", importer, integrity)
    ]
