"""Webhooks of other systems: signed by their rules or with a token, each event once, and nothing for anyone else."""

import base64
import hashlib
import hmac
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from agents.router_house import PROJECT
from typer.testing import CliRunner
from ui.cli_server import ScriptedApi
from ui.http_front import RunningFront, put_task

from counterpoint.cli.main import app
from counterpoint.proto.attempts import TaskOutcomeReported
from counterpoint.proto.errors import Permanent
from counterpoint.proto.messages import utc_now
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import TaskRouted
from counterpoint.router.notify.receivers import load_receivers
from counterpoint.router.webhooks.sources import WebhookSources

ROOT = Path(__file__).parents[2]
SECRET = "the-secret-of-a-source"
ALERT = {
    "status": "firing",
    "labels": {"alertname": "LoadFailed", "severity": "critical", "job_namespace": "prod", "job_name": "load"},
    "annotations": {"summary": "load failed", "description": "could not resolve ldap.internal"},
    "startsAt": "2026-03-02T02:59:00Z",
    "fingerprint": "f00d",
    "generatorURL": "https://prometheus.example.com/g",
}
ISSUE = {
    "action": "opened",
    "issue": {"number": 7, "title": "The import fails", "body": "It says timed out", "html_url": "https://git.example.com/o/r/issues/7"},
    "repository": {"html_url": "https://git.example.com/o/r"},
}  # fmt: skip
RUN = {
    "action": "completed",
    "workflow_run": {"id": 9, "name": "tests", "conclusion": "failure", "html_url": "https://git.example.com/o/r/runs/9"},
    "repository": {"html_url": "https://git.example.com/o/r"},
}  # fmt: skip


def alerts(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"version": "4", "alerts": list(rows)}


def configured(front: RunningFront, folder: Path, text: str) -> None:
    """Give the router a file of sources."""
    file = folder / "hooks.toml"
    file.write_text(text)
    file.chmod(0o600)
    resources = front.app.state.resources
    object.__setattr__(resources, "settings", resources.settings.model_copy(update={"hooks_file": file}))
    if hasattr(front.app.state, "webhook_sources"):
        del front.app.state.webhook_sources


def signed_source(kind: str) -> str:
    head = f'[[source]]\nname = "ours"\nkind = "{kind}"\nproject = "{PROJECT}"\n'
    return f'{head}secret = "{SECRET}"\nprincipal = "pusher"\n'


def hexed(content: bytes) -> str:
    return hmac.new(SECRET.encode(), content, hashlib.sha256).hexdigest()


def standard(content: bytes, at: int | None = None, sender_id: str = "msg-1") -> dict[str, str]:
    stamp = str(int(utc_now().timestamp()) if at is None else at)
    digest = hmac.digest(SECRET.encode(), f"{sender_id}.{stamp}.".encode() + content, hashlib.sha256)
    return {
        "webhook-id": sender_id,
        "webhook-timestamp": stamp,
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
    }


def now_stamp() -> str:
    return str(int(utc_now().timestamp()))


async def push(front: RunningFront, source: str, body: Any, headers: dict[str, str] | None = None) -> httpx.Response:
    """A request without a token."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with httpx.AsyncClient(base_url=front.url, trust_env=False) as outside:
        return await outside.post(f"/hooks/{source}", content=content, headers=headers)


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


MAPPED = """[[source]]
name = "ours"
kind = "json"
items = "problems[]"
map.id = "key"
map.description = "join(': ', [host, text])"
map.error_message = "text"
map.title = "host"
map.systems = "tags"
map.ignore = "level == 'info'"
map.resolved = "state == 'ok'"
"""


async def test_the_json_of_an_unknown_sender_is_mapped_and_tried_first(front: RunningFront, tmp_path: Path) -> None:
    configured(front, tmp_path, MAPPED)
    body = {
        "problems": [
            {"key": "k1", "host": "db1", "text": "disk full", "level": "error", "tags": ["db", "disk"]},
            {"key": "k2", "host": "db2", "text": "hello", "level": "info"},
            {"key": "k0", "host": "db3", "text": "disk full", "state": "ok"},
        ]
    }
    trial = (await front.me.post("/hooks/ours", params={"trial": "true"}, json=body)).json()
    assert front.house.commits == []
    (task,) = trial["tasks"]
    assert (task["description"], task["systems"], task["kind"]) == ("db1: disk full", ["db", "disk"], "troubleshoot")
    assert (trial["resolved"], trial["ignored"]) == (["k0"], ["the mapping ignores k2"])
    reply = (await front.me.post("/hooks/ours", json=body)).json()
    assert [each["effect"] for each in reply["arrived"]] == ["submitted", "unknown"]
    (routed,) = front.house.of_type(TaskRouted)
    assert routed.task.description == "db1: disk full"
    wrong = (
        await front.me.post("/hooks/ours", params={"trial": "true"}, json={"problems": [{"host": 3, "text": {}}]})
    ).json()
    assert wrong["code"] == "invalid"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[[source]]\nname = "ours"\nkind = "json"\n', "map.description"),
        ('[[source]]\nname = "ours"\nkind = "json"\nmap.description = "a["\n', "JMESPath"),
        ('[[source]]\nname = "ours"\nkind = "json"\nmap.description = "a"\nmap.colour = "b"\n', "colour"),
        ('[[source]]\nname = "ours"\nkind = "github"\nsecret = "hush"\n', "principal"),
        ('[[source]]\nname = "ours"\nkind = "gitlab"\nsecret = ""\nprincipal = "p"\n', "secret is empty"),
        ('[[source]]\nname = "ours"\nkind = "grafana"\nsecret = "whsec_"\nprincipal = "p"\n', "secret is empty"),
        ("[[source", "cannot be read"),
        ('[[sources]]\nname = "ours"\n', "tables only"),
        ('[[source]]\nname = "ours"\nkind = "github"\n' * 2, "two sources have this name"),
    ],
)
async def test_a_file_of_sources_that_is_wrong_is_refused_by_name(
    front: RunningFront, tmp_path: Path, text: str, named: str
) -> None:
    configured(front, tmp_path, text)
    reply = (await front.me.post("/hooks/ours", json={})).text
    assert named in reply
    with pytest.raises(Permanent, match=re.escape(named)):
        WebhookSources(tmp_path / "hooks.toml").check()
    assert "hush" not in reply
    assert named not in (await push(front, "ours", {})).text


async def test_a_wrong_source_in_a_changed_file_is_refused_alone(front: RunningFront, tmp_path: Path) -> None:
    configured(front, tmp_path, signed_source("github"))
    assert (await push(front, "ours", {})).status_code == 401
    wrong = '[[source]]\nname = "theirs"\nkind = "grafana"\ncolour = "red"\n'
    (tmp_path / "hooks.toml").write_text(signed_source("github") + wrong)
    assert (await push(front, "ours", {})).status_code == 401, "it is served as before"
    reply = await front.me.post("/hooks/theirs", json={})
    assert (reply.status_code, "source theirs: colour" in reply.text) == (422, True)
    with pytest.raises(Permanent, match="source theirs: colour"):
        WebhookSources(tmp_path / "hooks.toml").check()
    (tmp_path / "hooks.toml").write_text(signed_source("github"))
    assert (await front.me.post("/hooks/theirs", json={})).status_code == 404


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


async def test_a_file_of_sources_that_others_may_read_now_is_refused(front: RunningFront, tmp_path: Path) -> None:
    configured(front, tmp_path, signed_source("github"))
    assert (await push(front, "ours", {})).status_code == 401
    (tmp_path / "hooks.toml").chmod(0o644)
    assert "chmod 600" in (await front.me.post("/hooks/ours", json={})).text


def blocks_of(page: str) -> list[str]:
    """The blocks of a page that are files, as they stand there."""
    text = (ROOT / "docs" / page).read_text()
    return [block for block in re.findall(r"```text\n(.*?)```", text, re.DOTALL) if block.startswith("[[")]


async def test_the_files_in_the_docs_are_valid_and_the_example_is_mapped(front: RunningFront, tmp_path: Path) -> None:
    configured(front, tmp_path, "\n".join(blocks_of("webhooks.md")))
    body = (ROOT / "examples" / "webhooks" / "monitoring.json").read_text()
    trial = (await front.me.post("/hooks/monitoring", params={"trial": "true"}, content=body)).json()
    assert [task["description"] for task in trial["tasks"]] == ["db1: disk full: /var/lib/postgresql"]
    assert trial["ignored"] == ["the mapping ignores k-18"]
    file = tmp_path / "receivers.toml"
    file.write_text("\n".join(blocks_of("notify.md")))
    file.chmod(0o600)
    assert [each.kind for each in load_receivers(None, None, False, file)] == ["slack", "pagerduty", "slack"]


def test_the_command_shows_the_effect_of_a_body(api: ScriptedApi, tmp_path: Path) -> None:
    api.on(
        "POST /hooks/forge",
        (200, {"tasks": [{"description": "d"}], "joins": ["t1"], "ignored": ["the event push is not used"]}),
    )
    file = tmp_path / "body.json"
    file.write_text(json.dumps(ISSUE))
    done = CliRunner().invoke(
        app, ["intake", "try", str(file), "--source", "forge", "--event", "issues", *api.options()]
    )
    assert done.exit_code == 0, done.output
    assert "would submit" in done.output
    assert "would join the open task t1" in done.output
    assert "would be ignored: the event push is not used" in done.output
    (asked,) = api.asked
    assert (asked.params["trial"], asked.headers["x-github-event"], asked.body) == ("true", "issues", ISSUE)
