"""The commands about SQL for administrators."""

from counterpoint.cli.command import CommandGroup, Panel

GROUP = CommandGroup("sql", Panel.OPERATE, "SQL for the administrator of a PostgreSQL server.")
