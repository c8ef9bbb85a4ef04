"""Issue events: the issue that a webhook of a forge is about. Pure."""

from dataclasses import dataclass
from typing import Any

from counterpoint.router.issues.marks import marked_issue
from counterpoint.router.webhooks.reports import path, text_of

FORGES = frozenset({"github", "gitlab", "gitea"})
"""Kinds of sources that send events of issues."""


@dataclass(frozen=True)
class IssueEvent:
    """An issue that something happened to. `mark` is the id in the mark of its body, if it has one."""

    repository_url: str
    number: int
    mark: str | None = None


def issue_event(kind: str, body: Any) -> IssueEvent | None:
    """Return the issue that an event of a forge is about, None for any other event."""
    if kind == "gitlab":
        of_note = path(body, "object_kind") == "note"
        issue = path(body, "issue") if of_note else path(body, "object_attributes")
        if not of_note and path(body, "object_kind") not in ("issue", "work_item"):
            return None
        repository, number, text = path(body, "project", "web_url"), path(issue, "iid"), path(issue, "description")
    else:
        issue = path(body, "issue")
        repository, number, text = path(body, "repository", "html_url"), path(issue, "number"), path(issue, "body")
    url = text_of(repository, 2000)
    if url is None or isinstance(number, bool) or not isinstance(number, int) or number < 1:
        return None
    return IssueEvent(url, number, marked_issue(text if isinstance(text, str) else None))
