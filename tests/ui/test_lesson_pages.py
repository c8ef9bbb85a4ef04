"""Pages of lessons: what is written is read back without loss, and who edits a page speaks for oneself."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ui.lesson_strategies import IMPORTER, TEXTS, lessons, stored

from counterpoint.card.inert import block, block_text, has_hidden, span
from counterpoint.cli.lessons.additions import AdditionStatus, additions
from counterpoint.cli.lessons.front_matter import PageError
from counterpoint.cli.lessons.known import known_lessons
from counterpoint.cli.lessons.page import file_name, page
from counterpoint.cli.lessons.parse import ParsedPage, parse
from counterpoint.memory.ingest.lesson_attempts import imported_attempts
from counterpoint.proto.lessons import LessonAttempt, PastLesson
from counterpoint.proto.principals import Principal

AGENT = Principal(name="bot", kind="agent", projects=("*",), roles=("ingest",))
LESSON = PastLesson.model_validate(
    {
        "id": "incident-1",
        "failure": {
            "title": "load: disk full",
            "description": "prod/orders.load failed",
            "error_message": "No space left on device",
            "job": {"namespace": "prod", "name": "orders.load"},
            "submitted_at": "2026-11-02T01:02:03Z",
            "cited": ["runbooks/disk.md, characters 1 to 20"],
        },
        "attempts": [
            {
                "id": "a1",
                "attempt": 1,
                "tried": "Restarted it",
                "outcome": "failed",
                "by": "bob",
                "at": "2026-11-02T02:00:00Z",
            },
            {
                "id": "a2",
                "attempt": 2,
                "tried": "Deleted the old logs",
                "outcome": "succeeded",
                "note": "They were never rotated.",
                "by": "ada",
                "by_kind": "person",
                "override_by": "eve",
                "at": "2026-11-02T03:00:00Z",
            },
        ],
    }
)
TEXT = page(LESSON)


def read(text: str) -> ParsedPage:
    """The lesson of a page."""
    parsed = parse(text)
    assert parsed is not None
    return parsed


def lesson_of(*attempts: dict[str, Any]) -> PastLesson:
    """The one lesson in these attempts."""
    (lesson,) = known_lessons((), attempts).by_id.values()
    return lesson


def imported(text: str, existing: PastLesson | None) -> tuple[list[str], list[LessonAttempt]]:
    """The statuses of a page's attempts, and what is sent."""
    planned = additions(read(text), existing)
    return [each.status.value for each in planned.additions], list(planned.sent.attempts if planned.sent else ())


@settings(max_examples=30)
@given(lessons())
def test_a_page_is_read_back_as_it_was_written(lesson: PastLesson) -> None:
    parsed = read(page(lesson))
    assert parsed.lesson == lesson
    assert (parsed.failure_edited, parsed.edited) == (False, frozenset())


@settings(max_examples=30)
@given(lessons())
def test_export_import_export_gives_the_same_bytes_and_a_second_import_adds_nothing(lesson: PastLesson) -> None:
    first = lesson_of(*stored(lesson))
    text, name = page(first), file_name(first)
    statuses, sent = imported(text, None)
    assert set(statuses) == {"added"}
    again = lesson_of(
        *stored(lesson.model_copy(update={"attempts": tuple(sent), "failure": read(text).lesson.failure}))
    )
    assert page(again).encode() == text.encode()
    assert file_name(again) == name
    assert imported(text, again) == (["unchanged"] * len(statuses), [])


@settings(max_examples=30)
@given(lessons())
def test_texts_of_others_stay_within_their_blocks(lesson: PastLesson) -> None:
    outside, fence = [], ""
    for line in page(lesson).split("---\n", 2)[2].split("\n"):
        if not fence and (opened := re.match(r"(`{3,})(text|json)$", line)):
            fence = opened[1]
        elif fence and line == fence:
            fence = ""
        elif not fence:
            outside.append(re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", line))
    assert fence == ""
    assert all(re.fullmatch(r"[\w #*:,.()-]*", line) for line in outside), outside


@given(TEXTS)
def test_a_block_gives_its_text_back(text: str) -> None:
    assert not has_hidden(block(text))
    first, *lines, last = block(text).split("\n")
    assert set(last) == {"`"}
    assert last not in lines
    assert block_text(lines, first.strip("`")) == text


@given(TEXTS)
def test_a_span_is_one_line_of_code_without_invisible_characters(text: str) -> None:
    assert re.fullmatch(r"(`+)[^\n\x1b\u202e]+\1|\(empty\)", span(text))


@settings(max_examples=30)
@given(lessons(), st.integers(0, 2**16), st.text("`#*-:\n x\x1b\ufeff", max_size=4))
def test_any_damage_is_read_or_refused_with_its_line(lesson: PastLesson, place: int, damage: str) -> None:
    text = page(lesson)
    place %= len(text)
    found: PageError | None = None
    try:
        parse(text[:place] + damage + text[place + 1 :])
    except PageError as error:
        found = error
    if found is not None:
        assert 1 <= found.line <= text.count("\n") + 5
        assert found.field
        assert found.problem


def test_an_edited_attempt_is_a_new_one_that_names_nobody_else() -> None:
    text = TEXT.replace("Deleted the old logs", "Deleted the old logs and rotated them")
    statuses, (own,) = imported(text, LESSON)
    assert statuses == ["unchanged", "edited"]
    assert (own.by, own.by_kind, own.override_by, own.confidence) == (None, None, None, None)
    assert own.id != "a2"
    (record,) = imported_attempts(LESSON.model_copy(update={"attempts": (own,)}), "p", IMPORTER, 2)
    assert (record.attempt.by, record.attempt.by_kind, record.attempt.override_by) == ("maria", "person", None)
    both = lesson_of(*stored(LESSON), *stored(LESSON.model_copy(update={"attempts": (own,)})))
    assert [(each.by, each.tried) for each in both.attempts][-1] == ("maria", "Deleted the old logs and rotated them")
    assert imported(text, both) == (["unchanged", "unchanged"], [])
    assert imported(page(both), both) == (["unchanged"] * 3, [])


def test_an_edit_elsewhere_takes_no_name_along() -> None:
    text = TEXT.replace("by: ada", "by: eve")
    _, sent = imported(text, None)
    assert [each.by for each in sent] == ["bob", None]
    _, sent = imported(TEXT.replace("prod/orders.load failed", "The load failed"), None)
    assert [each.by for each in sent] == [None, None]


def test_names_of_a_page_are_kept_beside_the_importer_and_lend_no_authority() -> None:
    for importer, integrity, kind in ((IMPORTER, 2, "person"), (AGENT, 1, "agent")):
        for each in imported_attempts(LESSON, "p", importer, integrity):
            assert (each.attempt.by, each.integrity) == (importer.name, integrity)
            assert each.attempt.override_by is None
        assert each.attempt.by_kind == kind
    stated = LESSON.attempts[1].model_copy(update={"by_kind": "agent", "integrity": 0})
    (each,) = imported_attempts(LESSON.model_copy(update={"attempts": (stated,)}), "p", IMPORTER, 2)
    assert (each.attempt.by_kind, each.integrity) == ("agent", 0)


def test_prose_about_cause_and_verification_is_a_new_attempt_at_the_fix() -> None:
    cause, check = "The logs were never rotated.", "`df -h /var` shows 20 % free."
    text = TEXT.replace("## Cause\n\n*Not recorded.*", f"## Cause\n\n{cause}")
    text = text.replace("## How to verify\n\n*Not recorded.*", f"## How to verify\n\n{check}")
    statuses, (own,) = imported(text, LESSON)
    assert statuses == ["unchanged", "edited"]
    assert (own.tried, own.cause, own.verification) == ("Deleted the old logs", cause, check)
    both = lesson_of(*stored(LESSON), *stored(LESSON.model_copy(update={"attempts": (own,)})))
    assert f"**Attempt 3**\n\n```text\n{cause}\n```" in page(both)


def test_an_edited_failure_is_kept_with_the_fix_and_shown_from_then_on() -> None:
    text = TEXT.replace("prod/orders.load failed", "The nightly load failed")
    statuses, (own,) = imported(text, LESSON)
    assert statuses == ["unchanged", "edited"]
    edited = read(text).lesson.model_copy(update={"attempts": (own,)})
    both = lesson_of(*stored(LESSON), *stored(edited))
    assert both.failure.description == "The nightly load failed"
    assert imported(text, both) == (["unchanged", "unchanged"], [])


def test_a_page_that_is_older_than_the_record_changes_nothing() -> None:
    later = LESSON.attempts[1].model_copy(update={"note": "It came back."})
    newer = LESSON.model_copy(update={"attempts": (LESSON.attempts[0], later)})
    planned = additions(read(TEXT), newer)
    assert [each.status for each in planned.additions] == [AdditionStatus.UNCHANGED, AdditionStatus.OUTDATED]
    assert planned.sent is None


def test_spaces_at_line_ends_and_windows_line_ends_are_no_edit() -> None:
    assert imported(TEXT.replace("\n", "\r\n"), LESSON) == (["unchanged", "unchanged"], [])
    assert imported(TEXT.replace("rotated.", "rotated.  "), LESSON) == (["unchanged", "unchanged"], [])


@pytest.mark.parametrize(
    ("before", "after", "line", "field"),
    [
        ("outcome: failed", "outcome: perhaps", r"outcome: perhaps", "attempts.1.outcome"),
        ("by: ada", "by: ada\n  by: eve", r"by: eve", "attempts.2.by"),
        ("by: ada", "colour: red", r"colour: red", "attempts.2.colour"),
        ("id: incident-1", "id: a b", r"id: a b", "id"),
        ("id: incident-1\n", "", r"counterpoint-lesson", "id"),
        ("id: incident-1", "id: [", r"job:", "front matter"),
        ("id: incident-1", "id: &x a\nsystems: [*x]", r"---", "front matter"),
        ("counterpoint-lesson: '1'", "counterpoint-lesson: '9'", r"counterpoint-lesson", "counterpoint-lesson"),
        ("### Attempt 2", "### Attempt 3", r"### Attempt 3", "heading 'Attempt 3'"),
        ("## Sources", "## Further reading", r"## Further", "Further reading"),
        ("**Note**", "**Remark**", r"\*\*Remark", "Remark"),
        ("**Note**\n\n", "**Note**\n\nAn aside.\n\n", r"An aside", "Note"),
        ("## What fixed it\n", "## What fixed it\n\nRotating them.\n", r"Rotating", "What fixed it"),
        ("at: '2026-11-02T02:00:00Z'", "at: yesterday", r"at: yesterday", "attempts.1.at"),
        ("*Failed,", "```text\nx\n```\n\n*Failed,", r"```text", "block"),
    ],
)
def test_a_fault_names_its_line_and_field(before: str, after: str, line: str, field: str) -> None:
    assert before in TEXT
    text = TEXT.replace(before, after, 1)
    with pytest.raises(PageError) as raised:
        parse(text)
    assert raised.value.field == field
    assert re.match(rf"\s*(- )?{line}", text.split("\n")[raised.value.line - 1])


@pytest.mark.parametrize("text", ["", "# A page\n", "---\ntitle: x\n---\n", "---\n"])
def test_other_files_are_no_pages(text: str) -> None:
    assert parse(text) is None


@settings(max_examples=30)
@given(lessons())
def test_names_of_files_are_safe(lesson: PastLesson) -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-[a-z0-9]([a-z0-9-]*[a-z0-9])?-[0-9a-f]{12}\.md", file_name(lesson))
