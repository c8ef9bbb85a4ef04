"""How a command ends other than well. Each has the exit code that it ends with."""

from enum import IntEnum
from typing import Any


class Exit(IntEnum):
    """The exit codes of every command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_REACHABLE = 3
    WAITING = 4


class CommandError(Exception):
    """A command cannot go on."""

    code = Exit.FAILED

    def problem(self) -> dict[str, Any]:
        """The error as an RFC 9457 problem."""
        return {"type": "about:blank", "title": str(self)}


class Misused(CommandError):
    """Options or arguments do not make sense together."""

    code = Exit.USAGE


class NotReachable(CommandError):
    """Nothing answers where Counterpoint should be."""

    code = Exit.NOT_REACHABLE


class Refused(CommandError):
    """The API answered with a problem (RFC 9457)."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status = status
        self.body: dict[str, Any] = {"title": f"HTTP {status}", "status": status} | body
        super().__init__(str(self.body["title"]))

    def problem(self) -> dict[str, Any]:
        """The problem as it was answered."""
        return self.body
