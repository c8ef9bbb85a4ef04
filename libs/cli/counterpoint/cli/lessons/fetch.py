"""The lessons of a project over HTTP, with the read rights of the caller."""

from typing import TYPE_CHECKING

from counterpoint.cli.lessons.known import KnownLessons, known_lessons
from counterpoint.proto.tasks import ENDED

if TYPE_CHECKING:
    from counterpoint.cli.api import ApiClient

_ALL = 10**9


def fetch_lessons(api: "ApiClient", project: str | None) -> KnownLessons:
    """Return the lessons of a project. Raises `ApiError`."""
    tasks = [
        task for state in sorted(ENDED) for task in api.pages("/v1/tasks", _ALL, state=state, project=project)["items"]
    ]
    return known_lessons(tasks, api.pages("/v1/attempts", _ALL, project=project)["items"])
