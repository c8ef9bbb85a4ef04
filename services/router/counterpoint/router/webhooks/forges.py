"""Forges: events of GitHub, GitLab and Gitea or Forgejo as reports. Pure.

New issues and failed checks, workflows, pipelines and jobs are failures; all other events are ignored by name.
"""

from collections.abc import Mapping
from typing import Any

from counterpoint.router.issues.marks import marked_issue
from counterpoint.router.webhooks.reports import Ignored, Report, path, text_of

_FAILED = frozenset({"failure", "timed_out", "startup_failure", "failed"})


def github_event(headers: Mapping[str, str], body: Any) -> Report | Ignored:
    """Return what an event of GitHub says; Gitea and Forgejo use the same forms."""
    name = next((headers[each] for each in _EVENT_HEADERS if each in headers), "")
    action, repo = path(body, "action"), path(body, "repository", "html_url")
    if name == "issues" and action == "opened":
        return _issue(repo, path(body, "issue"), "html_url", "body")
    for kind in ("check_run", "workflow_run"):
        run = path(body, kind)
        if name == kind and action == "completed" and path(run, "conclusion") in _FAILED:
            # The title of a workflow run is that of its commit, which is no error.
            detail = text_of(path(run, "output", "summary"))
            return _run(repo, path(run, "id"), path(run, "name"), path(run, "html_url"), detail)
    return Ignored(f"the event {text_of(name, 60) or '?'} {text_of(action, 60) or ''} is not used".replace("  ", " "))


def gitlab_event(headers: Mapping[str, str], body: Any) -> Report | Ignored:
    """Return what an event of GitLab says."""
    kind, item = path(body, "object_kind"), path(body, "object_attributes")
    repo = path(body, "project", "web_url") or path(body, "repository", "homepage")
    if kind == "issue" and path(item, "action") == "open":
        return _issue(repo, item, "url", "description")
    if kind == "pipeline" and path(item, "status") in _FAILED:
        name = f"pipeline of {text_of(path(item, 'ref'), 200) or '?'}"
        return _run(repo, path(item, "id"), name, path(item, "url"), None)
    if kind == "build" and path(body, "build_status") in _FAILED and path(body, "build_allow_failure") is not True:
        job, reason = text_of(path(body, "build_name"), 200), text_of(path(body, "build_failure_reason"), 500)
        return _run(repo, path(body, "build_id"), job, repo, f"{job} failed: {reason}" if reason else None)
    return Ignored(f"the event {text_of(kind, 60) or '?'} is not used")


_EVENT_HEADERS = ("x-github-event", "x-forgejo-event", "x-gitea-event")


def _issue(repo: Any, issue: Any, url: str, text: str) -> Report | Ignored:
    number = path(issue, "number") or path(issue, "iid")
    title, said = text_of(path(issue, "title"), 300), path(issue, text)
    if isinstance(said, str) and marked_issue(said):
        return Ignored("the issue is one that Counterpoint has opened")
    if not isinstance(number, int) or title is None:
        return Ignored("the issue has no number or title")
    fields: dict[str, Any] = {
        "kind": "troubleshoot",
        "title": title,
        "description": text_of(said) or title,
        "repo": text_of(repo, 2000),
        "source_ref": text_of(path(issue, url), 2000),
    }
    return Report(f"{text_of(repo, 2000)}/issues/{number}", fields)


def _run(repo: Any, run: Any, name: Any, url: Any, detail: str | None) -> Report | Ignored:
    shown = text_of(name, 200)
    if not isinstance(run, int) or shown is None:
        return Ignored("the run has no id or name")
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
    return Report(f"{text_of(repo, 2000)}/runs/{run}", fields)
