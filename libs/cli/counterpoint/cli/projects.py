"""Projects that somebody may send to: those of the principals, as an administrator sees them."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from counterpoint.cli.errors import NotReachable, Refused
from counterpoint.proto.subjects import DEFAULT_PROJECT

if TYPE_CHECKING:
    from counterpoint.cli.api import Api
    from counterpoint.cli.session import Session

POLL_S = 2.0
_PRINCIPALS = 1000
ALL = "*"


def served(api: "Api") -> tuple[str, ...]:
    """List `default` and the projects of principals that are not revoked. Raises Refused for who may not list them."""
    found = api.pages("/v1/principals", _PRINCIPALS)["items"]
    named = {project for one in found if not one.get("revoked_at") for project in one["projects"]}
    return (DEFAULT_PROJECT, *sorted(named - {ALL, DEFAULT_PROJECT}))


def each_new(api: "Api", known: set[str], begin: Callable[[str], None], stopped: threading.Event) -> None:
    """Call `begin` with each project not in `known`, now and as principals are made, until `stopped` is set."""
    while not stopped.is_set():
        try:
            new = [project for project in served(api) if project not in known]
        except (NotReachable, Refused):
            new = []  # the router restarts; the next poll sees what there is
        for project in new:
            known.add(project)
            begin(project)
        stopped.wait(POLL_S)


def note_others(session: "Session", api: "Api", command: str) -> None:
    """Name the project shown where none was asked for, and the others that there are."""
    if session.project or session.json:
        return
    try:
        others = [project for project in served(api) if project != DEFAULT_PROJECT]
    except Refused:
        others = []
    beside = f"; there is also {', '.join(others)}: `counterpoint {command} --project {others[0]}`" if others else ""
    session.note(f"project {DEFAULT_PROJECT}{beside}")
