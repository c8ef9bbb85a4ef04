"""The commands about the configuration of a NATS server."""

from counterpoint.cli.command import CommandGroup, Panel

GROUP = CommandGroup("nats", Panel.OPERATE, "Configuration for the administrator of a NATS server.")
