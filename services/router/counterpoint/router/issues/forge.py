"""Forges: the operations that synchronization needs, and the errors of calls. Each dialect is a module."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from counterpoint.router.issues.merge import IssueState


class ForgeError(Exception):
    """A call failed. The text names neither an address nor anything that a person wrote.

    With `pause_s` the forge has asked for a pause, and the call is no attempt. A `final` error is not retried.
    `refused`: the forge takes the call for invalid, or the token has not the right.
    """

    def __init__(
        self, problem: str, *, pause_s: float | None = None, final: bool = False, refused: bool = False
    ) -> None:
        super().__init__(problem)
        self.pause_s = pause_s
        self.final = final
        self.refused = refused


class ForgeNotFound(ForgeError):
    """The forge has no such thing, or does not show it. `gone`: it says that it was deleted."""

    def __init__(self, problem: str, *, gone: bool = False) -> None:
        super().__init__(problem)
        self.gone = gone


class IssueMoved(ForgeError):
    """The issue is in another repository."""


@dataclass(frozen=True)
class ForgeIssue:
    """An issue at a forge. `planned_off`: it was closed as not to be done. `closed_by` is a login, where it is told."""

    number: int
    url: str
    body: str
    state: IssueState
    labels: tuple[str, ...]
    created_at: datetime
    updated_at: datetime
    closed_by: str | None = None
    planned_off: bool = False


@dataclass(frozen=True)
class ForgeComment:
    """A comment of a person or of us; `author` is a login."""

    id: int
    body: str
    author: str | None
    updated_at: datetime


class Forge(Protocol):
    """One repository of a forge. Every operation raises `ForgeError`."""

    async def issue(self, number: int) -> ForgeIssue:
        """Return an issue. Raises `ForgeNotFound` and `IssueMoved`."""

    async def create(self, title: str, body: str, assignees: Sequence[str]) -> ForgeIssue:
        """Open an issue."""

    def newest(self) -> AsyncIterator[ForgeIssue]:
        """Yield all issues, the last created first."""

    def changed_since(self, at: datetime) -> AsyncIterator[ForgeIssue]:
        """Yield the issues that were changed at `at` or later."""

    async def add_labels(self, number: int, labels: Sequence[str]) -> None:
        """Add labels to an issue; those that do not exist are made."""

    async def remove_label(self, number: int, label: str) -> None:
        """Take a label away from an issue; it is no error if it is gone."""

    async def close(self, number: int) -> None:
        """Close an issue."""

    def comments(self, number: int, since: datetime | None) -> AsyncIterator[ForgeComment]:
        """Yield the comments on an issue that were changed at `since` or later."""

    async def add_comment(self, number: int, body: str) -> int:
        """Comment on an issue, and return the id of the comment."""

    async def edit_comment(self, number: int, comment_id: int, body: str) -> None:
        """Replace a comment of ours. Raises `ForgeNotFound`."""

    async def closer(self, issue: ForgeIssue) -> str | None:
        """Return the login of who closed an issue, None if the forge does not tell."""
