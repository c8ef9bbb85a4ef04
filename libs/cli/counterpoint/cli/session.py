"""The session of a command: access to the API, and output for people or programs."""

import json
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoint.cli.address import AddressSource
from counterpoint.cli.errors import CommandError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from counterpoint.cli.api import ApiClient

UNFOLDED = 500
"""Width of output that is not a terminal, so that rows stay on one line."""


@dataclass(frozen=True)
class CommandSession:
    """One run of a command."""

    url: str | None
    token: str | None
    data_dir: Path | None
    project: str | None
    json: bool

    @property
    def place(self) -> AddressSource:
        """Return the source of the address."""
        return AddressSource(self.url, self.token, self.data_dir, os.environ, Path.cwd())

    def connect(self) -> "ApiClient":
        """Open a connection to the API."""
        from counterpoint.cli.api import ApiClient

        return ApiClient(self.place.address())

    @cached_property
    def out(self) -> "Console":
        """Return the console of standard output."""
        return _console(sys.stdout)

    @cached_property
    def err(self) -> "Console":
        """Return the console of standard error, for notes and progress."""
        return _console(sys.stderr)

    def show(self, value: Any, human: "Callable[[], RenderableType]") -> None:
        """Print `value` as JSON, or the text that `human` returns."""
        if self.json:
            print(json.dumps(value, indent=2, ensure_ascii=False), flush=True)
        else:
            self._print(human())
            if isinstance(value, dict) and value.get("next_cursor"):
                self.note("there are more: raise --limit")

    def line(self, value: Any, human: "Callable[[], RenderableType]") -> None:
        """Print an item of a stream: a line of JSON, or the text that `human` returns."""
        if self.json:
            print(json.dumps(value, ensure_ascii=False), flush=True)
        else:
            self._print(human())

    def _print(self, shown: "RenderableType") -> None:
        """Print text, whose commands keep to one line each, or a table, which takes the width of the terminal."""
        from rich.text import Text

        from counterpoint.card.render import wrapped

        terminal = self.out.is_terminal
        if isinstance(shown, str) and terminal:
            shown = "\n".join(each for line in shown.split("\n") for each in wrapped(line, self.out.width))
        self.out.print(shown, soft_wrap=not terminal or isinstance(shown, str | Text), markup=False)

    def command(self, *words: str, project: str) -> str:
        """Return a follow-up command with the same address. The token is left out."""
        place = {"--project": project, "--url": self.url, "--data-dir": self.data_dir}
        options = [word for option, value in place.items() if value for word in (option, str(value))]
        return shlex.join(["counterpoint", *words, *options])

    def note(self, text: str) -> None:
        """Print a note on standard error."""
        self.err.print(text, markup=False, soft_wrap=True)

    def failed(self, error: CommandError) -> None:
        """Print the error that ends a command."""
        problem = error.problem()
        if self.json:
            print(json.dumps(problem, indent=2, ensure_ascii=False), flush=True)
            return
        code = f" ({problem['code']})" if "code" in problem else ""
        self.note(f"counterpoint: {problem['title']}{code}")
        if detail := problem.get("detail"):
            self.note(f"  {detail}")
        for wrong in problem.get("errors", ()):
            self.note(f"  {wrong.get('field', '?')}: {wrong.get('problem', '')}")
        if refusal := problem.get("refusal"):
            command = self.command("explain", str(refusal), project=self.project or "")
            self.note(f"  `{command}` explains it (needs the role audit)")


def _console(file: Any) -> "Console":
    from counterpoint.cli.render.plain_console import PlainConsole

    return PlainConsole(file=file, highlight=False, width=None if file.isatty() else UNFOLDED)
