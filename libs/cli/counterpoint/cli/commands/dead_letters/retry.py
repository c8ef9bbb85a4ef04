"""`counterpoint dead-letters retry`: retry a dead letter."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.commands.dead_letters import LetterId
from counterpoint.cli.session import CommandSession


@command("retry", Panel.LOOK, "counterpoint dead-letters retry ID")
def retry(session: CommandSession, letter: LetterId) -> None:
    """Process a dead letter again, after the cause was fixed."""
    with session.connect() as api:
        reply = api.post(f"/v1/dead-letters/{letter}/retry", {}, project=session.project)
    session.show(reply, lambda: f"{letter}: sent again")
