"""The live decision stream."""

import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import NotReachable, Refused
from counterpoint.cli.session import Session

if TYPE_CHECKING:
    from rich.text import Text

    from counterpoint.cli.address import Address
    from counterpoint.cli.api import Api, Event

app = typer.Typer()

STREAM = "/v1/decisions/stream"
_BANDS = {"high": "green", "medium": "yellow", "low": "red"}


@command(app, "watch", Panel.LOOK, "counterpoint watch --task TASK")
def watch(
    session: Session,
    task: Annotated[str | None, typer.Option("--task", help="Only the decisions of one task.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="ID", help="Begin after this event.")] = None,
) -> None:
    """Show decisions as they are made, until Ctrl-C; what was missed while the connection was away comes too."""
    with session.connect() as api:
        if task:
            api.get(f"/v1/tasks/{task}", project=session.project)
        with suppress(KeyboardInterrupt):
            follow(session, api, task=task, since=since)


def follow(
    session: Session,
    api: "Api",
    *,
    task: str | None = None,
    since: str | None = None,
    stopped: threading.Event | None = None,
) -> None:
    """Print the decisions of a project until `stopped` is set and the stream breaks, or for ever."""
    show(session, api.stream(STREAM, last_id=since, stopped=stopped, project=session.project), task)


def follow_all(session: Session, address: "Address", stopped: threading.Event) -> None:
    """Print the decisions of all projects that principals are for, each line with its project, until `stopped` is set.

    Only those of the session's project where it names one. Raises what opening that stream raises.
    """
    from counterpoint.cli.api import Api
    from counterpoint.cli.projects import each_new

    if session.project:
        with Api(address) as api:
            follow(session, api, stopped=stopped)
        return

    def follow_one(project: str) -> None:
        with Api(address) as api, suppress(NotReachable, Refused):
            show(session, api.stream(STREAM, stopped=stopped, project=project), None, project)

    def begin(project: str) -> None:
        session.note(f"decisions in project {project}")
        threading.Thread(target=follow_one, args=(project,), daemon=True).start()

    with Api(address) as api:
        each_new(api, set(), begin, stopped)


def show(session: Session, events: "Iterable[Event]", task: str | None, project: str | None = None) -> None:
    """Print events, one line each; with `project` it stands in the line."""
    for event in events:
        if event.name == "gap":
            session.note("gap: older events are no longer kept")
        elif task is None or event.data["data"].get("task_id") == task:
            named = {"project": project} if project else {}
            session.line({"id": event.id, **named, "event": event.data}, partial(_line, event, project))


def _line(event: "Event", project: str | None = None) -> "Text":
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
