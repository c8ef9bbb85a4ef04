"""The dialect of Gitea and Forgejo."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from counterpoint.router.issues.forge import ForgeComment, ForgeIssue, ForgeNotFound
from counterpoint.router.issues.github import GitHub
from counterpoint.router.issues.rows import github_comment, github_issue, stamp, text, whole

_SIZE = 50
_COLOUR = "#4a6fa5"


class Gitea(GitHub):
    """The issues of a repository of Gitea or Forgejo: as at GitHub, but for lists, labels and closing. Labels are known
    by ids there."""

    def _headers(self, token: str) -> dict[str, str]:
        return {"Authorization": f"token {token}"}

    async def newest(self) -> AsyncIterator[ForgeIssue]:
        """Yield all issues, the last created first, which is their order."""
        async for row in self._client.pages("/issues", state="all", type="issues", limit=_SIZE):
            yield github_issue(row)

    async def changed_since(self, at: datetime) -> AsyncIterator[ForgeIssue]:
        """Yield the issues that were changed at `at` or later."""
        async for row in self._client.pages("/issues", state="all", type="issues", since=stamp(at), limit=_SIZE):
            yield github_issue(row)

    async def add_labels(self, number: int, labels: Sequence[str]) -> None:
        """Add labels to an issue; those that do not exist are made."""
        known = await self._label_ids()
        ids = list[int]()
        for label in labels:
            if label.lower() not in known:
                made = await self._client.send("POST", "/labels", {"name": label, "color": _COLOUR})
                known[label.lower()] = whole(made, "id")
            ids.append(known[label.lower()])
        await self._client.send("POST", f"/issues/{number}/labels", {"labels": ids})

    async def remove_label(self, number: int, label: str) -> None:
        """Take a label away from an issue; it is no error if it is gone."""
        async for row in self._client.pages(f"/issues/{number}/labels", limit=_SIZE):
            if text(row, "name").lower() == label.lower():
                try:
                    await self._client.send("DELETE", f"/issues/{number}/labels/{whole(row, 'id')}")
                except ForgeNotFound:
                    return

    async def close(self, number: int) -> None:
        """Close an issue."""
        await self._client.send("PATCH", f"/issues/{number}", {"state": "closed"})

    async def comments(self, number: int, since: datetime | None) -> AsyncIterator[ForgeComment]:
        """Yield the comments on an issue that were changed at `since` or later."""
        query = {"since": stamp(since)} if since else {}
        async for row in self._client.pages(f"/issues/{number}/comments", **query):
            yield github_comment(row)

    async def closer(self, issue: ForgeIssue) -> str | None:
        """Return the login of who closed an issue last, from its timeline: the issue itself does not tell."""
        found: str | None = None
        async for row in self._client.pages(f"/issues/{issue.number}/timeline", limit=_SIZE):
            if text(row, "type") == "close":
                found = text(row, "user", "login") or None
        return found

    async def _label_ids(self) -> dict[str, int]:
        rows = self._client.pages("/labels", limit=_SIZE)
        return {text(row, "name").lower(): whole(row, "id") async for row in rows}
