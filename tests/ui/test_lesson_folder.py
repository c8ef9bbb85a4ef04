"""A folder of lessons: what an export writes, keeps and reports, and what an import reads."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from ui.lesson_strategies import stored
from ui.test_lesson_pages import LESSON, TEXT, imported, read

from counterpoint.cli.errors import UsageError
from counterpoint.cli.lessons.export import export_to
from counterpoint.cli.lessons.folder import read_folder
from counterpoint.cli.lessons.importing import import_from
from counterpoint.cli.lessons.known import KnownLessons, known_lessons
from counterpoint.cli.lessons.page import file_name

KNOWN = KnownLessons({LESSON.id: LESSON})
NAME = file_name(LESSON)


def exported(root: Path, since: datetime | None = None) -> tuple[list[str], list[str]]:
    """The statuses of an export, and its problems."""
    report = export_to(read_folder(root, missing_ok=True), KNOWN, since)
    return [each["status"] for each in report["pages"]], report["problems"]


def test_a_page_keeps_its_file_when_it_was_moved_or_renamed(tmp_path: Path) -> None:
    assert exported(tmp_path / "l") == (["added"], [])
    moved = tmp_path / "l" / "2026" / "disk.md"
    moved.parent.mkdir()
    (tmp_path / "l" / NAME).rename(moved)
    assert exported(tmp_path / "l") == (["unchanged"], [])
    assert [path.name for path in (tmp_path / "l").rglob("*.md")] == ["disk.md"]


def test_a_page_without_its_lesson_is_reported_and_stays(tmp_path: Path) -> None:
    exported(tmp_path)
    report = export_to(read_folder(tmp_path), KnownLessons({}), None)
    assert (report["pages"], report["without_lesson"]) == ([], [NAME])
    assert (tmp_path / NAME).read_text() == TEXT


@pytest.mark.parametrize(
    "content", ["# Mine\n", TEXT.replace("outcome: failed", "outcome: x"), TEXT.replace("Deleted", "Moved")]
)
def test_a_file_that_would_be_lost_is_kept_and_named(tmp_path: Path, content: str) -> None:
    (tmp_path / NAME).write_text(content)
    statuses, problems = exported(tmp_path)
    assert statuses == ["kept"]
    assert all(NAME in problem for problem in problems)
    assert (tmp_path / NAME).read_text() == content


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    (tmp_path / "l").mkdir()
    (tmp_path / "l" / NAME).symlink_to(target)
    statuses, (problem,) = exported(tmp_path / "l")
    assert (statuses, NAME in problem, target.exists()) == (["kept"], True, False)


def test_only_pages_changed_since_a_time_are_written(tmp_path: Path) -> None:
    assert exported(tmp_path, since=datetime(2026, 11, 2, 3, 0, 1, tzinfo=UTC)) == ([], [])
    assert exported(tmp_path, since=datetime(2026, 11, 2, 3, tzinfo=UTC)) == (["added"], [])


def test_two_pages_of_one_lesson_and_other_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(TEXT)
    (tmp_path / "b.md").write_text(TEXT)
    (tmp_path / "README.md").write_text("# Lessons\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "c.md").write_text(TEXT)
    (tmp_path / "d.md").write_bytes(b"---\ncounterpoint-lesson: '1'\n\xff\n")
    report = import_from(read_folder(tmp_path), KNOWN, None, None)
    assert [(each["file"], each["line"], each["field"]) for each in report["problems"]] == [
        ("b.md", 1, "id"),
        ("d.md", 3, "page"),
    ]
    assert report["skipped"] == ["README.md"]
    with pytest.raises(UsageError):
        read_folder(tmp_path / "missing")


def test_an_attempt_that_a_person_adds_is_the_importers(tmp_path: Path) -> None:
    text = TEXT.replace("\n---\n\n#", "\n- outcome: failed\n  at: 2026-11-03T00:00:00Z\n  by: eve\n---\n\n#")
    text = text.replace(
        "## What fixed it", "### Attempt 3\n\n**Tried**\n\n```text\nAdded a disk\n```\n\n## What fixed it"
    )
    statuses, (own,) = imported(text, LESSON)
    assert statuses == ["unchanged", "unchanged", "edited"]
    assert (own.by, own.tried, own.attempt) == (None, "Added a disk", 4)
    both = known_lessons((), [*stored(LESSON), *stored(read(text).lesson.model_copy(update={"attempts": (own,)}))])
    assert imported(text, both.by_id[LESSON.id]) == (["unchanged"] * 3, [])


def test_open_tasks_shadow_and_unknown_outcomes_are_no_lessons() -> None:
    (first, _) = stored(LESSON)
    native = {name: value for name, value in first.items() if name not in ("origin", "source")} | {"task_id": "t"}
    task = {"task_id": "t", "project": "p", "kind": "troubleshoot", "description": "x", "submitted_by": "me",
            "submitted_at": "2026-11-02T01:02:03Z"}  # fmt: skip
    ended, waiting = task | {"state": "completed"}, task | {"state": "input_required"}
    assert list(known_lessons([ended], [native]).by_id) == ["t"]
    for tasks, attempts in (
        ([waiting], [native]),
        ([], [native]),
        ([ended], [native | {"shadow": True}]),
        ([ended], [native | {"outcome": "unknown"}]),
    ):
        assert known_lessons(tasks, attempts).by_id == {}
    odd = known_lessons([ended], [native, native | {"attempt_id": "b", "outcome": "vanished"}])
    assert (odd.by_id, len(odd.problems)) == ({}, 1)
