"""The commands on the starter pack."""

from counterpoint.cli.command import CommandGroup, Panel

GROUP = CommandGroup(
    "starter", Panel.WORK, "Runbooks of public knowledge, off by default: list, install, accept, remove."
)
