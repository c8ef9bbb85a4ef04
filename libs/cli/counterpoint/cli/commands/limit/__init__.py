"""The commands on limits of what model calls may cost."""

from counterpoint.cli.command import CommandGroup, Panel

GROUP = CommandGroup("limit", Panel.OPERATE, "Limits of what model calls may cost: set, list, remove.")
