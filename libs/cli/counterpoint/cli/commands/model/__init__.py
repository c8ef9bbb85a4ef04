"""The commands on the small language model."""

from counterpoint.cli.command import CommandGroup, Panel

GROUP = CommandGroup(
    "model", Panel.OPERATE, "A small language model for trials without a provider: install, serve, status, remove."
)
