"""Checks and output of the demo."""

import json
import threading
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from counterpoint.card.content import card
from counterpoint.card.render import WIDTH, panel, text
from counterpoint.proto.tasks import Task

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


@dataclass(frozen=True)
class DemoCheck:
    """A check: the part of the story, the result, and the observed value."""

    part: str
    name: str
    ok: bool
    observed: Any


@dataclass
class DemoTranscript:
    """The record of a story: printed to `console`, if there is one, and kept for the report. `progress` shows bars.

    `stopped` is set while no stack runs; a story then ends where it is.
    """

    console: "Console | None"
    progress: "Console"
    part: str = ""
    checks: list[DemoCheck] = field(default_factory=list)
    cards: dict[str, str] = field(default_factory=dict)
    waiting_for: str | None = None
    waiting_since: float = 0.0
    stopped: threading.Event = field(default_factory=threading.Event)

    def begin(self, part: str) -> None:
        """Begin a part of the story."""
        self.part = part
        if self.console:
            self.console.print()
            self.console.print(f"── {part} ".ljust(min(WIDTH, self.console.width), "─"), style="bold", markup=False)

    def say(self, text: str) -> None:
        """Print a step."""
        self.show(f"▸ {text}")

    def show(self, text: "RenderableType") -> None:
        """Print a result."""
        if self.console:
            self.console.print(text, markup=False, soft_wrap=not self.console.is_terminal)

    def card(self, name: str, task: Task) -> None:
        """Print a card, and keep it in the report under `name`."""
        shown = card(task)
        self.cards[name] = text(shown)
        if self.console:
            self.show("")
            form = panel(shown, self.console.width) if self.console.is_terminal else text(shown)
            self.console.print(form, markup=False, soft_wrap=True)
            self.show("")

    def check(self, name: str, ok: object, observed: Any) -> bool:
        """Record a check and return its result. A failed check prints `seen`."""
        check = DemoCheck(self.part, name, bool(ok), observed)
        self.checks.append(check)
        if self.console:
            mark = "[green]✔[/green]" if check.ok else "[bold red]✘[/bold red]"
            self.console.print(f"  {mark} ", end="")
            self.console.print(name if check.ok else f"{name}; seen: {_short(observed)}", markup=False, soft_wrap=True)
        return check.ok

    def wait(self, text: str | None) -> None:
        """Set or clear the condition that the story waits for."""
        self.waiting_for, self.waiting_since = text, monotonic()

    def waited_s(self) -> float:
        """Return the duration of the present wait, in seconds."""
        return monotonic() - self.waiting_since if self.waiting_for else 0.0

    @property
    def failed(self) -> list[DemoCheck]:
        """Return the failed checks."""
        return [check for check in self.checks if not check.ok]


def _short(observed: Any) -> str:
    shown = observed if isinstance(observed, str) else json.dumps(observed, ensure_ascii=False, default=str)
    return shown if len(shown) <= 2000 else f"{shown[:2000]} …"
