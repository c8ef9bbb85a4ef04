"""The commands on dead letters: messages that could not be processed."""

from typing import Annotated

import typer

from counterpoint.cli.command import CommandGroup, Panel
from counterpoint.cli.options import check_id

GROUP = CommandGroup("dead-letters", Panel.LOOK, "Messages that could not be processed: list, show, retry.")

LetterId = Annotated[str, typer.Argument(metavar="ID", help="The dead letter's id.", callback=check_id)]
