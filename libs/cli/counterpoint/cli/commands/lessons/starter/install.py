"""`counterpoint lessons starter install`: ingest the starter pack as untrusted."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.commands.lessons.starter.change import Only, change
from counterpoint.cli.errors import Exit
from counterpoint.cli.session import CommandSession


@command("install", Panel.WORK, "counterpoint lessons starter install --only airflow --project orders")
def install(session: CommandSession, only: Only = None) -> Exit:
    """Ingest runbooks of public knowledge. They are found and cited; nothing is proposed from them until accepted."""
    from counterpoint.cli.lessons.starter import PackState

    kept = {
        PackState.ACCEPTED: "was accepted; remove it first to install it without that",
        PackState.FOREIGN: "is a document of yours with the same source",
    }
    return change(session, only or (), kept, untrusted=True)
