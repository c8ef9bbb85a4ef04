"""A keeper of lessons."""

import asyncio
import json
from typing import Any

from typer.testing import CliRunner

from counterpoint.cli.main import app
from counterpoint.local.stack import Stack


class Keeper:
    """The command `lessons` as a principal."""

    def __init__(self, stack: Stack, token: str | None = None) -> None:
        url = stack.endpoints.http
        self.where = ["--url", url, "--token", token] if token else ["--data-dir", str(stack.data_dir)]

    async def __call__(self, *words: str, project: str) -> tuple[int, dict[str, Any]]:
        """Exit code and report."""
        line = [*words, *self.where, "--project", project, "--json"]
        done = await asyncio.to_thread(CliRunner().invoke, app, line)
        return done.exit_code, json.loads(done.stdout) if done.stdout else {}
