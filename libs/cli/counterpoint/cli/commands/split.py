"""`counterpoint split`: declare incidents to be different failures."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.session import CommandSession
from counterpoint.cli.task_links import Incidents, Reason, Undo, relate


@command("split", Panel.WORK, 'counterpoint split INCIDENT INCIDENT --reason "another table"')
def split(session: CommandSession, incidents: Incidents, reason: Reason = None, undo: Undo = False) -> None:
    """Declare incidents to be different failures: none is shown for another again."""
    relate(session, "different", incidents, reason, undo, "different failures")
