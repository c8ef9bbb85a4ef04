"""The command in a project."""

import json
from typing import Any

from typer.testing import CliRunner

from counterpoint.cli.main import app
from counterpoint.local.stack import Stack


class Command:
    """The command line on a stack, in one project."""

    def __init__(self, stack: Stack, project: str) -> None:
        self._options = ("--url", stack.endpoints.http, "--token", stack.endpoints.token, "--project", project)

    def __call__(self, *words: str, code: int = 0) -> Any:
        """Run a command in this process; return the JSON that it prints."""
        done = CliRunner().invoke(app, [*words, *self._options, "--json"])
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)
