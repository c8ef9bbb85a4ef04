"""`counterpoint rollback`: restore an earlier version of a memory."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit
from counterpoint.cli.session import CommandSession
from counterpoint.cli.take_back import NO_REASON, Item, Reason, take_back


@command("rollback", Panel.OPERATE, "counterpoint rollback runbook.md")
def rollback(session: CommandSession, item: Item, reason: Reason = NO_REASON) -> Exit | None:
    """Restore the previous version of a memory and of all that used it; items without one are taken out.

    Without a version the latest one is rolled back.
    """
    return take_back(session, "rollback", item, reason)
