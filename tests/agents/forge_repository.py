"""The issues of a simulated forge, as people and its API change them."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

PAGE = 3
BOT = "counterpoint-bot"
ForgeReply = tuple[int, Any] | tuple[int, Any, dict[str, str]]


@dataclass
class ForgeRequest:
    """A request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any

    @property
    def writes(self) -> bool:
        return self.method != "GET"


@dataclass
class Issue:
    number: int
    title: str
    body: str
    at: datetime
    author: str = BOT
    state: str = "open"
    reason: str | None = None
    closed_by: str | None = None
    labels: list[str] = field(default_factory=list)
    assignees: list[str] = field(default_factory=list)
    comments: dict[int, dict[str, Any]] = field(default_factory=dict)
    changed: datetime = field(init=False)
    gone: str | None = None

    def __post_init__(self) -> None:
        self.changed = self.at


@dataclass
class ForgeRepository:
    """A repository and its issues. `renamed` is its new name."""

    kind: str
    repo: str = "shop/orders"
    url: str = ""
    clock: datetime = datetime(2026, 3, 2, 3, 0, 0, tzinfo=UTC)
    issues: dict[int, Issue] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    renamed: str | None = None

    # people

    def person_opens(self, title: str, body: str = "") -> Issue:
        return self.new_issue(title, body, [], "ann")

    def person_edits(self, number: int, **changes: Any) -> None:
        issue = self.issues[number]
        for name, value in changes.items():
            setattr(issue, name, value)
        self.tick(issue)

    def person_closes(self, number: int, by: str = "ann", reason: str | None = "completed") -> None:
        self.set_state(self.issues[number], "closed", by, reason)

    def person_comments(self, number: int, text: str, by: str = "ann") -> int:
        return self.add_comment(self.issues[number], text, by)

    def bodies(self, number: int = 1) -> list[str]:
        """The comments on an issue, oldest first."""
        return [comment["body"] for comment in self.issues[number].comments.values()]

    # the state

    def tick(self, issue: Issue | None = None) -> datetime:
        self.clock += timedelta(seconds=1)
        if issue is not None:
            issue.changed = self.clock
        return self.clock

    def new_issue(self, title: str, body: str, assignees: list[str], author: str) -> Issue:
        issue = Issue(len(self.issues) + 1, title, body, self.tick(), author, assignees=assignees)
        self.issues[issue.number] = issue
        return issue

    def add_comment(self, issue: Issue, body: str, author: str) -> int:
        number = 100 * issue.number + len(issue.comments)
        while number in issue.comments:
            number += 1
        issue.comments[number] = {"body": body, "author": author, "at": self.tick(issue)}
        return number

    def set_state(self, issue: Issue, state: str, by: str, reason: str | None = None) -> None:
        issue.state, issue.reason, issue.closed_by = state, reason, by if state == "closed" else None
        self.tick(issue)

    # answers

    def find(self, number: str) -> Issue | ForgeReply:
        """Return an issue, or the answer for one that is not there."""
        issue = self.issues.get(int(number))
        if issue is None or issue.gone == "hidden":
            return 404, {"message": "not found"}
        if issue.gone == "deleted":
            return (410 if self.kind == "github" else 404), {"message": "gone"}
        if issue.gone == "moved" and self.kind == "github":
            return 301, None, {"Location": f"{self.url}/api/v3/repositories/99/issues/4"}
        return issue

    def listed(self, asked: ForgeRequest) -> list[Issue]:
        """The issues that a list shows, in its order."""
        since = asked.query.get("since") or asked.query.get("updated_after")
        found = [issue for issue in self.issues.values() if issue.gone is None]
        if since:
            return [issue for issue in found if issue.changed >= datetime.fromisoformat(since)]
        return sorted(found, key=lambda issue: -issue.number)

    def page(self, asked: ForgeRequest, rows: list[Any]) -> ForgeReply:
        number = int(asked.query.get("page", 1))
        shown, more = rows[(number - 1) * PAGE : number * PAGE], len(rows) > number * PAGE
        headers = {"Link": f'<http://elsewhere.example.com/?page={number + 1}>; rel="next"'} if more else {}
        return 200, shown, headers
