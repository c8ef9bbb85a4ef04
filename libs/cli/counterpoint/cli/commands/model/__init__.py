"""The commands on the small language model."""

from counterpoint.cli.command import CommandGroup, Panel

GROUP = CommandGroup(
    "model",
    Panel.OPERATE,
    "A token for tools that call models; a small language model for trials: install, serve, status, remove.",
)
