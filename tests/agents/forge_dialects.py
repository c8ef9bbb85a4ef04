"""The APIs of GitHub, Gitea (and Forgejo) and GitLab, written from their published interfaces."""

from datetime import datetime
from typing import Any
from urllib.parse import unquote

from agents.forge_repository import BOT, ForgeReply, ForgeRepository, ForgeRequest, Issue


def _moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _github_issue(forge: ForgeRepository, issue: Issue) -> dict[str, Any]:
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


def github(forge: ForgeRepository, asked: ForgeRequest, parts: list[str]) -> ForgeReply:
    match asked.method, parts:
        case "GET", ["issues"]:
            pulls = [{"number": 9000, "pull_request": {}}] if asked.query.get("type") != "issues" else []
            return forge.page(asked, [*pulls, *(_github_issue(forge, issue) for issue in forge.listed(asked))])
        case "POST", ["issues"]:
            body = asked.body
            return 201, _github_issue(forge, forge.new_issue(body["title"], body["body"], body["assignees"], BOT))
        case method, ["issues", "comments", number]:
            return _edit_comment(forge, method, int(number), asked.body, _github_comment)
        case method, ["issues", number, *rest]:
            issue = forge.find(number)
            if not isinstance(issue, Issue):
                return issue
            return _github_on(forge, asked, method, issue, rest)
    return 404, {"message": "no such path"}


def _github_on(forge: ForgeRepository, asked: ForgeRequest, method: str, issue: Issue, rest: list[str]) -> ForgeReply:
    match method, rest:
        case "GET", []:
            return 200, _github_issue(forge, issue)
        case "PATCH", []:
            assert set(asked.body) <= {"state", "state_reason"}, "only the state is ever written"
            forge.set_state(issue, asked.body["state"], BOT, asked.body.get("state_reason"))
            return 200, _github_issue(forge, issue)
        case "GET", ["comments"]:
            return forge.page(asked, _comments_since(asked, issue))
        case "POST", ["comments"]:
            number = forge.add_comment(issue, asked.body["body"], BOT)
            return 201, _github_comment(number, issue.comments[number])
        case "POST", ["labels"]:
            return _add_labels(forge, issue, asked.body["labels"])
        case "DELETE", ["labels", label]:
            if unquote(label) not in issue.labels:
                return 404, {"message": "Label does not exist"}
            issue.labels.remove(unquote(label))
            forge.tick(issue)
            return 200, []
    return 404, {"message": "no such path"}


def gitea(forge: ForgeRepository, asked: ForgeRequest, parts: list[str]) -> ForgeReply:
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
            forge.tick(issue)
            return 204, None
        case "GET", ["issues", number, "timeline"]:
            issue = forge.issues[int(number)]
            rows = [{"type": "comment", "user": {"login": "someone"}}]
            closing = {"type": "close", "user": {"login": issue.closed_by}}
            return forge.page(asked, [*rows, *([closing] if issue.closed_by else [])])
        case "GET", ["issues", _, "comments"]:
            issue = forge.issues[int(parts[1])]
            return 200, _comments_since(asked, issue)
    return github(forge, asked, parts)


def _gitlab_issue(forge: ForgeRepository, issue: Issue) -> dict[str, Any]:
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


def gitlab(forge: ForgeRepository, asked: ForgeRequest, parts: list[str]) -> ForgeReply:
    match asked.method, parts:
        case "GET", ["users"]:
            return 200, [{"id": 5, "username": asked.query["search"]}]
        case "GET", ["issues"]:
            return forge.page(asked, [_gitlab_issue(forge, issue) for issue in forge.listed(asked)])
        case "POST", ["issues"]:
            body = asked.body
            ids = [str(each) for each in body.get("assignee_ids", [])]
            return 201, _gitlab_issue(forge, forge.new_issue(body["title"], body["description"], ids, BOT))
        case method, ["issues", number, *rest]:
            issue = forge.find(number)
            if not isinstance(issue, Issue):
                return issue
            return _gitlab_on(forge, asked, method, issue, rest)
    return 404, {"message": "no such path"}


def _gitlab_on(forge: ForgeRepository, asked: ForgeRequest, method: str, issue: Issue, rest: list[str]) -> ForgeReply:
    match method, rest:
        case "GET", []:
            return 200, _gitlab_issue(forge, issue)
        case "PUT", []:
            assert set(asked.body) <= {"add_labels", "remove_labels", "state_event"}
            if "state_event" in asked.body:
                forge.set_state(issue, "closed" if asked.body["state_event"] == "close" else "open", BOT)
            issue.labels = [name for name in issue.labels if name != asked.body.get("remove_labels")]
            added = [name for name in asked.body.get("add_labels", "").split(",") if name]
            return _add_labels(forge, issue, added)
        case "GET", ["notes"]:
            rows = [_gitlab_note(number, comment) for number, comment in issue.comments.items()]
            noise = {"id": 1, "system": True, "body": "closed", "updated_at": _moment(issue.at)}
            return forge.page(asked, [*sorted(rows, key=lambda row: row["updated_at"], reverse=True), noise])
        case "POST", ["notes"]:
            number = forge.add_comment(issue, asked.body["body"], BOT)
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


def _edit_comment(forge: ForgeRepository, method: str, number: int, body: Any, shape: Any) -> ForgeReply:
    issue = next((issue for issue in forge.issues.values() if number in issue.comments), None)
    if issue is None or method != "PATCH":
        return 404, {"message": "not found"}
    assert issue.comments[number]["author"] == BOT, "a comment of a person is never written"
    issue.comments[number] |= {"body": body["body"], "at": forge.tick(issue)}
    return 200, shape(number, issue.comments[number])


def _add_labels(forge: ForgeRepository, issue: Issue, labels: list[str]) -> ForgeReply:
    for name in labels:
        forge.labels.setdefault(name, len(forge.labels) + 11)
        if name not in issue.labels:
            issue.labels.append(name)
    forge.tick(issue)
    return 200, [{"id": forge.labels[name], "name": name} for name in issue.labels]
