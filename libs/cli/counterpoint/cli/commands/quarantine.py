"""`counterpoint quarantine`: take a memory out of every read."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit
from counterpoint.cli.session import CommandSession
from counterpoint.cli.take_back import NO_REASON, Item, Reason, take_back


@command("quarantine", Panel.OPERATE, 'counterpoint quarantine runbook.md --reason "it deletes the table"')
def quarantine(
    session: CommandSession,
    item: Item,
    reason: Reason = NO_REASON,
    lift: Annotated[
        bool, typer.Option("--lift", help="Undo a quarantine or a rollback: ITEM is the id that it printed.")
    ] = False,
) -> Exit | None:
    """Take a memory, and all that used it, out of every read.

    Records that read it without citing it stay: `counterpoint blast-radius --memory ITEM --shown` lists them.
    """
    return take_back(session, "lift" if lift else "quarantine", item, reason)
