"""What the demo checks, and what it says while it plays."""

import json
import threading
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from counterpoint.cli.card import WIDTH, card, panel, text
from counterpoint.proto.tasks import Task

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


@dataclass(frozen=True)
class Check:
    """One thing that had to hold: in which part of the story, whether it did, and what was seen."""

    part: str
    name: str
    ok: bool
    seen: Any


@dataclass
class Transcript:
    """The record of a story: printed to `console`, if there is one, and kept for the report. `progress` shows bars.

    `stopped` is set from outside when the story has to end where it is.
    """

    console: "Console | None"
    progress: "Console"
    part: str = ""
    checks: list[Check] = field(default_factory=list)
    cards: dict[str, str] = field(default_factory=dict)
    waiting_for: str | None = None
    waiting_since: float = 0.0
    stopped: threading.Event = field(default_factory=threading.Event)

    def begin(self, part: str) -> None:
        """A part of the story begins."""
        self.part = part
        if self.console:
            self.console.print()
            self.console.print(f"── {part} ".ljust(WIDTH, "─"), style="bold", markup=False)

    def say(self, what: str) -> None:
        """Something is done."""
        self.show(f"▸ {what}")

    def show(self, what: "RenderableType") -> None:
        """Something came back."""
        if self.console:
            self.console.print(what, markup=False, soft_wrap=not self.console.is_terminal)

    def card(self, name: str, task: Task) -> None:
        """A card came back; the report keeps it under `name`."""
        shown = card(task)
        self.cards[name] = text(shown)
        if self.console:
            self.show("")
            self.show(panel(shown) if self.console.is_terminal else text(shown))
            self.show("")

    def check(self, name: str, ok: object, seen: Any) -> bool:
        """Something had to hold; returns whether it does. What was seen is printed where it does not."""
        check = Check(self.part, name, bool(ok), seen)
        self.checks.append(check)
        if self.console:
            mark = "[green]✔[/green]" if check.ok else "[bold red]✘[/bold red]"
            self.console.print(f"  {mark} ", end="")
            self.console.print(name if check.ok else f"{name}; seen: {_short(seen)}", markup=False, soft_wrap=True)
        return check.ok

    def wait(self, what: str | None) -> None:
        """The story waits for something, or with None no longer does."""
        self.waiting_for, self.waiting_since = what, monotonic()

    def waited_s(self) -> float:
        """How long the present wait has taken."""
        return monotonic() - self.waiting_since if self.waiting_for else 0.0

    @property
    def failed(self) -> list[Check]:
        """The checks that did not hold."""
        return [check for check in self.checks if not check.ok]


def _short(seen: Any) -> str:
    shown = seen if isinstance(seen, str) else json.dumps(seen, ensure_ascii=False, default=str)
    return shown if len(shown) <= 2000 else f"{shown[:2000]} …"
