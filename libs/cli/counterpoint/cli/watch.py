"""The live decision stream."""

import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.session import Session

if TYPE_CHECKING:
    from rich.text import Text

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


def show(session: Session, events: "Iterable[Event]", task: str | None) -> None:
    """Print events, one line each."""
    for event in events:
        if event.name == "gap":
            session.note("gap: older events are no longer kept")
        elif task is None or event.data["data"].get("task_id") == task:
            session.line({"id": event.id, "event": event.data}, partial(_line, event))


def _line(event: "Event") -> "Text":
    from rich.text import Text

    decision = event.data["data"]
    confidence = decision.get("confidence")
    line = Text()
    line.append(f"{str(decision.get('made_at', ''))[11:19]} ", style="dim")
    line.append(f"{decision.get('agent', '?'):<10}", style="bold cyan")
    line.append(f"{decision.get('decision_type', '?')}: {' '.join(str(decision.get('decision', '')).split())}")
    if confidence:
        line.append(f"  {confidence['score']:.2f} {confidence['band']}", style=_BANDS.get(confidence["band"], ""))
    line.append(f"  {' '.join(str(decision.get('reasoning', '')).split())}", style="dim")
    line.append(f"  {decision.get('task_id') or ''}", style="dim")
    return line
