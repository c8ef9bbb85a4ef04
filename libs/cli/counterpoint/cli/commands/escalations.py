"""`counterpoint escalations`: list the tasks that wait for a person."""

from typing import TYPE_CHECKING

from counterpoint.cli.command import Panel, command
from counterpoint.cli.options import Limit
from counterpoint.cli.projects import note_others
from counterpoint.cli.render.listing import by_urgency, title
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from rich.console import RenderableType

_ESCALATIONS = 200
"""Maximum number of escalations that are ordered by urgency before the first ones are shown."""


@command("escalations", Panel.LOOK, "counterpoint escalations")
def escalations(session: CommandSession, limit: Limit = 50) -> None:
    """List the tasks that wait for input, incidents before questions, with the input needed."""
    with session.connect() as api:
        most = limit if session.json else max(limit, _ESCALATIONS)
        reply = api.pages("/v1/escalations", most, project=session.project)
        note_others(session, api, "escalations")

    def human() -> "RenderableType":
        blocks = []
        for task in by_urgency(reply["items"])[:limit]:
            escalation = task.get("escalation") or {}
            head = f"{task['task_id']}  {title(task)}"
            recipient = f"  {escalation.get('code')}, to {escalation.get('to')}"
            needs = [f"  {need['kind']}: {need['what']}\n    {need['how']}" for need in escalation.get("needs", ())]
            blocks.append("\n".join([head, recipient, *needs]))
        if len(reply["items"]) > limit:
            least = "at least " if reply["next_cursor"] else ""
            blocks.append(f"and {least}{len(reply['items']) - limit} more")
        return "\n\n".join(blocks) or "no escalations"

    session.show(reply, human)
