"""A forge for tests: a real HTTP server that speaks the dialects of GitHub, GitLab, Gitea and Forgejo.

It was written from their published interfaces. Every change ticks its clock, which is not that of the house, by a
second. It serves small pages. People act on it by methods; `before` can fail a call, or let people act before it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PAGE = 3
BOT = "counterpoint-bot"
Answered = tuple[int, Any] | tuple[int, Any, dict[str, str]]


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
class ScriptedForge:
    """A repository and its issues. `renamed` is its new name, `locked` refuses the token."""

    kind: str
    repo: str = "shop/orders"
    token: str = "forge-token-hush"
    url: str = ""
    clock: datetime = datetime(2026, 3, 2, 3, 0, 0, tzinfo=UTC)
    issues: dict[int, Issue] = field(default_factory=dict)
    asked: list[ForgeRequest] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    renamed: str | None = None
    locked: bool = False
    before: Callable[[ForgeRequest], Answered | None] = lambda asked: None
    hang: Callable[[ForgeRequest], bool] = lambda asked: False
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    hangs: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    # people

    def person_opens(self, title: str, body: str = "") -> Issue:
        return self._new(title, body, [], "ann")

    def person_edits(self, number: int, **changes: Any) -> None:
        issue = self.issues[number]
        for name, value in changes.items():
            setattr(issue, name, value)
        self._tick(issue)

    def person_closes(self, number: int, by: str = "ann", reason: str | None = "completed") -> None:
        self._set_state(self.issues[number], "closed", by, reason)

    def person_comments(self, number: int, text: str, by: str = "ann") -> int:
        return self._comment(self.issues[number], text, by)

    def bodies(self, number: int = 1) -> list[str]:
        """The comments on an issue, oldest first."""
        return [comment["body"] for comment in self.issues[number].comments.values()]

    def writes(self) -> list[ForgeRequest]:
        return [asked for asked in self.asked if asked.writes]

    # the state

    def _tick(self, issue: Issue | None = None) -> datetime:
        self.clock += timedelta(seconds=1)
        if issue is not None:
            issue.changed = self.clock
        return self.clock

    def _new(self, title: str, body: str, assignees: list[str], author: str) -> Issue:
        issue = Issue(len(self.issues) + 1, title, body, self._tick(), author, assignees=assignees)
        self.issues[issue.number] = issue
        return issue

    def _comment(self, issue: Issue, body: str, author: str) -> int:
        number = 100 * issue.number + len(issue.comments)
        while number in issue.comments:
            number += 1
        issue.comments[number] = {"body": body, "author": author, "at": self._tick(issue)}
        return number

    def _set_state(self, issue: Issue, state: str, by: str, reason: str | None = None) -> None:
        issue.state, issue.reason, issue.closed_by = state, reason, by if state == "closed" else None
        self._tick(issue)

    # the server

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            pairs = (line.partition(":") for line in head[1:] if line)
            headers = {name.lower(): value.strip() for name, _, value in pairs}
            content = await reader.readexactly(int(headers.get("content-length", 0)))
            method, target = head[0].split()[:2]
            parts = urlsplit(target)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            asked = ForgeRequest(method, parts.path, query, headers, json.loads(content) if content else None)
            self.asked.append(asked)
            hangs = self.hang(asked)
            status, body, *more = (0, None) if hangs else self.before(asked) or self.answer(asked)
            async with self.changed:
                self.changed.notify_all()
            if hangs:
                self.hangs.set()
                await self.released.wait()
                return
            sent = b"" if body is None else json.dumps(body).encode()
            lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(sent)}", "Connection: close"]
            lines += [f"{name}: {value}" for given in more for name, value in given.items()]
            writer.write("\r\n".join([*lines, "", ""]).encode() + sent)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def answer(self, asked: ForgeRequest) -> Answered:
        """Answer a request by the rules of the dialect."""
        dialect = {"github": _github, "gitea": _gitea, "gitlab": _gitlab}[self.kind]
        given = asked.headers.get("authorization" if self.kind != "gitlab" else "private-token", "")
        expected = {"github": f"Bearer {self.token}", "gitea": f"token {self.token}", "gitlab": self.token}[self.kind]
        if given != expected:
            return 401, {"message": "bad credentials"}
        if self.locked:
            return (404 if self.kind != "gitlab" else 403), {"message": "not found"}
        root = {"github": "/api/v3/repos/", "gitea": "/api/v1/repos/", "gitlab": "/api/v4/projects/"}[self.kind]
        name = self.repo if self.kind != "gitlab" else self.repo.replace("/", "%2F")
        present = (self.renamed or self.repo) if self.kind != "gitlab" else name
        if self.renamed and asked.path.startswith(root + self.repo):
            moved = asked.path.replace(self.repo, self.renamed, 1)
            return (301 if asked.method == "GET" else 307), None, {"Location": self.url + moved}
        if not asked.path.startswith(root + present):
            return 404, {"message": "no such repository"}
        rest = asked.path.removeprefix(root + present)
        if not rest:
            return 200, {"full_name": self.renamed or self.repo, "path_with_namespace": self.repo}
        return dialect(self, asked, rest.strip("/").split("/"))

    def find(self, number: str) -> Issue | Answered:
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

    def page(self, asked: ForgeRequest, rows: list[Any]) -> Answered:
        number = int(asked.query.get("page", 1))
        shown, more = rows[(number - 1) * PAGE : number * PAGE], len(rows) > number * PAGE
        headers = {"Link": f'<http://elsewhere.example.com/?page={number + 1}>; rel="next"'} if more else {}
        return 200, shown, headers


def _moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _github_issue(forge: ScriptedForge, issue: Issue) -> dict[str, Any]:
    row = {
        "number": issue.number,
        "title": issue.title,
        "body": issue.body,
        "html_url": f"{forge.url}/{forge.renamed or forge.repo}/issues/{issue.number}",
        "state": issue.state,
        "labels": [{"id": forge.labels.get(name, 0), "name": name} for name in issue.labels],
        "assignees": [{"login": login} for login in issue.assignees],
        "user": {"login": issue.author},
        "created_at": _moment(issue.at),
        "updated_at": _moment(issue.changed),
    }
    if forge.kind == "github":
        row |= {"closed_by": issue.closed_by and {"login": issue.closed_by}, "state_reason": issue.reason}
    return row


def _github_comment(number: int, comment: dict[str, Any]) -> dict[str, Any]:
    user = {"login": comment["author"]}
    return {"id": number, "body": comment["body"], "user": user, "updated_at": _moment(comment["at"])}


def _github(forge: ScriptedForge, asked: ForgeRequest, parts: list[str]) -> Answered:
    match asked.method, parts:
        case "GET", ["issues"]:
            pulls = [{"number": 9000, "pull_request": {}}] if asked.query.get("type") != "issues" else []
            return forge.page(asked, [*pulls, *(_github_issue(forge, issue) for issue in forge.listed(asked))])
        case "POST", ["issues"]:
            body = asked.body
            return 201, _github_issue(forge, forge._new(body["title"], body["body"], body["assignees"], BOT))
        case method, ["issues", "comments", number]:
            return _edit_comment(forge, method, int(number), asked.body, _github_comment)
        case method, ["issues", number, *rest]:
            issue = forge.find(number)
            if not isinstance(issue, Issue):
                return issue
            return _github_on(forge, asked, method, issue, rest)
    return 404, {"message": "no such path"}


def _github_on(forge: ScriptedForge, asked: ForgeRequest, method: str, issue: Issue, rest: list[str]) -> Answered:
    match method, rest:
        case "GET", []:
            return 200, _github_issue(forge, issue)
        case "PATCH", []:
            assert set(asked.body) <= {"state", "state_reason"}, "only the state is ever written"
            forge._set_state(issue, asked.body["state"], BOT, asked.body.get("state_reason"))
            return 200, _github_issue(forge, issue)
        case "GET", ["comments"]:
            return forge.page(asked, _comments_since(asked, issue))
        case "POST", ["comments"]:
            number = forge._comment(issue, asked.body["body"], BOT)
            return 201, _github_comment(number, issue.comments[number])
        case "POST", ["labels"]:
            return _add_labels(forge, issue, asked.body["labels"])
        case "DELETE", ["labels", label]:
            if unquote(label) not in issue.labels:
                return 404, {"message": "Label does not exist"}
            issue.labels.remove(unquote(label))
            forge._tick(issue)
            return 200, []
    return 404, {"message": "no such path"}


def _gitea(forge: ScriptedForge, asked: ForgeRequest, parts: list[str]) -> Answered:
    match asked.method, parts:
        case "GET", ["labels"]:
            return forge.page(asked, [{"id": each, "name": name} for name, each in forge.labels.items()])
        case "POST", ["labels"]:
            forge.labels[asked.body["name"]] = len(forge.labels) + 11
            return 201, {"id": forge.labels[asked.body["name"]], "name": asked.body["name"]}
        case "POST", ["issues", number, "labels"]:
            issue = forge.issues[int(number)]
            names = {each: name for name, each in forge.labels.items()}
            return _add_labels(forge, issue, [names[each] for each in asked.body["labels"]])
        case "GET", ["issues", number, "labels"]:
            issue = forge.issues[int(number)]
            return forge.page(asked, [{"id": forge.labels[name], "name": name} for name in issue.labels])
        case "DELETE", ["issues", number, "labels", label]:
            issue = forge.issues[int(number)]
            issue.labels = [name for name in issue.labels if forge.labels[name] != int(label)]
            forge._tick(issue)
            return 204, None
        case "GET", ["issues", number, "timeline"]:
            issue = forge.issues[int(number)]
            rows = [{"type": "comment", "user": {"login": "someone"}}]
            closing = {"type": "close", "user": {"login": issue.closed_by}}
            return forge.page(asked, [*rows, *([closing] if issue.closed_by else [])])
        case "GET", ["issues", _, "comments"]:
            issue = forge.issues[int(parts[1])]
            return 200, _comments_since(asked, issue)
    return _github(forge, asked, parts)


def _gitlab_issue(forge: ScriptedForge, issue: Issue) -> dict[str, Any]:
    return {
        "iid": issue.number,
        "title": issue.title,
        "description": issue.body,
        "web_url": f"{forge.url}/{forge.repo}/-/issues/{issue.number}",
        "state": "opened" if issue.state == "open" else "closed",
        "labels": issue.labels,
        "closed_by": issue.closed_by and {"username": issue.closed_by},
        "moved_to_id": 77 if issue.gone == "moved" else None,
        "created_at": _moment(issue.at),
        "updated_at": _moment(issue.changed),
    }


def _gitlab_note(number: int, comment: dict[str, Any]) -> dict[str, Any]:
    author, at = {"username": comment["author"]}, _moment(comment["at"])
    return {"id": number, "body": comment["body"], "author": author, "system": False, "updated_at": at}


def _gitlab(forge: ScriptedForge, asked: ForgeRequest, parts: list[str]) -> Answered:
    match asked.method, parts:
        case "GET", ["users"]:
            return 200, [{"id": 5, "username": asked.query["search"]}]
        case "GET", ["issues"]:
            return forge.page(asked, [_gitlab_issue(forge, issue) for issue in forge.listed(asked)])
        case "POST", ["issues"]:
            body = asked.body
            ids = [str(each) for each in body.get("assignee_ids", [])]
            return 201, _gitlab_issue(forge, forge._new(body["title"], body["description"], ids, BOT))
        case method, ["issues", number, *rest]:
            issue = forge.find(number)
            if not isinstance(issue, Issue):
                return issue
            return _gitlab_on(forge, asked, method, issue, rest)
    return 404, {"message": "no such path"}


def _gitlab_on(forge: ScriptedForge, asked: ForgeRequest, method: str, issue: Issue, rest: list[str]) -> Answered:
    match method, rest:
        case "GET", []:
            return 200, _gitlab_issue(forge, issue)
        case "PUT", []:
            assert set(asked.body) <= {"add_labels", "remove_labels", "state_event"}
            if "state_event" in asked.body:
                forge._set_state(issue, "closed" if asked.body["state_event"] == "close" else "open", BOT)
            issue.labels = [name for name in issue.labels if name != asked.body.get("remove_labels")]
            added = [name for name in asked.body.get("add_labels", "").split(",") if name]
            return _add_labels(forge, issue, added)
        case "GET", ["notes"]:
            rows = [_gitlab_note(number, comment) for number, comment in issue.comments.items()]
            noise = {"id": 1, "system": True, "body": "closed", "updated_at": _moment(issue.at)}
            return forge.page(asked, [*sorted(rows, key=lambda row: row["updated_at"], reverse=True), noise])
        case "POST", ["notes"]:
            number = forge._comment(issue, asked.body["body"], BOT)
            return 201, _gitlab_note(number, issue.comments[number])
        case "PUT", ["notes", number]:
            return _edit_comment(forge, "PATCH", int(number), asked.body, _gitlab_note)
    return 404, {"message": "no such path"}


def _comments_since(asked: ForgeRequest, issue: Issue) -> list[dict[str, Any]]:
    since = asked.query.get("since")
    rows = [(number, comment) for number, comment in issue.comments.items()]
    if since:
        rows = [(number, comment) for number, comment in rows if comment["at"] >= datetime.fromisoformat(since)]
    return [_github_comment(number, comment) for number, comment in rows]


def _edit_comment(forge: ScriptedForge, method: str, number: int, body: Any, shape: Any) -> Answered:
    issue = next((issue for issue in forge.issues.values() if number in issue.comments), None)
    if issue is None or method != "PATCH":
        return 404, {"message": "not found"}
    assert issue.comments[number]["author"] == BOT, "a comment of a person is never written"
    issue.comments[number] |= {"body": body["body"], "at": forge._tick(issue)}
    return 200, shape(number, issue.comments[number])


def _add_labels(forge: ScriptedForge, issue: Issue, labels: list[str]) -> Answered:
    for name in labels:
        forge.labels.setdefault(name, len(forge.labels) + 11)
        if name not in issue.labels:
            issue.labels.append(name)
    forge._tick(issue)
    return 200, [{"id": forge.labels[name], "name": name} for name in issue.labels]


@asynccontextmanager
async def scripted_forge(kind: str) -> AsyncIterator[ScriptedForge]:
    """A forge, until the end of the block."""
    forge = ScriptedForge(kind)
    server = await asyncio.start_server(forge.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    forge.url = f"http://{host}:{port}"
    try:
        yield forge
    finally:
        forge.released.set()
        server.close()
