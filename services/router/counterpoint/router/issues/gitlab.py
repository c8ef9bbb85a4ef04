"""The dialect of GitLab."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from counterpoint.router.issues.calls import ForgeClient, RateLimit
from counterpoint.router.issues.forge import ForgeComment, ForgeError, ForgeIssue, IssueMoved
from counterpoint.router.issues.rows import gitlab_issue, gitlab_note, stamp, text, whole
from counterpoint.router.issues.trackers import Tracker
from counterpoint.router.webhooks.reports import path

_SIZE = 100


class GitLab:
    """The issues of a project of GitLab."""

    def __init__(self, tracker: Tracker, limit: RateLimit, timeout_s: float) -> None:
        headers = {"PRIVATE-TOKEN": tracker.token.get_secret_value()}
        self._client = ForgeClient(
            tracker.api_url, tracker.repo, _root, headers, limit, private=tracker.private, timeout_s=timeout_s
        )

    async def issue(self, number: int) -> ForgeIssue:
        """Return an issue. Raises `ForgeNotFound`, and `IssueMoved` for one that was closed because it was moved."""
        row = await self._client.get(f"/issues/{number}")
        if path(row, "moved_to_id") is not None:
            raise IssueMoved("it was moved to another project")
        return gitlab_issue(row)

    async def create(self, title: str, body: str, assignees: Sequence[str]) -> ForgeIssue:
        """Open an issue. A login that is no member is left out."""
        ids = [found for login in assignees if (found := await self._user_id(login)) is not None]
        fields = {"title": title, "description": body, **({"assignee_ids": ids} if ids else {})}
        return gitlab_issue(await self._client.send("POST", "/issues", fields))

    async def newest(self) -> AsyncIterator[ForgeIssue]:
        """Yield all issues, the last created first."""
        rows = self._client.pages("/issues", scope="all", order_by="created_at", sort="desc", per_page=_SIZE)
        async for row in rows:
            yield gitlab_issue(row)

    async def changed_since(self, at: datetime) -> AsyncIterator[ForgeIssue]:
        """Yield the issues that were changed at `at` or later."""
        rows = self._client.pages(
            "/issues", scope="all", updated_after=stamp(at), order_by="updated_at", sort="asc", per_page=_SIZE
        )
        async for row in rows:
            yield gitlab_issue(row)

    async def add_labels(self, number: int, labels: Sequence[str]) -> None:
        """Add labels to an issue; GitLab makes those that do not exist."""
        await self._client.send("PUT", f"/issues/{number}", {"add_labels": ",".join(labels)})

    async def remove_label(self, number: int, label: str) -> None:
        """Take a label away from an issue."""
        await self._client.send("PUT", f"/issues/{number}", {"remove_labels": label})

    async def close(self, number: int) -> None:
        """Close an issue."""
        await self._client.send("PUT", f"/issues/{number}", {"state_event": "close"})

    async def comments(self, number: int, since: datetime | None) -> AsyncIterator[ForgeComment]:
        """Yield the comments on an issue that were changed at `since` or later: the newest come first."""
        rows = self._client.pages(f"/issues/{number}/notes", order_by="updated_at", sort="desc", per_page=_SIZE)
        async for row in rows:
            if path(row, "system"):
                continue
            note = gitlab_note(row)
            if since is not None and note.updated_at < since:
                return
            yield note

    async def add_comment(self, number: int, body: str) -> int:
        """Comment on an issue, and return the id of the comment."""
        return whole(await self._client.send("POST", f"/issues/{number}/notes", {"body": body}), "id")

    async def edit_comment(self, number: int, comment_id: int, body: str) -> None:
        """Replace a comment of ours. Raises `ForgeNotFound`."""
        await self._client.send("PUT", f"/issues/{number}/notes/{comment_id}", {"body": body})

    async def closer(self, issue: ForgeIssue) -> str | None:
        """Return the login of who closed an issue."""
        return issue.closed_by

    async def _user_id(self, login: str) -> int | None:
        try:
            found: Any = [row async for row in self._client.pages("/users", search=login, per_page=_SIZE)]
        except ForgeError as error:
            if error.pause_s is not None:
                raise
            return None
        return next((whole(row, "id") for row in found if text(row, "username").lower() == login.lower()), None)


def _root(repo: str) -> str:
    return f"/projects/{quote(repo, safe='')}"
