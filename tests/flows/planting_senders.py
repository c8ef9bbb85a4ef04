"""Plants a secret in every part of what other senders bring: webhooks of each kind, replies in chats, calls of MCP."""

import base64
import hashlib
import hmac
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from flows.planted_secrets import KEY, Schema, leaves, replaced, spelled
from ui.mcp_messages import RawClient

from counterpoint.proto.messages import utc_now

_SLACK, _TEAMS = "the signing secret", base64.b64encode(b"the security token").decode()
_SOURCES = f"""
[[source]]
name = "chat"
kind = "slack"
secret = "{_SLACK}"
users = {{ U1 = "administrator" }}
[[source]]
name = "rooms"
kind = "teams"
secret = "{_TEAMS}"
users = {{ u-1 = "administrator" }}
[[source]]
name = "events"
kind = "json"
[source.map]
id = "id"
description = "text"
error_message = "error"
systems = "systems"
job_name = "job"
repo = "repo"
"""
_REPO = {"html_url": "https://git.internal/etl/orders"}
_RUN = {"name": "nightly", "html_url": "https://git.internal/run", "output": {"summary": "failed"}}
_ISSUE = {"title": "It fails", "body": "Why?", "html_url": "https://git.internal/issues/7"}
_LABELS = {"alertname": "Down", "severity": "high", "job_namespace": "etl", "job_name": "daily", "team": "orders"}
_BODIES: tuple[tuple[str, dict[str, str], dict[str, Any]], ...] = (
    (
        "alertmanager",
        {},
        {
            "receiver": "x",
            "alerts": [
                {
                    "labels": _LABELS,
                    "annotations": {"summary": "Down", "description": "It is down", "message": "x"},
                    "fingerprint": "f1",
                    "startsAt": "2026-11-20T12:00:00Z",
                    "generatorURL": "https://alerts.internal/graph",
                }
            ],
        },
    ),
    (
        "pagerduty",
        {},
        {
            "event": {
                "event_type": "incident.triggered",
                "data": {
                    "id": "P1",
                    "title": "Down",
                    "html_url": "https://pages.internal/1",
                    "service": {"summary": "orders"},
                },
            }
        },
    ),
    (
        "github",
        {"x-github-event": "issues"},
        {"action": "opened", "issue": _ISSUE | {"number": 7}, "repository": _REPO},
    ),
    (
        "github",
        {"x-github-event": "check_run"},
        {"action": "completed", "check_run": _RUN | {"id": 8, "conclusion": "failure"}, "repository": _REPO},
    ),
    (
        "gitea",
        {"x-gitea-event": "issue_comment"},
        {
            "action": "created",
            "comment": {"id": 9, "user": {"login": "ann"}, "html_url": "https://git.internal/c", "body": "x"},
            "issue": {"number": 7},
            "repository": _REPO,
        },
    ),
    (
        "gitlab",
        {},
        {
            "object_kind": "build",
            "build_id": 10,
            "build_name": "test",
            "build_status": "failed",
            "build_failure_reason": "script",
            "repository": {"homepage": "https://git.internal/etl/orders"},
        },
    ),
    (
        "cloudevents",
        {},
        {
            "specversion": "1.0",
            "id": "e1",
            "source": "/ci",
            "type": "counterpoint.task.submit.v1",
            "data": {"kind": "question", "description": "How long are orders kept?", "title": "Orders"},
        },
    ),
    (
        "events",
        {},
        {
            "id": "1",
            "text": "It fails",
            "error": "no route",
            "systems": ["s3"],
            "job": "load",
            "repo": "https://x.internal",
        },
    ),
)
HOOKS = frozenset(f"hooks {kind}" for kind, *_ in _BODIES)
_HEADERS = ("X-Github-Delivery", "Webhook-Id", "X-Forgejo-Delivery", "Idempotency-Key", "User-Agent")
_COMMANDS = (
    "waiting {}",
    "show {}",
    "outcome x1 failed {}",
    "changed x1 {}",
    "approve {} 0123456789ab",
    "help --project {}",
)


_KEYS = {"pagerduty": 'secret = "the routing key"'}
RECEIVERS = frozenset({"webhook", "slack", "teams", "pagerduty", "alertmanager", "datahub", "email"})
"""Receivers of notifications, one of each kind."""
_RECEIVER = """
[[receiver]]
name = "{name}"
kind = "{name}"
url = "{url}"
{secret}
to = ["team@example.com"]
sender = "counterpoint@example.com"
channel = "C1"
console_url = "https://console.internal"
events = ["proposed", "escalated", "approval_requested", "completed", "failed", "resumed", "cancelled"]
clearance = "confidential"
private = true
wait_s = 0
"""


def hooks_file(folder: Path) -> AbstractContextManager[None]:
    """The sources of webhooks in the environment of a stack that starts."""
    return _file(folder / "hooks.toml", _SOURCES, "COUNTERPOINT_HOOKS_FILE")


def receivers_file(folder: Path, urls: Mapping[str, str]) -> AbstractContextManager[None]:
    """The receivers of notifications at their URLs, in the environment of a stack that starts."""
    rows = (_RECEIVER.format(name=name, url=urls[name], secret=_KEYS.get(name, "")) for name in sorted(RECEIVERS))
    return _file(folder / "receivers.toml", "".join(rows), "COUNTERPOINT_NOTIFY_FILE")


@contextmanager
def _file(file: Path, content: str, variable: str) -> Iterator[None]:
    file.write_text(content)
    file.chmod(0o600)
    os.environ[variable] = str(file)
    try:
        yield
    finally:
        del os.environ[variable]


def hooks(planted: Any, api: httpx.AsyncClient, project: str) -> Iterator[tuple[str, Any]]:
    """Requests of senders, with a secret in one place each."""
    at = {"project": project}
    for kind, headers, body in _BODIES:
        door = f"hooks {kind}"
        event = headers.get(next(iter(headers), ""), "")
        for number, place in enumerate(leaves(body)):
            secret = planted.take(door, f"{event} {spelled(place)}")
            # Another event each, or it would be known.
            content = _renumbered(replaced(body, place, secret.text), number, place)
            yield door, api.stream("POST", f"/hooks/{kind}", params=at, json=content, headers=headers)
        unknown = {**body, planted.take(door, f"{event} {KEY}").text: "x"}
        yield door, api.stream("POST", f"/hooks/{kind}", params=at, json=unknown, headers=headers)
        sent = {name: planted.take(door, f"{event} header {name}", str.isprintable).text for name in _HEADERS}
        yield door, api.stream("POST", f"/hooks/{kind}", params=at, json=body, headers={**sent, **headers})
        secret = planted.take(door, "not JSON")
        yield door, api.stream("POST", f"/hooks/{kind}", params=at, content=f"{{{secret.text}", headers=headers)
    secret = planted.take("hooks", "source", lambda text: text.isascii() and text.isalnum())
    yield "hooks", api.stream("POST", f"/hooks/{secret.text}", params=at, json={})


def chats(planted: Any, api: httpx.AsyncClient, project: str) -> Iterator[tuple[str, Any]]:
    """Commands and clicks of people, with a secret in one place each."""
    for command in _COMMANDS:
        form = {"command": "/cp", "user_id": "U1", "text": command.format(planted.take("slack", command).text)}
        yield "slack", _slack(api, form, project)
        activity = {"timestamp": utc_now().isoformat(), "from": {"id": "u-1"}}
        yield "teams", _teams(api, {**activity, "text": command.format(planted.take("teams", command).text)}, project)
    for field in ("user_id", "team_domain", "response_url", "command"):
        form = {"command": "/cp", "user_id": "U1", "text": "help", field: planted.take("slack", field).text}
        yield "slack", _slack(api, form, project)
    value = {"project": project, "task_id": "x1", "attempt": 1}
    for place in leaves({"user": {"id": "U1"}, "actions": [{"action_id": "failed", "value": "", "block_id": ""}]}):
        click = {"user": {"id": "U1"}, "actions": [{"action_id": "failed", "value": json.dumps(value)}]}
        yield "slack", _slack(api, {"payload": json.dumps(_with(click, place, planted))}, project)
    note = planted.take("slack", "note").text
    entered = {"action_id": "changed", "block_id": json.dumps(value), "value": note}
    yield "slack", _slack(api, {"payload": json.dumps({"user": {"id": "U1"}, "actions": [entered]})}, project)
    for field in ("id", "aadObjectId", "name"):
        person = {"id": "u-1", field: planted.take("teams", f"from.{field}").text}
        said = {"timestamp": utc_now().isoformat(), "from": person, "text": "help"}
        yield "teams", _teams(api, said, project)


async def mcp(planted: Any, url: str, token: str, project: str) -> None:
    """Calls of tools and reads of resources, with a secret in one place each."""
    client = RawClient(url, token, project)
    client.url += "&tools=all"
    for tool in (await client.send("tools/list", "tools"))["result"]["tools"]:
        schema = Schema(tool["inputSchema"], tool["inputSchema"])
        at_once = {"wait_s": 0} if "wait_s" in tool["inputSchema"]["properties"] else {}
        for place in schema.places():
            known = schema.at(place)
            secret = planted.take("mcp", f"{tool['name']} {spelled(place)}", known.fits if known else lambda text: True)
            arguments = at_once | schema.planted(place, secret.text)
            reply = await client.send("tools/call", name=tool["name"], arguments=arguments)
            refused = "error" in reply or reply["result"].get("isError")
            planted.statuses.append(("mcp", 422 if refused else 200))
    tool = planted.take("mcp", "name of a tool", lambda text: text.isascii() and text.isprintable()).text
    await client.send("tools/call", tool, name=tool, arguments={})
    for scheme in ("task", "card", "line", "memory", "lineage"):
        name = planted.take("mcp", f"{scheme}://", lambda text: text.isascii() and text.isalnum()).text
        await client.send("resources/read", name, uri=f"{scheme}://{name}")


def _renumbered(body: dict[str, Any], number: int, planted: tuple[str | int, ...]) -> dict[str, Any]:
    for path in (("issue", "number"), ("check_run", "id"), ("comment", "id"), ("build_id",), ("id",), ("fingerprint",)):
        inner: Any = body
        for part in path:
            inner = inner.get(part) if isinstance(inner, dict) else None
        if inner is not None and path != planted:
            body = replaced(body, path, 1000 + number if isinstance(inner, int) else f"{inner}-{number}")
    return body


def _with(click: dict[str, Any], place: tuple[str | int, ...], planted: Any) -> dict[str, Any]:
    secret = planted.take("slack", f"click {spelled(place)}")
    actions = [{**click["actions"][0], str(place[-1]): secret.text}]
    return {**click, "actions": actions} if place[0] == "actions" else {**click, "user": {"id": secret.text}}


def _slack(api: httpx.AsyncClient, form: Mapping[str, str], project: str) -> Any:
    content, stamp = urlencode(form).encode(), str(int(time.time()))
    signature = hmac.new(_SLACK.encode(), f"v0:{stamp}:".encode() + content, hashlib.sha256).hexdigest()
    headers = {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={signature}"}
    return api.stream("POST", "/hooks/chat", params={"project": project}, content=content, headers=headers)


def _teams(api: httpx.AsyncClient, activity: Mapping[str, Any], project: str) -> Any:
    content = json.dumps(activity).encode()
    digest = base64.b64encode(hmac.digest(base64.b64decode(_TEAMS), content, hashlib.sha256)).decode()
    headers = {"Authorization": f"HMAC {digest}"}
    return api.stream("POST", "/hooks/rooms", params={"project": project}, content=content, headers=headers)
