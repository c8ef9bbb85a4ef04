"""The commands on persons who decide approvals in the place of another."""

from counterpoint.cli.command import CommandGroup, Panel

GROUP = CommandGroup("delegation", Panel.WORK, "Persons who decide approvals for you for a time: set, list, remove.")
