"""`counterpoint merge`: handle incidents as one."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.session import CommandSession
from counterpoint.cli.task_links import Incidents, Reason, Undo, relate


@command("merge", Panel.WORK, "counterpoint merge INCIDENT INCIDENT")
def merge(session: CommandSession, incidents: Incidents, reason: Reason = None, undo: Undo = False) -> None:
    """Handle incidents as parts of the first: they do not escalate, and share its outcome."""
    relate(session, "merged", incidents, reason, undo, "merged into {0}")
