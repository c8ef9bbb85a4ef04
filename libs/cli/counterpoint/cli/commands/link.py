"""`counterpoint link`: declare incidents to be the same failure."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.session import CommandSession
from counterpoint.cli.task_links import Incidents, Reason, Undo, relate


@command("link", Panel.WORK, 'counterpoint link INCIDENT INCIDENT --reason "same certificate"')
def link(session: CommandSession, incidents: Incidents, reason: Reason = None, undo: Undo = False) -> None:
    """Declare incidents to be the same failure: the fix of one is proposed for the others."""
    relate(session, "same", incidents, reason, undo, "the same failure")
