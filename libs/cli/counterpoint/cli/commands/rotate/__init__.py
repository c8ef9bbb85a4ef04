"""The commands that replace credentials of a stack."""

from counterpoint.cli.command import CommandGroup, Panel

GROUP = CommandGroup("rotate", Panel.OPERATE, "Replace signing keys and logins while the stack runs.")
"""The commands, by what they replace."""
