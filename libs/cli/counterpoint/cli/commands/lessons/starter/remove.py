"""`counterpoint lessons starter remove`: delete the starter pack."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.commands.lessons.starter.change import Only, change
from counterpoint.cli.errors import Exit
from counterpoint.cli.session import CommandSession


@command("remove", Panel.WORK, "counterpoint lessons starter remove --project orders")
def remove(session: CommandSession, only: Only = None) -> Exit:
    """Delete the runbooks of the starter pack from the project, accepted or not."""
    from counterpoint.cli.lessons.starter import PackState

    kept = {
        PackState.OFF: "is not installed",
        PackState.FOREIGN: "is a document of yours with the same source",
    }
    return change(session, only or (), kept, gone=True)
