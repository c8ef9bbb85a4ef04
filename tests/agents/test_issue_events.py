"""Events of issues by webhook: each dialect names its issue, and what cannot be read is no event."""

from typing import Any

import pytest
from agents.issue_house import PROJECT
from agents.router_house import House
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.proto.errors import Permanent
from counterpoint.proto.issues import IssueDue, TrackerDue
from counterpoint.router.issues.marks import mark_of_issue
from counterpoint.router.issues.synced_issue import poll_id
from counterpoint.router.webhooks.forges import github_event, gitlab_event
from counterpoint.router.webhooks.issue_events import IssueEvent, issue_event
from counterpoint.router.webhooks.reports import IgnoredEvent, Report

URL = "https://git.example.com/shop/orders"
OURS = f"{mark_of_issue('the-id')}\nwords"
ISSUE: dict[str, Any] = {"number": 7, "title": "t", "body": OURS, "html_url": f"{URL}/issues/7"}
GITHUB: dict[str, Any] = {"action": "opened", "issue": ISSUE, "repository": {"html_url": URL}}
GITLAB: dict[str, Any] = {
    "object_kind": "issue",
    "object_attributes": {"iid": 7, "title": "t", "description": OURS, "action": "open", "url": f"{URL}/-/issues/7"},
    "project": {"web_url": URL},
}
NOTE: dict[str, Any] = {
    "object_kind": "note",
    "object_attributes": {"note": "fixed by x"},
    "issue": {"iid": 7, "description": OURS},
    "project": {"web_url": URL},
}


@pytest.mark.parametrize(
    ("kind", "body"), [("github", GITHUB), ("gitea", GITHUB), ("gitlab", GITLAB), ("gitlab", NOTE)]
)
def test_an_event_names_its_issue(kind: str, body: dict[str, Any]) -> None:
    assert issue_event(kind, body) == IssueEvent(URL, 7, "the-id")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("github", {"action": "completed", "workflow_run": {"id": 1}, "repository": {"html_url": URL}}),
        ("github", {**GITHUB, "issue": {"number": True}}),
        ("github", {**GITHUB, "issue": {"number": "7"}}),
        ("github", {**GITHUB, "issue": {"number": -7}}),
        ("github", {"issue": ISSUE}),
        ("gitlab", {**NOTE, "issue": None, "merge_request": {"iid": 7}}),
        ("gitlab", {**GITLAB, "object_kind": "pipeline"}),
        ("gitlab", []),
        ("gitea", None),
    ],
)
def test_other_events_are_ignored(kind: str, body: Any) -> None:
    assert issue_event(kind, body) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["issue", "number", "iid", "project", "repository", "html_url", "body", "object_kind"]), inner
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.sampled_from(["github", "gitlab", "gitea"]), JSON)
def test_no_body_is_too_strange(kind: str, body: Any) -> None:
    issue_event(kind, body)


def test_an_issue_with_our_mark_becomes_no_task() -> None:
    headers = {"x-github-event": "issues"}
    assert isinstance(github_event(headers, GITHUB), IgnoredEvent)
    assert isinstance(gitlab_event({}, GITLAB), IgnoredEvent)
    person = {**GITHUB, "issue": {**ISSUE, "body": "It fails"}}
    assert isinstance(github_event(headers, person), Report)


async def test_due_issues_without_a_tracker_are_kept_for_another_configuration() -> None:
    house = House()
    with pytest.raises(Permanent, match="none is configured"):
        await house.handlers[IssueDue.TYPE](IssueDue(issue_id="the-id", turn=1), house.memory())
    due = {"tracker": "shop", "seen_until": house.now, "reconcile_at": house.now, "due_at": house.now}
    body = {name: value if isinstance(value, str) else value.isoformat() for name, value in due.items()}
    house.put("sync_cursors", poll_id("shop"), body)
    client = house.memory(project=PROJECT)
    await client.step(await house.handlers[TrackerDue.TYPE](TrackerDue(tracker="shop", turn=1), client))
    assert not house.items("sync_cursors")
