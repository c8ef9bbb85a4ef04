"""Projects in use: those of the principals."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from counterpoint.cli.errors import ApiError, NotReachable
from counterpoint.proto.subjects import DEFAULT_PROJECT

if TYPE_CHECKING:
    from counterpoint.cli.api import ApiClient
    from counterpoint.cli.session import CommandSession

POLL_S = 2.0
_PRINCIPALS = 1000
ALL = "*"


def list_projects(api: "ApiClient") -> tuple[str, ...]:
    """List `default` and the projects of principals that are not revoked. Raises ApiError."""
    principals = api.pages("/v1/principals", _PRINCIPALS)["items"]
    projects = {project for one in principals if not one.get("revoked_at") for project in one["projects"]}
    return (DEFAULT_PROJECT, *sorted(projects - {ALL, DEFAULT_PROJECT}))


def watch_projects(api: "ApiClient", begin: Callable[[str], None], stopped: threading.Event) -> None:
    """Call `begin` once for each project, now and as principals are created, until `stopped` is set."""
    started = set[str]()
    while not stopped.is_set():
        try:
            new = [project for project in list_projects(api) if project not in started]
        except (NotReachable, ApiError):
            new = []  # The router may be restarting; poll again.
        for project in new:
            started.add(project)
            begin(project)
        stopped.wait(POLL_S)


def note_others(session: "CommandSession", api: "ApiClient", command: str) -> None:
    """Print the default project and the names of other projects, if no project was given."""
    if session.project or session.json:
        return
    try:
        others = [project for project in list_projects(api) if project != DEFAULT_PROJECT]
    except ApiError:
        others = []
    hint = "select another with --project"
    if others:
        hint = f"other projects: {', '.join(others)}; try `counterpoint {command} --project {others[0]}`"
    session.note(f"project {DEFAULT_PROJECT}; {hint}")
