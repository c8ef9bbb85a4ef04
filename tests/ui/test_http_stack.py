"""The HTTP API of a running stack: what is accepted is there, what happens is told, and nobody sees another's."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import httpx
import nats
import pytest
from ui.http_front import Event, Events

from counterpoint.local.stack import Stack
from counterpoint.proto import subjects
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.tasks import SubmitTask

NOTE = "# Orders\n\nOrders are kept for seven years in the orders archive, by decision of finance.\n"
QUESTION = {"kind": "question", "description": "For how many years are orders kept in the archive?"}
WAIT = {"Prefer": "wait=30"}


@pytest.fixture
def in_project(project: str) -> dict[str, str]:
    return {"project": project}


async def ingested(http: httpx.AsyncClient, project: str) -> None:
    body = {"documents": [{"source": "orders.md", "text": NOTE}], "project": project}
    (became,) = (await http.post("/v1/documents", json=body)).json()["documents"]
    assert became["status"] == "added"


async def published(stack: Stack, subject: str, body: Any) -> None:
    user = stack.endpoints.users["publisher"]
    prefix = user.inbox_prefix.encode()
    connected = nats.connect(stack.endpoints.nats, user=user.user, password=user.password, inbox_prefix=prefix)
    async with await connected as publisher:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        await publisher.jetstream().publish(subject, raw)


async def stream_events(http: httpx.AsyncClient, path: str, params: dict[str, str], until: str) -> list[Event]:
    """The events of a stream up to the first of a type."""
    seen: list[Event] = []
    async with http.stream("GET", path, params=params) as response:
        assert response.status_code == 200
        events = Events(response)
        while not seen or seen[-1].data.get("type") != until:
            seen += await events.events(1)
    return seen


async def test_a_question_is_answered_from_ingested_documents(
    http: httpx.AsyncClient, project: str, in_project: dict[str, str]
) -> None:
    await ingested(http, project)
    response = await http.post("/v1/tasks", json=QUESTION | in_project, headers=WAIT)
    assert response.status_code == 200, response.text
    task = response.json()
    assert task["state"] == "completed"
    assert "seven years" in task["result"]
    assert task["findings"]["citations"]
    events = await stream_events(
        http, f"/v1/tasks/{task['task_id']}/events", in_project, "counterpoint.task.completed.v1"
    )
    kinds = [event.data["type"].split(".")[2] for event in events]
    assert kinds[:2] == ["submitted", "routed"]
    ids = [event.id for event in events]
    assert ids == sorted(set(ids))  # type: ignore[type-var]
    path = f"/v1/tasks/{task['task_id']}"
    whole = await stream_events(http, f"{path}/events", in_project | {"line": "true"}, "counterpoint.task.completed.v1")
    assert [event for event in whole if event.name == "message"] == events
    line = (await http.get(f"{path}/line", params=in_project)).json()["items"]
    assert [event.data for event in whole if event.name == "action"] == line
    line = (await http.get(f"/v1/tasks/{task['task_id']}/line", params=in_project)).json()
    assert [action["agent"] for action in line["items"]][:2] == ["human", "router"]
    assert {"router", "manager", "developer"} <= {decision["agent"] for decision in line["decisions"]}
    found = (await http.post("/v1/search", json={"text": "orders archive"} | in_project)).json()
    assert found["items"][0]["source"] == "orders.md"
    report = (await http.get("/v1/audit/verify", params=in_project)).json()
    assert report["ok"], report
    assert report["commits"] > 0


async def test_many_at_once_with_one_id_are_one_task(http: httpx.AsyncClient, in_project: dict[str, str]) -> None:
    body = QUESTION | {"task_id": "once"} | in_project
    replies = await asyncio.gather(*(http.post("/v1/tasks", json=body) for _ in range(8)))
    assert {reply.status_code for reply in replies} == {202}
    other = await http.post("/v1/tasks", json=body | {"title": "other"})
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    line = (await http.get("/v1/tasks/once/line", params=in_project)).json()
    assert [action["kind"] for action in line["items"]].count("submit") == 1


async def test_a_decision_stream_resumes_where_it_was_left(http: httpx.AsyncClient, in_project: dict[str, str]) -> None:
    await http.post("/v1/tasks", json=QUESTION | {"task_id": "first"} | in_project, headers=WAIT)
    async with http.stream("GET", "/v1/decisions/stream", params=in_project) as response:
        events = Events(response)
        assert await events.next() == ": open"
        await http.post("/v1/tasks", json=QUESTION | {"task_id": "second"} | in_project, headers=WAIT)
        (first,) = await events.events(1)
    assert (first.data["subject"], first.data["data"]["agent"]) == ("second", "router")
    await http.post("/v1/tasks", json=QUESTION | {"task_id": "third"} | in_project, headers=WAIT)
    headers = {"Last-Event-ID": str(first.id)}
    async with http.stream("GET", "/v1/decisions/stream", params=in_project, headers=headers) as response:
        events = Events(response)
        seen: list[Event] = []
        while not seen or seen[-1].data["subject"] != "third":
            seen += await events.events(1)
    assert seen[0].data["subject"] == "second"
    assert seen[0].id > first.id  # type: ignore[operator]


async def test_tasks_from_the_bus_are_accepted_and_illegal_ones_are_rejected_and_kept(
    stack: Stack, http: httpx.AsyncClient, project: str, in_project: dict[str, str]
) -> None:
    task = subjects.of(SubmitTask.TYPE, project)
    await published(stack, task, QUESTION | {"task_id": "by-bus", "descripton": "x"})
    found = await http.get("/v1/tasks/by-bus", params=in_project)
    while found.status_code == 404:
        await asyncio.sleep(0.1)
        found = await http.get("/v1/tasks/by-bus", params=in_project)
    assert found.json()["submitted_by"] == "publisher"
    assert found.json()["ignored"] == ["descripton"]
    await published(stack, task, QUESTION | {"task_id": "by-bus"} | {"title": "other"})
    await published(stack, task, b"{no json")
    codes: dict[str, dict[str, Any]] = {}
    while len(codes) < 2:
        await asyncio.sleep(0.1)
        listed = (await http.get("/v1/dead-letters", params=in_project)).json()["items"]
        codes = {letter["code"]: letter for letter in listed}
    assert set(codes) == {"conflict", "malformed"}
    shown = await http.get(f"/v1/dead-letters/{codes['malformed']['dead_letter_id']}", params=in_project)
    assert shown.json()["body"] == "{no json"


async def test_a_dead_letter_is_retried_after_its_cause_is_mended(
    stack: Stack, http: httpx.AsyncClient, project: str, in_project: dict[str, str]
) -> None:
    outcome = subjects.of(ReportOutcome.TYPE, project)
    await published(stack, outcome, {"task_id": "later", "attempt": 1, "outcome": "failed", "note": "no change"})
    listed: list[dict[str, Any]] = []
    while not listed:  # the outcome is offered again for seconds, and asking without a pause slows that
        await asyncio.sleep(0.2)
        listed = (await http.get("/v1/dead-letters", params=in_project)).json()["items"]
    assert (listed[0]["code"], listed[0]["problems"][0]["field"]) == ("unknown_task", "task_id")
    await http.post("/v1/tasks", json=QUESTION | {"task_id": "later"} | in_project, headers=WAIT)
    retried = await http.post(f"/v1/dead-letters/{listed[0]['dead_letter_id']}/retry", params=in_project)
    assert (retried.status_code, retried.json()["state"]) == (202, "retry"), retried.text
    events = await stream_events(http, "/v1/tasks/later/events", in_project, "counterpoint.task.outcome_reported.v1")
    assert events[-1].data["data"]["note"] == "no change"


async def test_one_of_several_concurrent_principals_of_one_name_is_created(
    http: httpx.AsyncClient, project: str
) -> None:
    body = {"name": f"one-{project}", "kind": "agent", "projects": [project], "roles": ["read"]}
    made = await asyncio.gather(*(http.post("/v1/principals", json=body) for _ in range(4)))
    assert sorted(answer.status_code for answer in made) == [201, 409, 409, 409]
    refused = next(answer for answer in made if answer.status_code == 409)
    assert refused.json()["errors"][0]["field"] == "name"


async def test_a_principal_sees_its_own_projects_until_it_is_revoked(
    stack: Stack, http: httpx.AsyncClient, project: str, in_project: dict[str, str]
) -> None:
    await http.post("/v1/tasks", json=QUESTION | {"task_id": "mine"} | in_project)
    body = {"name": f"reader-{project}", "kind": "agent", "projects": [project], "roles": ["read", "audit"]}
    made = await http.post("/v1/principals", json=body)
    assert made.status_code == 201, made.text
    headers = {"Authorization": f"Bearer {made.json()['token']}"}
    async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=60) as reader:
        assert (await reader.get("/v1/tasks/mine", params=in_project)).status_code == 200
        assert (await reader.get("/v1/tasks/mine")).status_code == 403
        assert (await reader.get("/v1/audit/verify", params=in_project)).json()["ok"]
        assert (await reader.post("/v1/tasks", json=QUESTION | in_project)).status_code == 403
        assert (await reader.post("/v1/documents", json={"source": "a", "text": "b"} | in_project)).status_code == 403
        assert (await http.delete(f"/v1/principals/{body['name']}")).status_code == 200
        assert (await reader.get("/v1/tasks/mine", params=in_project)).status_code == 401


async def test_a_secret_is_refused_and_kept_nowhere(http: httpx.AsyncClient, in_project: dict[str, str]) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    body = QUESTION | {"task_id": "leak", "description": f"Why does {secret} not work?"} | in_project
    response = await http.post("/v1/tasks", json=body)
    assert (response.status_code, response.json()["code"]) == (422, "sensitive"), response.text
    assert secret not in response.text
    assert (await http.get("/v1/tasks/leak", params=in_project)).status_code == 404


async def test_more_than_a_bus_message_holds_is_ingested(http: httpx.AsyncClient, in_project: dict[str, str]) -> None:
    text = ("An order is a thing that was asked for. " * 20 + "\n\n") * 1400
    assert len(text) > 1024 * 1024
    response = await http.post("/v1/documents", json={"source": "large.md", "text": text} | in_project)
    assert response.status_code == 200, response.text
    assert response.json()["documents"][0]["status"] == "added"


async def test_a_stream_ends_when_the_router_is_stopped_and_goes_on_where_it_was(
    stack: Stack, http: httpx.AsyncClient, in_project: dict[str, str]
) -> None:
    await http.post("/v1/tasks", json=QUESTION | {"task_id": "before"} | in_project)
    path = "/v1/tasks/before/events"
    async with http.stream("GET", path, params=in_project) as response:
        events = Events(response)
        (first,) = await events.events(1)
        pid = stack.endpoints.services["router"].pid
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
        seen = [one async for one in _rest(events) if isinstance(one, Event)]
    await _restarted(stack, pid)
    last = seen[-1] if seen else first
    async with http.stream("GET", path, params=in_project, headers={"Last-Event-ID": str(first.id)}) as response:
        again = await Events(response).events(len(seen) or 1)
    assert again[: len(seen)] == seen
    assert last.id is not None


async def _rest(events: Events) -> AsyncIterator[Event | str]:
    """Yield the remaining events until the stream ends; a broken connection is an error."""
    while (one := await events.next()) is not None:
        yield one


async def _restarted(stack: Stack, pid: int) -> None:
    while stack.endpoints.services["router"].pid in (pid, None):
        await asyncio.wait_for(stack.ready("router"), 30)
        await asyncio.sleep(0.02)
    await asyncio.wait_for(stack.ready("router"), 30)
