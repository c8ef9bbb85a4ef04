"""The commands about an installation in Kubernetes."""

from counterpoint.cli.command import CommandGroup, Panel

GROUP = CommandGroup("kubernetes", Panel.OPERATE, "Objects for an installation in Kubernetes.")
