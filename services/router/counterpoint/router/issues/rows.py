"""Rows of the forges' JSON, read without trust: a row of another form is an error that names the field. Pure."""

from datetime import UTC, datetime
from typing import Any

from counterpoint.router.issues.forge import ForgeComment, ForgeError, ForgeIssue
from counterpoint.router.issues.merge import IssueState
from counterpoint.router.webhooks.reports import path


def github_issue(row: Any) -> ForgeIssue:
    """Return an issue of GitHub, Gitea or Forgejo. Raises `ForgeError`."""
    labels = path(row, "labels")
    return ForgeIssue(
        number=whole(row, "number"),
        url=text(row, "html_url"),
        body=text(row, "body"),
        state=_state(path(row, "state")),
        labels=tuple(text(each, "name") for each in labels) if isinstance(labels, list) else (),
        created_at=moment(row, "created_at"),
        updated_at=moment(row, "updated_at"),
        closed_by=text(row, "closed_by", "login") or None,
        planned_off=path(row, "state_reason") in ("not_planned", "duplicate"),
    )


def github_comment(row: Any) -> ForgeComment:
    """Return a comment of GitHub, Gitea or Forgejo. Raises `ForgeError`."""
    return ForgeComment(
        whole(row, "id"), text(row, "body"), text(row, "user", "login") or None, moment(row, "updated_at")
    )


def gitlab_issue(row: Any) -> ForgeIssue:
    """Return an issue of GitLab. Raises `ForgeError`."""
    labels = path(row, "labels")
    return ForgeIssue(
        number=whole(row, "iid"),
        url=text(row, "web_url"),
        body=text(row, "description"),
        state=_state(path(row, "state")),
        labels=tuple(each for each in labels if isinstance(each, str)) if isinstance(labels, list) else (),
        created_at=moment(row, "created_at"),
        updated_at=moment(row, "updated_at"),
        closed_by=text(row, "closed_by", "username") or None,
    )


def gitlab_note(row: Any) -> ForgeComment:
    """Return a comment of GitLab. Raises `ForgeError`."""
    return ForgeComment(
        whole(row, "id"), text(row, "body"), text(row, "author", "username") or None, moment(row, "updated_at")
    )


def whole(row: Any, name: str) -> int:
    """Return a number of a row. Raises `ForgeError`."""
    value = path(row, name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ForgeError(f"the answer has no number {name}")
    return value


def text(row: Any, *names: str) -> str:
    """Return a text of a row, empty without one."""
    value = path(row, *names)
    return value if isinstance(value, str) else ""


def moment(row: Any, name: str) -> datetime:
    """Return a time of a row. Raises `ForgeError`."""
    try:
        at = datetime.fromisoformat(text(row, name))
    except ValueError:
        raise ForgeError(f"the answer has no time {name}") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def stamp(at: datetime) -> str:
    """Return a time as the forges take it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _state(value: Any) -> IssueState:
    return "closed" if value == "closed" else "open"
