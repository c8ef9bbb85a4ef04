"""The live stream of decisions."""

import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from counterpoint.cli.errors import ApiError, NotReachable
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from rich.text import Text

    from counterpoint.cli.address import Address
    from counterpoint.cli.api import ApiClient, ServerEvent


STREAM = "/v1/decisions/stream"
_BANDS = {"high": "green", "medium": "yellow", "low": "red"}


def follow(
    session: CommandSession,
    api: "ApiClient",
    *,
    task: str | None = None,
    since: str | None = None,
    stopped: threading.Event | None = None,
) -> None:
    """Print the decisions of a project until `stopped` is set and the stream breaks, or for ever."""
    show(session, api.stream(STREAM, last_id=since, stopped=stopped, project=session.project), task)


def follow_all(session: CommandSession, address: "Address", stopped: threading.Event) -> None:
    """Print the decisions of all projects, each line with its project, until `stopped` is set.

    A session with a project prints only that one. Raises the errors of opening its stream.
    """
    from counterpoint.cli.api import ApiClient
    from counterpoint.cli.projects import watch_projects

    if session.project:
        with ApiClient(address) as api:
            follow(session, api, stopped=stopped)
        return

    def follow_one(project: str) -> None:
        with ApiClient(address) as api, suppress(NotReachable, ApiError):
            show(session, api.stream(STREAM, stopped=stopped, project=project), None, project)

    def begin(project: str) -> None:
        session.note(f"decisions in project {project}")
        threading.Thread(target=follow_one, args=(project,), daemon=True).start()

    with ApiClient(address) as api:
        watch_projects(api, begin, stopped)


def show(
    session: CommandSession, events: "Iterable[ServerEvent]", task: str | None, project: str | None = None
) -> None:
    """Print events, one a line, with the name of the project if it is given."""
    for event in events:
        if event.name == "gap":
            session.note("gap: older events are no longer kept")
        elif task is None or event.data["data"].get("task_id") == task:
            prefix = {"project": project} if project else {}
            session.line({"id": event.id, **prefix, "event": event.data}, partial(_line, event, project))


def _line(event: "ServerEvent", project: str | None = None) -> "Text":
    from rich.text import Text

    decision = event.data["data"]
    confidence = decision.get("confidence")
    line = Text()
    line.append(f"{str(decision.get('made_at', ''))[11:19]} ", style="dim")
    if project:
        line.append(f"{project} ", style="magenta")
    line.append(f"{decision.get('agent', '?'):<10}", style="bold cyan")
    line.append(f"{decision.get('decision_type', '?')}: {' '.join(str(decision.get('decision', '')).split())}")
    if confidence:
        line.append(f"  {confidence['score']:.2f} {confidence['band']}", style=_BANDS.get(confidence["band"], ""))
    line.append(f"  {' '.join(str(decision.get('reasoning', '')).split())}", style="dim")
    line.append(f"  {decision.get('task_id') or ''}", style="dim")
    return line
