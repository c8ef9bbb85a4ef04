"""Export of lessons to a folder: new and changed pages are written, the edits of a person are kept."""

from datetime import datetime
from pathlib import Path
from typing import Any

from counterpoint.cli.lessons.additions import additions
from counterpoint.cli.lessons.folder import PageFile, PageFolder
from counterpoint.cli.lessons.known import KnownLessons
from counterpoint.cli.lessons.page import file_name, page
from counterpoint.proto.lessons import PastLesson


def export_to(folder: PageFolder, known: KnownLessons, since: datetime | None) -> dict[str, Any]:
    """Write the pages of lessons, those that changed `since` a time, and return the report.

    A lesson that has a page keeps its file, whatever its name.
    """
    chosen = known.since(since) if since else known
    pages: list[dict[str, str]] = []
    problems = [f"{each['file']} line {each['line']}: {each['field']} {each['problem']}" for each in folder.problems]
    problems += known.problems
    for lesson in chosen.by_id.values():
        existing = folder.pages.get(lesson.id)
        path = existing.path if existing else folder.root / file_name(lesson)
        if problem := _obstacle(folder, existing, path, lesson):
            problems.append(problem)
            status = "kept"
        else:
            status = _written(folder, existing, path, lesson)
        pages.append({"lesson": lesson.id, "file": path.relative_to(folder.root).as_posix(), "status": status})
    gone = [each.path for key, each in folder.pages.items() if key not in known.by_id]
    return {
        "pages": pages,
        "without_lesson": [path.relative_to(folder.root).as_posix() for path in gone],
        "problems": problems,
    }


def _written(folder: PageFolder, existing: PageFile | None, path: Path, lesson: PastLesson) -> str:
    changed = folder.write(path, page(lesson))
    return "unchanged" if not changed else "replaced" if existing else "added"


def _obstacle(folder: PageFolder, existing: PageFile | None, path: Path, lesson: PastLesson) -> str | None:
    """Return why a page must not be written, None if it may be."""
    name = path.relative_to(folder.root).as_posix()
    if path in folder.broken:
        return f"{name} is kept: it has a problem, see above"
    if existing is None:
        return (
            f"{name} is kept: it exists and is no page of this lesson" if path.exists() or path.is_symlink() else None
        )
    edited = existing.page.edited or existing.page.failure_edited
    if edited and additions(existing.page, lesson).sent is not None:
        return f"{name} is kept: it was edited; import it first"
    return None
