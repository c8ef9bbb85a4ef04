"""The commands on principals."""

from counterpoint.cli.command import CommandGroup, Panel

GROUP = CommandGroup("principal", Panel.OPERATE, "Principals and their roles: create, list, revoke.")
