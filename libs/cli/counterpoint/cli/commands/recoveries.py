"""`counterpoint recoveries`: list tasks that recovered without an explanation."""

from typing import TYPE_CHECKING

from counterpoint.cli.command import Panel, command
from counterpoint.cli.options import Limit
from counterpoint.cli.projects import note_others
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from rich.console import RenderableType


@command("recoveries", Panel.LOOK, "counterpoint recoveries")
def recoveries(session: CommandSession, limit: Limit = 50) -> None:
    """List the tasks that recovered without a known cause, and the command to report it."""
    with session.connect() as api:
        reply = api.pages("/v1/recoveries", limit, project=session.project)
        if not reply["items"]:
            note_others(session, api, "recoveries")

    def human() -> "RenderableType":
        blocks = []
        for task in reply["items"]:
            needs = [f"  {need['what']}\n    {need['how']}" for need in task.get("needs", ())]
            blocks.append("\n".join([f"{task['task_id']}  {task.get('title') or task['description']}", *needs]))
        return "\n\n".join(blocks) or "no recoveries without a known cause"

    session.show(reply, human)
