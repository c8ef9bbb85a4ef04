"""What a command is given: the API, and a place to print for people or for programs."""

import json
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoint.cli.address import Place
from counterpoint.cli.errors import CommandError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from counterpoint.cli.api import Api

UNFOLDED = 500
"""Columns of a table where nobody sits at a terminal: its rows stay lines."""


@dataclass(frozen=True)
class Session:
    """One run of one command."""

    url: str | None
    token: str | None
    data_dir: Path | None
    project: str | None
    json: bool

    @property
    def place(self) -> Place:
        """Where options, environment and folder point."""
        return Place(self.url, self.token, self.data_dir, os.environ, Path.cwd())

    def connect(self) -> "Api":
        """The API at that place."""
        from counterpoint.cli.api import Api

        return Api(self.place.address())

    @cached_property
    def out(self) -> "Console":
        """Standard output for people."""
        return _console(sys.stdout)

    @cached_property
    def err(self) -> "Console":
        """Standard error: notes and progress."""
        return _console(sys.stderr)

    def show(self, value: Any, human: "Callable[[], RenderableType]") -> None:
        """Print `value` as JSON, or what `human` makes of it."""
        if self.json:
            print(json.dumps(value, indent=2, ensure_ascii=False), flush=True)
        else:
            self.out.print(human(), soft_wrap=not self.out.is_terminal, markup=False)

    def line(self, value: Any, human: "Callable[[], RenderableType]") -> None:
        """Print one of many: a line of JSON, or what `human` makes of it."""
        if self.json:
            print(json.dumps(value, ensure_ascii=False), flush=True)
        else:
            self.out.print(human(), soft_wrap=not self.out.is_terminal, markup=False)

    def command(self, *words: str, project: str) -> str:
        """A command to run next, in the same place as this one. The token is not repeated."""
        place = {"--project": project, "--url": self.url, "--data-dir": self.data_dir}
        options = [word for option, value in place.items() if value for word in (option, str(value))]
        return shlex.join(["counterpoint", *words, *options])

    def note(self, text: str) -> None:
        """Say something on standard error."""
        self.err.print(text, markup=False, soft_wrap=True)

    def failed(self, error: CommandError) -> None:
        """Print why a command ends."""
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
            self.note(f"  `counterpoint explain {refusal}` says more, to who may audit")


def _console(file: Any) -> "Console":
    from rich.console import Console

    return Console(file=file, highlight=False, width=None if file.isatty() else UNFOLDED)
