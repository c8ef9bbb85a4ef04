"""The commands on what other systems push."""

from counterpoint.cli.command import CommandGroup, Panel

GROUP = CommandGroup("intake", Panel.OPERATE, "What other systems push: try, kubernetes.")
