"""Webhooks of other systems: signed by their rules or with a token, each event once, and nothing for anyone else."""

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from agents.router_house import PROJECT
from ui.http_front import RunningFront, put_task
from ui.webhook_senders import ALERT, ISSUE, RUN, SECRET, alerts, configured, push, signed_source

from counterpoint.proto.attempts import TaskOutcomeReported
from counterpoint.proto.messages import utc_now
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import TaskRouted


def hexed(content: bytes) -> str:
    return hmac.new(SECRET.encode(), content, hashlib.sha256).hexdigest()


def standard(content: bytes, at: int | None = None) -> dict[str, str]:
    stamp = str(int(utc_now().timestamp()) if at is None else at)
    digest = hmac.digest(SECRET.encode(), f"msg-1.{stamp}.".encode() + content, hashlib.sha256)
    return {
        "webhook-id": "msg-1",
        "webhook-timestamp": stamp,
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
    }


def now_stamp() -> str:
    return str(int(utc_now().timestamp()))


async def test_an_alert_is_a_task_once_and_its_end_a_recovery(front: RunningFront) -> None:
    replies = [(await front.me.post("/hooks/alertmanager", json=alerts(ALERT))).json() for _ in range(2)]
    assert [reply["arrived"][0]["effect"] for reply in replies] == ["submitted", "duplicate"]
    (routed,) = front.house.of_type(TaskRouted)
    task = routed.task
    assert (task.title, task.error_message, task.priority) == (
        "load failed",
        "could not resolve ldap.internal",
        "urgent",
    )
    assert (task.target.job.namespace, task.target.job.name) == ("prod", "load")
    assert routed.submitted_by == "me"
    ended = alerts(ALERT | {"status": "resolved"})
    put_task(
        front, routed.task_id, "input_required", kind="troubleshoot", waiting_for="outcome", attempt=1, proposal="p"
    )
    for effect in ("recovered", "duplicate"):
        assert (await front.me.post("/hooks/alertmanager", json=ended)).json()["arrived"][0]["effect"] == effect
    (outcome,) = front.house.of_type(TaskOutcomeReported)
    assert (outcome.task_id, outcome.evidence, outcome.fixed_by) == (routed.task_id, "observed", "nothing")


async def test_a_report_joins_the_open_task_of_the_same_job_and_error(front: RunningFront) -> None:
    digest = signature(ALERT["annotations"]["description"]).digest  # type: ignore[index]
    job = {"namespace": "prod", "name": "load"}
    for task_id, state, target in (
        ("ended", "completed", {"job": job}),
        ("elsewhere", "working", {"job": {**job, "name": "other"}}),
        ("open", "working", {"job": job}),
    ):
        put_task(front, task_id, state, error_signature=digest, target=target, kind="troubleshoot")
    theirs = front.house.one("tasks", "open").body
    front.house.put("tasks", "theirs", {**theirs, "task_id": "theirs", "project": "billing"}, "billing")
    for effect in ("joined", "duplicate"):
        reply = (await front.me.post("/hooks/alertmanager", json=alerts(ALERT))).json()
        assert (reply["arrived"][0]["task_id"], reply["arrived"][0]["effect"]) == ("open", effect)
    assert front.house.of_type(TaskRouted) == []
    (action,) = front.house.line("open")
    assert "also reported by alertmanager: load failed" in action.reasoning


async def test_a_report_joins_an_open_task_however_many_ended_with_the_same_error(
    front: RunningFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterpoint.router.intake.open_failures._OPEN_TASKS", 1)
    digest = signature(ALERT["annotations"]["description"]).digest  # type: ignore[index]
    fields = {"error_signature": digest, "target": {"job": {"namespace": "prod", "name": "load"}}}
    for task_id, state in (("ended", "completed"), ("open", "input_required")):
        put_task(front, task_id, state, kind="troubleshoot", **fields)
    reply = (await front.me.post("/hooks/alertmanager", json=alerts(ALERT))).json()
    assert (reply["arrived"][0]["task_id"], reply["arrived"][0]["effect"]) == ("open", "joined")


PIPELINE = {"id": 3, "ref": "main", "status": "failed", "finished_at": "2026-03-02 03:00:00 UTC"}
LATER = {**PIPELINE, "finished_at": "2026-03-02 04:00:00 UTC"}


@pytest.mark.parametrize(
    ("kind", "first", "again"),
    [
        ("github", RUN, {**RUN, "workflow_run": {**RUN["workflow_run"], "run_attempt": 2}}),  # type: ignore[dict-item]
        ("gitlab", *({"object_kind": "pipeline", "object_attributes": each} for each in (PIPELINE, LATER))),
    ],
)
async def test_a_run_that_fails_when_it_is_run_again_is_another_failure(
    front: RunningFront, kind: str, first: dict[str, Any], again: dict[str, Any]
) -> None:
    headers = {"x-github-event": "workflow_run"}
    effects = []
    for body in (first, first, again, again):
        reply = await front.me.post(f"/hooks/{kind}", json=body, headers=headers)
        effects.append(reply.json()["arrived"][0]["effect"])
    assert effects == ["submitted", "duplicate", "submitted", "duplicate"]


COMMENT = {
    "action": "created", "issue": ISSUE["issue"], "repository": ISSUE["repository"],
    "comment": {"id": 31, "body": "rm -rf /", "user": {"login": "ann"}, "html_url": "https://git.example.com/c/31"},
}  # fmt: skip
PULL = {
    "action": "closed", "repository": ISSUE["repository"],
    "pull_request": {
        "number": 8, "merged": True, "title": "Wait for the resolver", "body": "Fixes #7, closes: #9",
        "html_url": "https://git.example.com/o/r/pulls/8",
    },
}  # fmt: skip
NOTE = {
    "object_kind": "note", "project": {"web_url": "https://git.example.com/o/r"}, "user": {"username": "ann"},
    "object_attributes": {"id": 31, "noteable_type": "Issue", "url": "https://git.example.com/c/31"},
    "issue": {"iid": 7},
}  # fmt: skip
MERGE = {
    "object_kind": "merge_request", "project": {"web_url": "https://git.example.com/o/r"},
    "object_attributes": {"iid": 8, "action": "merge", "title": "Closing #7", "url": "https://git.example.com/m/8"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "body", "said"),
    [
        ("github", "issue_comment", COMMENT, "comment on issue 7 by ann: https://git.example.com/c/31"),
        ("gitea", "pull_request", PULL, "pull request 8 merged, closes #7, #9: https://git.example.com/o/r/pulls/8"),
        ("gitlab", "", NOTE, "comment on issue 7 by ann: https://git.example.com/c/31"),
        ("gitlab", "", MERGE, "pull request 8 merged, closes #7: https://git.example.com/m/8"),
    ],
)
async def test_a_comment_or_pull_request_is_noted_once_on_the_open_task_of_its_issue(
    front: RunningFront, kind: str, name: str, body: dict[str, Any], said: str
) -> None:
    headers = {f"x-{kind}-event": name}
    early = (await front.me.post(f"/hooks/{kind}", json=body, headers=headers)).json()
    assert (early["arrived"], early["ignored"]) == ([], ["it is about no open task"])
    opened: dict[str, Any] = ISSUE
    if kind == "gitlab":
        opened = {
            "object_kind": "issue", "project": {"web_url": "https://git.example.com/o/r"},
            "object_attributes": {"iid": 7, "title": "t", "description": "d", "action": "open"},
        }  # fmt: skip
    reply = (await front.me.post(f"/hooks/{kind}", json=opened, headers={f"x-{kind}-event": "issues"})).json()
    task_id = reply["arrived"][0]["task_id"]
    put_task(front, task_id, "working", kind="troubleshoot")
    line = len(front.house.line(task_id))
    for effect in ("joined", "duplicate"):
        reply = (await front.me.post(f"/hooks/{kind}", json=body, headers=headers)).json()
        assert reply["arrived"] == [{"task_id": task_id, "effect": effect, "project": PROJECT}]
    (noted,) = front.house.line(task_id)[line:]
    assert (noted.reasoning, noted.result) == (said, "joined")
    put_task(front, task_id, "completed", kind="troubleshoot")
    late = (await front.me.post(f"/hooks/{kind}", json=_again(body), headers=headers)).json()
    assert late["ignored"] == ["it is about no open task"]


def _again(body: dict[str, Any]) -> dict[str, Any]:
    """The event with other ids."""
    return json.loads(json.dumps(body).replace("31", "32").replace("8", "18"))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "change",
    [
        {"action": ["closed"]},
        {"action": "closed", "pull_request": {"number": 8}},
        {"pull_request": {"number": 8, "merged": True, "title": "see #7", "body": "prefix #7; fixes other/repo#7"}},
    ],
)
async def test_a_pull_request_that_closes_no_issue_is_ignored(front: RunningFront, change: dict[str, Any]) -> None:
    headers = {"x-github-event": "pull_request"}
    reply = await front.me.post("/hooks/github", json={**PULL, **change}, headers=headers)
    assert (reply.status_code, reply.json()["arrived"], len(reply.json()["ignored"])) == (202, [], 1)


@pytest.mark.parametrize(
    ("kind", "body", "headers"),
    [
        ("github", ISSUE, lambda c: {"x-hub-signature-256": f"sha256={hexed(c)}", "x-github-event": "issues"}),
        ("github", RUN, lambda c: {"x-hub-signature-256": f"sha256={hexed(c)}", "x-github-event": "workflow_run"}),
        ("gitea", ISSUE, lambda c: {"x-gitea-signature": hexed(c), "x-gitea-event": "issues"}),
        ("gitea", ISSUE, lambda c: {"x-forgejo-signature": hexed(c), "x-forgejo-event": "issues"}),
        (
            "gitlab",
            {"object_kind": "pipeline", "object_attributes": {"id": 3, "ref": "main", "status": "failed"}},
            lambda c: {"x-gitlab-token": SECRET},
        ),
        (
            "gitlab",
            {"object_kind": "issue", "object_attributes": {"iid": 3, "title": "t", "action": "open"}},
            lambda c: standard(c),
        ),
        (
            "pagerduty",
            {"event": {"event_type": "incident.triggered", "data": {"id": "P1", "title": "disk full"}}},
            lambda c: {"x-pagerduty-signature": f"v1=00,v1={hexed(c)}"},
        ),
        (
            "grafana",
            alerts(ALERT),
            lambda c: {
                "x-grafana-alerting-timestamp": (at := now_stamp()),
                "x-grafana-alerting-signature": hexed(at.encode() + b":" + c),
            },
        ),
        (
            "cloudevents",
            {
                "specversion": "1.0", "id": "1", "source": "ci", "type": "counterpoint.task.submit.v1",
                "data": {"kind": "troubleshoot", "description": "d"},
            },
            lambda c: standard(c),
        ),
    ],
)  # fmt: skip
async def test_each_sender_signs_the_raw_body_its_own_way(
    front: RunningFront, tmp_path: Path, kind: str, body: Any, headers: Any
) -> None:
    configured(front, tmp_path, signed_source(kind))
    front.house.token_of("pusher", "submit", "report", kind="system")
    content = json.dumps(body, indent=3).encode()
    signed = headers(content)
    other = json.dumps(body).encode()
    assert (
        await push(front, "ours", other, {**signed, **({"x-gitlab-token": "no"} if kind == "gitlab" else {})})
    ).status_code == 401
    assert (await push(front, "ours", content)).status_code == 401
    reply = await push(front, "ours", content, signed)
    assert (reply.status_code, reply.json()["arrived"][0]["effect"]) == (202, "submitted"), reply.text
    (routed,) = front.house.of_type(TaskRouted)
    assert (routed.submitted_by, routed.submitted_by_kind, routed.project) == ("pusher", "system", PROJECT)
    assert (await push(front, "ours", content, signed)).json()["arrived"][0]["effect"] == "duplicate"


async def test_a_stale_timestamp_and_one_of_the_future_are_refused(front: RunningFront, tmp_path: Path) -> None:
    configured(front, tmp_path, signed_source("cloudevents"))
    front.house.token_of("pusher", "submit", "report", kind="system")
    content = b"{}"
    now = int(utc_now().timestamp())
    for at, status in ((now - 301, 401), (now + 400, 401), (now - 200, 202)):
        assert (await push(front, "ours", content, standard(content, at))).status_code == status


async def test_a_source_acts_with_the_rights_of_its_principal(front: RunningFront, tmp_path: Path) -> None:
    configured(front, tmp_path, signed_source("github"))
    content = json.dumps(ISSUE).encode()
    headers = {"x-hub-signature-256": f"sha256={hexed(content)}", "x-github-event": "issues"}
    assert (await push(front, "ours", content, headers)).json()["code"] == "principal"
    front.house.token_of("pusher", "submit", "report", kind="system", projects=("billing",))
    assert (await push(front, "ours", content, headers)).json()["code"] == "role"
    assert (await push(front, "ours?project=billing", content, headers)).json()["code"] == "invalid"
    assert front.house.of_type(TaskRouted) == []
    async with front.as_principal("reader", "read") as reader:
        assert (await reader.post("/hooks/alertmanager", json=alerts(ALERT))).status_code == 403
    both = alerts(ALERT | {"status": "resolved", "fingerprint": "0"}, ALERT)
    async with front.as_principal("submitter", "submit") as submitter:
        reply = (await submitter.post("/hooks/alertmanager", json=both)).json()
    assert ([each["effect"] for each in reply["arrived"]], len(reply["ignored"])) == (["submitted"], 1)


async def test_bodies_that_are_none_are_refused_by_name(front: RunningFront) -> None:
    for content, status, code in (
        (b"x" * 10_000_000, 413, "too_large"),
        (b"{", 400, "malformed"),
        (b"[" * 100_000, 400, "malformed"),
        (b"\xff\xfe", 400, "malformed"),
    ):
        reply = await front.me.post("/hooks/alertmanager", content=content)
        assert (reply.status_code, reply.json()["code"]) == (status, code)
    assert (await push(front, "alertmanager", alerts(ALERT))).status_code == 401
    assert (await front.me.post("/hooks/unknown", json={})).status_code == 404


@pytest.mark.parametrize("body", [None, 3, [], {}, {"alerts": 1}, {"alerts": [None]}, {"alerts": [{"labels": []}]}])
@pytest.mark.parametrize("source", ["alertmanager", "grafana", "pagerduty", "github", "gitlab", "gitea", "cloudevents"])
async def test_an_event_that_is_not_used_is_ignored_by_name(front: RunningFront, source: str, body: Any) -> None:
    reply = await front.me.post(f"/hooks/{source}", content=json.dumps(body))
    assert reply.status_code == 202
    assert reply.json()["arrived"] == []
    assert all(reply.json()["ignored"])


async def test_a_batch_of_cloud_events_is_each_of_its_events(front: RunningFront) -> None:
    def event(number: int, **fields: Any) -> dict[str, Any]:
        data = {"kind": "troubleshoot", "description": f"load {number} failed"}
        attributes = {"specversion": "1.0", "id": str(number), "source": "//loads.example.com"}
        return {**attributes, "type": "counterpoint.task.submit.v1", "data": data, **fields}

    headers = {"content-type": "application/cloudevents-batch+json; charset=utf-8", "ce-id": "x", "ce-source": "y"}
    batch = [event(1), event(2), event(1), event(3, type="com.example.moved"), {"specversion": "1.0"}, 7]
    reply = await front.me.post("/hooks/cloudevents", content=json.dumps(batch), headers=headers)
    assert [each["effect"] for each in reply.json()["arrived"]] == ["submitted", "submitted", "duplicate"]
    assert reply.json()["ignored"] == [
        "the type com.example.moved has no mapping",
        *["a CloudEvent has no source or id"] * 2,
    ]
    assert [routed.task.description for routed in front.house.of_type(TaskRouted)] == ["load 1 failed", "load 2 failed"]
    assert (await front.me.post("/hooks/cloudevents", content="[]", headers=headers)).json()["arrived"] == []
    alone = await front.me.post("/hooks/cloudevents", content=json.dumps(event(4)), headers=headers)
    assert (alone.status_code, "is not a list" in alone.text) == (422, True)
