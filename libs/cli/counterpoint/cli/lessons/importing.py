"""Import of a folder of pages: what is new is sent, and the result of each attempt is reported."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from counterpoint.cli.errors import ApiError
from counterpoint.cli.lessons.additions import AdditionStatus, PageAdditions, additions
from counterpoint.cli.lessons.folder import PageFolder
from counterpoint.cli.lessons.known import KnownLessons
from counterpoint.proto.lessons import PastLesson

if TYPE_CHECKING:
    from counterpoint.cli.api import ApiClient

LESSONS, BATCH_BYTES = 100, 256 * 1024
_ANSWERED = (400, 413, 422)
_OUTDATED = "its outcome was reported again after the page was written; export it again"

_Results = dict[tuple[str, str], dict[str, Any]]
"""The result of each attempt that was sent, by lesson and attempt."""


def import_from(
    folder: PageFolder, known: KnownLessons, api: "ApiClient | None", project: str | None
) -> dict[str, Any]:
    """Import the pages of a folder and return the report; without `api` nothing is sent."""
    planned = {key: additions(each.page, known.by_id.get(key)) for key, each in folder.pages.items()}
    lessons = [lesson for each in planned.values() if (lesson := each.sent) is not None]
    results: _Results = _send(api, lessons, project) if api is not None else {}
    attempts = []
    for key, each in planned.items():
        name = folder.pages[key].path.relative_to(folder.root).as_posix()
        attempts += [{"file": name, "lesson": key, **row} for row in _rows(key, each, results)]
    return {
        "dry_run": api is None,
        "pages": len(folder.pages),
        "attempts": attempts,
        "without_page": [key for key in known.by_id if key not in folder.pages],
        "skipped": [path.relative_to(folder.root).as_posix() for path in folder.others],
        "problems": folder.problems,
    }


def _rows(key: str, planned: PageAdditions, results: _Results) -> Iterator[dict[str, Any]]:
    for place, each in enumerate(planned.additions, 1):
        row: dict[str, Any] = {"attempt": place, "status": each.status.value}
        if each.status is AdditionStatus.OUTDATED:
            row["problem"] = _OUTDATED
        elif result := results.get((key, each.attempt.id)):
            row["id"] = result.get("id")
            if result["status"] in ("refused", "unchanged"):
                row["status"] = result["status"]
            if problem := result.get("problem"):
                row["problem"] = problem
        yield {name: value for name, value in row.items() if value is not None}


def _send(api: "ApiClient", lessons: Sequence[PastLesson], project: str | None) -> _Results:
    results: _Results = {}
    for group in _groups(lessons):
        results |= _send_group(api, group, project)
    return results


def _send_group(api: "ApiClient", group: Sequence[PastLesson], project: str | None) -> _Results:
    """Send lessons. Those of a refused request are sent one by one, so that one does not stop the others."""
    keys = [(lesson.id, attempt.id) for lesson in group for attempt in lesson.attempts]
    body = {"lessons": [lesson.model_dump(mode="json", exclude_none=True) for lesson in group]}
    try:
        reply = api.post("/v1/lessons", body, project=project)
    except ApiError as refused:
        if refused.status not in _ANSWERED:
            raise
        if len(group) > 1:
            return {key: row for lesson in group for key, row in _send_group(api, [lesson], project).items()}
        faults = "; ".join(f"{each.get('field')} {each.get('problem')}" for each in refused.body.get("errors", ()))
        problem = faults or str(refused.body.get("detail") or refused)
        return {key: {"status": "refused", "problem": problem} for key in keys}
    return dict(zip(keys, reply["attempts"], strict=True))


def _groups(lessons: Sequence[PastLesson]) -> Iterator[list[PastLesson]]:
    group: list[PastLesson] = []
    size = 0
    for lesson in lessons:
        more = len(lesson.model_dump_json(exclude_none=True).encode())
        if group and (size + more > BATCH_BYTES or len(group) == LESSONS):
            yield group
            group, size = [], 0
        group.append(lesson)
        size += more
    if group:
        yield group
