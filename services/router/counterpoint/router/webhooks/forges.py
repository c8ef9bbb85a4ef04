"""Forges: events of GitHub, GitLab and Gitea or Forgejo as reports. Pure.

New issues and failed checks, workflows, pipelines and jobs are failures. Comments on issues and pull requests that
close them are noted, without what they say: anyone may write one. All other events are ignored by name.
"""

import re
from collections.abc import Mapping
from typing import Any

from counterpoint.router.issues.marks import marked_issue
from counterpoint.router.webhooks.reports import Event, IgnoredEvent, IssueNote, Report, issue_key, path, text_of

_FAILED = frozenset({"failure", "timed_out", "startup_failure", "failed"})


_CLOSES = re.compile(
    r"\b(?:clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)|implement(?:s|ed|ing)?):?\s+#([1-9]\d{0,8})\b",
    re.IGNORECASE,
)
_NOTED_ISSUES = 10


def github_event(headers: Mapping[str, str], body: Any) -> Event:
    """Return what an event of GitHub says; Gitea and Forgejo use the same forms."""
    name = next((headers[each] for each in _EVENT_HEADERS if each in headers), "")
    action, repo = path(body, "action"), path(body, "repository", "html_url")
    if name == "issues" and action == "opened":
        return _issue(repo, path(body, "issue"), "html_url", "body")
    for kind in ("check_run", "workflow_run"):
        run = path(body, kind)
        if name == kind and action == "completed" and path(run, "conclusion") in _FAILED:
            # The title of a workflow run is that of its commit, which is no error.
            detail, attempt = text_of(path(run, "output", "summary")), path(run, "run_attempt")
            again = str(attempt) if _is_number(attempt) and attempt > 1 else None
            return _run(repo, path(run, "id"), path(run, "name"), path(run, "html_url"), detail, again)
    if name == "issue_comment" and action == "created" and path(body, "issue", "pull_request") is None:
        comment = path(body, "comment")
        author, number = path(comment, "user", "login"), path(body, "issue", "number")
        return _comment(repo, number, path(comment, "id"), author, path(comment, "html_url"))
    if name == "pull_request" and (what := _github_pull(body)):
        pull = path(body, "pull_request")
        texts = path(pull, "title"), path(pull, "body")
        return _pull_request(repo, path(pull, "number"), texts, path(pull, "html_url"), what)
    if not name:
        return IgnoredEvent("the request names no event; a forge names it in the header X-GitHub-Event")
    return IgnoredEvent(f"the event {text_of(name, 60)} {text_of(action, 60) or ''} is not used".replace("  ", " "))


def gitlab_event(headers: Mapping[str, str], body: Any) -> Event:
    """Return what an event of GitLab says."""
    kind, item = path(body, "object_kind"), path(body, "object_attributes")
    repo = path(body, "project", "web_url") or path(body, "repository", "homepage")
    if kind == "issue" and path(item, "action") == "open":
        return _issue(repo, item, "url", "description")
    if kind == "pipeline" and path(item, "status") in _FAILED:
        name = f"pipeline of {text_of(path(item, 'ref'), 200) or '?'}"
        return _run(repo, path(item, "id"), name, path(item, "url"), None, text_of(path(item, "finished_at"), 100))
    if kind == "build" and path(body, "build_status") in _FAILED and path(body, "build_allow_failure") is not True:
        job, reason = text_of(path(body, "build_name"), 200), text_of(path(body, "build_failure_reason"), 500)
        return _run(repo, path(body, "build_id"), job, repo, f"{job} failed: {reason}" if job and reason else None)
    if kind == "note" and path(item, "noteable_type") == "Issue":
        author, number = path(body, "user", "username"), path(body, "issue", "iid")
        return _comment(repo, number, path(item, "id"), author, path(item, "url"))
    if kind == "merge_request" and (what := _GITLAB_PULLS.get(text_of(path(item, "action"), 20) or "")):
        texts = path(item, "title"), path(item, "description")
        return _pull_request(repo, path(item, "iid"), texts, path(item, "url"), what)
    if (event := text_of(kind, 60)) is None:
        return IgnoredEvent("the body names no event: it has no object_kind")
    return IgnoredEvent(f"the event {event} is not used")


_EVENT_HEADERS = ("x-github-event", "x-forgejo-event", "x-gitea-event")
_GITLAB_PULLS = {"open": "opened", "reopen": "opened", "merge": "merged"}


def _issue(repo: Any, issue: Any, url: str, text: str) -> Report | IgnoredEvent:
    number = path(issue, "number") or path(issue, "iid")
    title, body = text_of(path(issue, "title"), 300), path(issue, text)
    if isinstance(body, str) and marked_issue(body):
        return IgnoredEvent("the issue is one that Counterpoint has opened")
    if not isinstance(number, int) or title is None:
        return IgnoredEvent("the issue has no number or title")
    fields: dict[str, Any] = {
        "kind": "troubleshoot",
        "title": title,
        "description": text_of(body) or title,
        "repo": text_of(repo, 2000),
        "source_ref": text_of(path(issue, url), 2000),
    }
    return Report(issue_key(str(text_of(repo, 2000)), number), fields)


def _github_pull(body: Any) -> str | None:
    """Return what happened to a pull request of GitHub, None for what is of no interest."""
    if path(body, "pull_request", "merged") is True:
        return "merged" if path(body, "action") == "closed" else None
    return "opened" if path(body, "action") in ("opened", "reopened") else None


def _comment(repo: Any, number: Any, comment: Any, author: Any, url: Any) -> IssueNote | IgnoredEvent:
    repository = text_of(repo, 2000)
    if repository is None or not _is_number(number) or not _is_number(comment):
        return IgnoredEvent("the comment has no repository, issue or id")
    text = f"comment on issue {number} by {text_of(author, 100) or 'somebody'}: {text_of(url, 500) or comment}"
    return IssueNote(f"{repository}/comments/{comment}", text, repository, (number,))


def _pull_request(repo: Any, number: Any, texts: tuple[Any, Any], url: Any, what: str) -> IssueNote | IgnoredEvent:
    """Return the note of a pull request; `texts` are its title and description, whose words name what it closes."""
    repository = text_of(repo, 2000)
    if repository is None or not _is_number(number):
        return IgnoredEvent("the pull request has no repository or number")
    found = _CLOSES.findall("\n".join(text_of(each) or "" for each in texts))
    numbers = tuple(dict.fromkeys(map(int, found)))[:_NOTED_ISSUES]
    if not numbers:
        return IgnoredEvent(f"the pull request {number} says of no issue that it closes it")
    text = f"pull request {number} {what}, closes {', '.join(f'#{each}' for each in numbers)}: {text_of(url, 500)}"
    return IssueNote(f"{repository}/pulls/{number}/{what}", text, repository, numbers)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _run(
    repo: Any, run: Any, name: Any, url: Any, detail: str | None, again: str | None = None
) -> Report | IgnoredEvent:
    """Return the failure of a run. One that is run again keeps its id: `again` tells its failures apart."""
    shown = text_of(name, 200)
    if not isinstance(run, int) or shown is None:
        return IgnoredEvent("the run has no id or name")
    title = f"{shown} failed"
    fields: dict[str, Any] = {
        "kind": "troubleshoot",
        "title": title,
        "description": title,
        "error_message": detail or title,
        "repo": text_of(repo, 2000),
        "run_id": str(run),
        "source_ref": text_of(url, 2000),
    }
    return Report(f"{text_of(repo, 2000)}/runs/{run}" + (f"/{again}" if again else ""), fields)
