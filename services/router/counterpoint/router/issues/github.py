"""The dialect of GitHub."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from urllib.parse import quote

from counterpoint.router.issues.calls import ForgeClient, RateLimit
from counterpoint.router.issues.forge import ForgeComment, ForgeIssue, ForgeNotFound
from counterpoint.router.issues.rows import github_comment, github_issue, stamp, whole
from counterpoint.router.issues.trackers import Tracker

_SIZE = 100


class GitHub:
    """The issues of a repository of GitHub."""

    def __init__(self, tracker: Tracker, limit: RateLimit, timeout_s: float) -> None:
        headers = self._headers(tracker.token.get_secret_value())
        self._client = ForgeClient(
            tracker.api_url, tracker.repo, _root, headers, limit, private=tracker.private, timeout_s=timeout_s
        )

    def _headers(self, token: str) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }

    async def issue(self, number: int) -> ForgeIssue:
        """Return an issue. Raises `ForgeNotFound` and `IssueMoved`."""
        return github_issue(await self._client.get(f"/issues/{number}"))

    async def create(self, title: str, body: str, assignees: Sequence[str]) -> ForgeIssue:
        """Open an issue."""
        fields = {"title": title, "body": body, "assignees": list(assignees)}
        return github_issue(await self._client.send("POST", "/issues", fields))

    async def newest(self) -> AsyncIterator[ForgeIssue]:
        """Yield all issues, the last created first."""
        rows = self._client.pages("/issues", state="all", sort="created", direction="desc", per_page=_SIZE)
        async for row in rows:
            if "pull_request" not in row:
                yield github_issue(row)

    async def changed_since(self, at: datetime) -> AsyncIterator[ForgeIssue]:
        """Yield the issues that were changed at `at` or later."""
        rows = self._client.pages(
            "/issues", state="all", since=stamp(at), sort="updated", direction="asc", per_page=_SIZE
        )
        async for row in rows:
            if "pull_request" not in row:
                yield github_issue(row)

    async def add_labels(self, number: int, labels: Sequence[str]) -> None:
        """Add labels to an issue; GitHub makes those that do not exist."""
        await self._client.send("POST", f"/issues/{number}/labels", {"labels": list(labels)})

    async def remove_label(self, number: int, label: str) -> None:
        """Take a label away from an issue; it is no error if it is gone."""
        try:
            await self._client.send("DELETE", f"/issues/{number}/labels/{quote(label, safe='')}")
        except ForgeNotFound:
            return

    async def close(self, number: int) -> None:
        """Close an issue."""
        await self._client.send("PATCH", f"/issues/{number}", {"state": "closed", "state_reason": "completed"})

    async def comments(self, number: int, since: datetime | None) -> AsyncIterator[ForgeComment]:
        """Yield the comments on an issue that were changed at `since` or later."""
        query = {"since": stamp(since)} if since else {}
        async for row in self._client.pages(f"/issues/{number}/comments", per_page=_SIZE, **query):
            yield github_comment(row)

    async def add_comment(self, number: int, body: str) -> int:
        """Comment on an issue, and return the id of the comment."""
        return whole(await self._client.send("POST", f"/issues/{number}/comments", {"body": body}), "id")

    async def edit_comment(self, number: int, comment_id: int, body: str) -> None:
        """Replace a comment of ours. Raises `ForgeNotFound`."""
        await self._client.send("PATCH", f"/issues/comments/{comment_id}", {"body": body})

    async def closer(self, issue: ForgeIssue) -> str | None:
        """Return the login of who closed an issue."""
        return issue.closed_by


def _root(repo: str) -> str:
    return f"/repos/{repo}"
