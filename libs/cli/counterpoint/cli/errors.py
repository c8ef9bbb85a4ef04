"""Errors of a command, each with its exit code."""

from enum import IntEnum
from typing import Any


class Exit(IntEnum):
    """Exit codes of every command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_REACHABLE = 3
    WAITING = 4


class CommandError(Exception):
    """The command failed."""

    code = Exit.FAILED

    def problem(self) -> dict[str, Any]:
        """Return the error as an RFC 9457 problem."""
        return {"type": "about:blank", "title": str(self)}


class UsageError(CommandError):
    """Options or arguments are invalid, or contradict each other."""

    code = Exit.USAGE


class RuleError(CommandError):
    """A rule forbids the command; `rule` is its stable name."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(text)
        self.rule = rule

    def problem(self) -> dict[str, Any]:
        """Return the error as an RFC 9457 problem with the code of the rule."""
        return super().problem() | {"code": self.rule}


class NotReachable(CommandError):
    """Nothing answers at the address."""

    code = Exit.NOT_REACHABLE


class ApiError(CommandError):
    """The API answered with a problem (RFC 9457)."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status = status
        self.body: dict[str, Any] = {"title": f"HTTP {status}", "status": status} | body
        super().__init__(str(self.body["title"]))

    def problem(self) -> dict[str, Any]:
        """Return the problem as the API sent it."""
        return self.body
