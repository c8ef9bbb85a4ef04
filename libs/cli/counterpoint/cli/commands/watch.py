"""`counterpoint watch`: follow decisions."""

from contextlib import suppress
from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.decisions import follow
from counterpoint.cli.session import CommandSession


@command("watch", Panel.LOOK, "counterpoint watch --task TASK")
def watch(
    session: CommandSession,
    task: Annotated[str | None, typer.Option("--task", help="Only the decisions of one task.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="ID", help="Start after this event.")] = None,
) -> None:
    """Follow decisions until Ctrl-C. After a lost connection the missed ones are shown too."""
    with session.connect() as api:
        if task:
            api.get(f"/v1/tasks/{task}", project=session.project)
        with suppress(KeyboardInterrupt):
            follow(session, api, task=task, since=since)
