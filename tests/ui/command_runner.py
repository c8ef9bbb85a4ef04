"""The command, run in this process."""

from typing import Any

from typer.testing import CliRunner

from counterpoint.cli.main import app


def run(*arguments: str, given: str | None = None) -> Any:
    return CliRunner().invoke(app, list(arguments), input=given)
