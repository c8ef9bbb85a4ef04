"""The commands on lessons as pages."""

from counterpoint.cli.command import CommandGroup, Panel

GROUP = CommandGroup("lessons", Panel.WORK, "What was learned, as pages: export, import, draft, starter pack.")
