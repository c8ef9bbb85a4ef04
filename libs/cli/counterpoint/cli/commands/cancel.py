"""`counterpoint cancel`: cancel a task."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit
from counterpoint.cli.options import TaskId
from counterpoint.cli.session import CommandSession
from counterpoint.cli.task_requests import show_receipt


@command("cancel", Panel.WORK, 'counterpoint cancel TASK --reason "fixed by hand"')
def cancel(
    session: CommandSession,
    task: TaskId,
    reason: Annotated[str | None, typer.Option("--reason", help="The reason.")] = None,
) -> Exit:
    """Cancel a task."""
    with session.connect() as api:
        reply = api.post(f"/v1/tasks/{task}/cancel", {"reason": reason}, project=session.project)
    return show_receipt(session, reply, f"{task}: cancellation requested")
