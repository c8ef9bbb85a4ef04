"""`counterpoint lessons starter accept`: vouch for pages of the starter pack."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.commands.lessons.starter.change import Only, change
from counterpoint.cli.errors import Exit
from counterpoint.cli.session import CommandSession


@command("accept", Panel.WORK, "counterpoint lessons starter accept --only airflow --project orders")
def accept(session: CommandSession, only: Only = None) -> Exit:
    """Vouch for installed runbooks, under your name: from then on they are proposed like those of the project.

    Read them first: `counterpoint lessons starter list` shows their files.
    """
    from counterpoint.cli.lessons.starter import PackState

    kept = {
        PackState.OFF: "is not installed",
        PackState.FOREIGN: "is a document of yours with the same source",
    }
    return change(session, only or (), kept)
