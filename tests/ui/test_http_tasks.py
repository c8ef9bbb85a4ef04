"""Tasks over HTTP: committed before the 202, once for the same key or id, waited for, and spoken about."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents.router_house import NOW, PROJECT
from ui.http_front import RunningFront, put_task, running

from counterpoint.proto.errors import ErrorCode, Permanent
from counterpoint.proto.memory import Get, QueryReply, QueryRequest
from counterpoint.proto.messages import MESSAGE_LIMIT_BYTES
from counterpoint.proto.tasks import TaskCompleted, TaskRouted, TaskSubmitted
from counterpoint.router.api.application import HttpApi

BODY = {"kind": "question", "description": "How long are orders kept?"}


def completed(front: RunningFront, task_id: str) -> None:
    put_task(front, task_id, "completed", result="seven years")
    end = {"task_id": task_id, "resolution": "answered", "result": "seven years", "cost_usd": "0", "tokens": 0}
    front.house.send(TaskCompleted.model_validate(end | {"duration_ms": 1, "findings": {}}))


async def test_a_task_is_committed_when_202_is_answered(front: RunningFront) -> None:
    response = await front.me.post("/v1/tasks", json=BODY | {"descripton": "misspelt"})
    assert response.status_code == 202
    task = response.json()
    assert task["state"] == "submitted"
    assert task["ignored"] == ["descripton"]
    assert task["submitted_by"] == "me"
    assert response.headers["location"] == f"/v1/tasks/{task['task_id']}?project={PROJECT}"
    (routed,) = front.house.of_type(TaskRouted)
    assert (routed.task_id, routed.lane, routed.submitted_by_kind) == (task["task_id"], "answer", "person")
    assert [action.agent for action in front.house.line(task["task_id"])] == ["human", "router"]
    looked = await front.me.get(response.headers["location"], params={})
    assert looked.json() == task


async def test_an_accepted_task_has_the_fields_that_were_submitted(front: RunningFront) -> None:
    body = BODY | {"systems": ["dns"], "target": {"paths": ["a.py"], "repo": "orders"}}
    body |= {
        "error_message": "no route",
        "priority": "high",
        "deadline": "2099-01-01T00:00:00Z",
        "context": {"tries": 3},
        "title": "Orders",
    }
    for _ in range(2):
        task = (await front.me.post("/v1/tasks", json=body | {"task_id": "t1"})).json()
        assert task["state"] == "submitted"
        assert {name: task[name] for name in body} == body


@pytest.mark.parametrize(("kind", "agent"), [("person", "human"), ("agent", "calling_llm"), ("system", "router")])
async def test_the_submitter_signs_the_task(front: RunningFront, kind: str, agent: str) -> None:
    async with front.as_principal("somebody", "submit", kind=kind) as other:
        task = (await other.post("/v1/tasks", json=BODY)).json()
    assert front.house.line(task["task_id"])[0].agent == agent
    assert task["submitted_by"] == "somebody"


async def test_the_same_idempotency_key_is_one_task_per_principal_and_another_body_is_409(front: RunningFront) -> None:
    key = {"Idempotency-Key": "k-1"}
    first = await front.me.post("/v1/tasks", json=BODY, headers=key)
    again = await front.me.post("/v1/tasks", json=dict(reversed(BODY.items())), headers=key)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["task_id"] == again.json()["task_id"]
    other = await front.me.post("/v1/tasks", json=BODY | {"title": "other"}, headers=key)
    assert other.status_code == 409
    assert other.json()["code"] == "idempotency_conflict"
    assert [each["field"] for each in other.json()["errors"]] == ["Idempotency-Key"]
    async with front.as_principal("somebody", "submit") as somebody:
        theirs = await somebody.post("/v1/tasks", json=BODY, headers=key)
    assert theirs.json()["task_id"] != first.json()["task_id"]
    assert len(front.house.of_type(TaskRouted)) == 2


async def test_a_key_is_remembered_of_a_task_that_was_known_by_its_id(front: RunningFront) -> None:
    body, key = BODY | {"task_id": "t1"}, {"Idempotency-Key": "k-1"}
    await front.me.post("/v1/tasks", json=body)
    await front.me.post("/v1/tasks", json=body, headers=key)
    other = await front.me.post("/v1/tasks", json=BODY | {"task_id": "t2"}, headers=key)
    assert other.status_code == 409


async def test_the_same_task_id_is_one_task_and_other_content_is_409(front: RunningFront) -> None:
    body = BODY | {"task_id": "t1"}
    for _ in range(2):
        response = await front.me.post("/v1/tasks", json=body)
        assert (response.status_code, response.json()["task_id"]) == (202, "t1")
    other = await front.me.post("/v1/tasks", json=body | {"title": "other"})
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    assert len(front.house.of_type(TaskRouted)) == 1


async def test_concurrent_submissions_of_one_task_are_one_task(front: RunningFront) -> None:
    body = BODY | {"task_id": "t1"}
    replies = await asyncio.gather(*(front.me.post("/v1/tasks", json=body) for _ in range(10)))
    assert {reply.status_code for reply in replies} == {202}
    assert len(front.house.of_type(TaskRouted)) == 1


async def test_a_submission_that_is_overtaken_finds_the_other(front: RunningFront) -> None:
    body = BODY | {"task_id": "t1"}
    await front.me.post("/v1/tasks", json=body)
    winner = front.house.records.pop((PROJECT, "submissions", "task:t1"))
    front.house.before_commit = lambda: front.house.records.update({(PROJECT, "submissions", "task:t1"): winner})
    response = await front.me.post("/v1/tasks", json=body)
    assert (response.status_code, response.json()["task_id"]) == (202, "t1")
    assert len(front.house.of_type(TaskRouted)) == 1


@pytest.mark.parametrize(
    ("params", "named", "status"),
    [({}, "billing", 202), ({"project": "billing"}, "billing", 202), ({"project": "orders"}, "billing", 422)],
)
async def test_the_project_is_named_in_the_url_or_the_body(
    front: RunningFront, params: dict[str, str], named: str, status: int
) -> None:
    front.me.params = front.me.params.remove("project")
    response = await front.me.post("/v1/tasks", json=BODY | {"project": named}, params=params)
    assert response.status_code == status
    assert len(front.house.of_type(TaskSubmitted, "billing")) == (status == 202)
    if status == 422:
        assert [each["field"] for each in response.json()["errors"]] == ["project"]


async def test_prefer_wait_answers_200_as_soon_as_the_task_has_ended(front: RunningFront) -> None:
    waiting = asyncio.create_task(front.me.post("/v1/tasks", json=BODY, headers={"Prefer": "respond-async, wait=30"}))
    await front.house.looked_at.wait()
    completed(front, front.house.of_type(TaskRouted)[0].task_id)
    response = await waiting
    assert response.status_code == 200
    assert (response.json()["state"], response.json()["result"]) == ("completed", "seven years")
    assert response.headers["preference-applied"] == "wait=30"


async def test_a_wait_that_is_over_answers_202(front: RunningFront) -> None:
    response = await front.me.post("/v1/tasks", json=BODY, headers={"Prefer": "wait=1"})
    assert (response.status_code, response.json()["state"]) == (202, "submitted")


async def test_a_submitter_without_read_is_answered_at_once(front: RunningFront) -> None:
    async with front.as_principal("airflow", "submit", kind="system") as airflow:
        response = await airflow.post("/v1/tasks", json=BODY | {"task_id": "t1"}, headers={"Prefer": "wait=30"})
        again = await airflow.post("/v1/tasks", json=BODY | {"task_id": "t1"})
        looked = await airflow.get("/v1/tasks/t1")
    assert (response.status_code, response.json()["state"]) == (202, "submitted")
    assert again.json() == response.json()
    assert (looked.status_code, looked.json()["code"]) == (403, "role")


async def test_an_accepted_task_is_202_even_when_memory_goes_away_after_it(front: RunningFront) -> None:
    heard = front.house.heard

    def gone(subject: str, headers: dict[str, str]) -> None:
        heard(subject, headers)
        front.house.away = True

    front.house.heard = gone
    response = await front.me.post("/v1/tasks", json=BODY, headers={"Prefer": "wait=30"})
    assert (response.status_code, response.json()["state"]) == (202, "submitted")


async def test_get_waits_until_the_task_waits_for_input(front: RunningFront) -> None:
    await front.me.post("/v1/tasks", json=BODY | {"task_id": "t1"})
    waiting = asyncio.create_task(front.me.get("/v1/tasks/t1", params={"wait": 30}))
    await front.house.looked_at.wait()
    put_task(front, "t1", "working")
    front.house.send(front.house.of_type(TaskRouted)[0])
    put_task(front, "t1", "input_required", waiting_for="documents")
    front.house.send(front.house.of_type(TaskRouted)[0])
    response = await waiting
    assert (response.json()["state"], response.json()["waiting_for"]) == ("input_required", "documents")


async def test_a_wait_needs_no_live_message(listener: tuple[HttpApi, str]) -> None:
    async with running(*listener, poll_s=0.05) as impatient:
        await impatient.me.post("/v1/tasks", json=BODY | {"task_id": "t1"})
        impatient.house.heard = lambda subject, headers: None
        waiting = asyncio.create_task(impatient.me.get("/v1/tasks/t1", params={"wait": 30}))
        await impatient.house.looked_at.wait()
        put_task(impatient, "t1", "failed")
        assert (await waiting).json()["state"] == "failed"


async def test_the_record_shows_the_ignored_fields(front: RunningFront) -> None:
    await front.me.post("/v1/tasks", json=BODY | {"task_id": "t1", "descripton": "x"})
    put_task(front, "t1", "working")
    task = (await front.me.get("/v1/tasks/t1")).json()
    assert (task["state"], task["ignored"], task["version"]) == ("working", ["descripton"], 1)


async def test_tasks_are_listed_by_state_in_pages(front: RunningFront) -> None:
    for number in range(5):
        put_task(front, f"t{number}", "working" if number else "completed")
    seen, cursor = [], None
    while True:
        params = {"state": "working", "limit": 3} | ({"cursor": cursor} if cursor else {})
        listed = (await front.me.get("/v1/tasks", params=params)).json()
        seen += [task["task_id"] for task in listed["items"]]
        cursor = listed["next_cursor"]
        if cursor is None:
            break
    assert seen == ["t4", "t3", "t2", "t1"]
    everything = (await front.me.get("/v1/tasks")).json()
    assert len(everything["items"]) == 5


async def test_a_page_is_shorter_when_its_tasks_would_not_fit_into_one_reply(front: RunningFront) -> None:
    for number in range(9):
        put_task(front, f"t{number}", "working")
    front.house.reply_limit = 2
    seen, cursor = [], None
    while not seen or cursor is not None:
        listed = (await front.me.get("/v1/tasks", params={"cursor": cursor} if cursor else {})).json()
        seen += [task["task_id"] for task in listed["items"]]
        cursor = listed["next_cursor"]
    assert seen == [f"t{number}" for number in reversed(range(9))]


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/escalations", "/v1/incidents"])
async def test_a_page_whose_incidents_would_not_fit_into_one_reply_has_their_facts(
    front: RunningFront, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    for number in range(6):
        name, whole = f"incident-{number}", f"whole-{number}"
        waits = {"waiting_for": "documents", "escalation": {"to": "calling_llm", "code": "low_confidence"}}
        put_task(front, name, "input_required", **waits)
        front.house.put("incidents", name, {"live": {"affected_count": number}})
        put_task(front, whole, "completed")
        link = {"link_id": f"l{number}", "project": PROJECT, "relation": "merged", "by": "me", "by_kind": "person"}
        pair = [{"task_id": whole}, {"task_id": name}]
        front.house.put("links", f"l{number}", {**link, "pair": pair, "at": NOW.isoformat()})
    everything = (await front.me.get(path)).json()
    answer = front.house._query

    async def limited(request: QueryRequest) -> QueryReply:
        if sum(isinstance(query, Get) for query in request.queries) > 2:
            raise Permanent(ErrorCode.TOO_LARGE)
        return await answer(request)

    monkeypatch.setattr(front.house, "_query", limited)
    listed = await front.me.get(path)
    assert (listed.status_code, listed.json()) == (200, everything)
    assert len(everything["items"]) >= 6


async def test_escalations_are_the_tasks_with_an_escalation(front: RunningFront) -> None:
    escalation = {"to": "calling_llm", "code": "low_confidence"}
    put_task(front, "t1", "input_required", waiting_for="documents", escalation=escalation)
    put_task(front, "t2", "input_required", waiting_for="outcome")
    put_task(front, "t3", "working")
    listed = (await front.me.get("/v1/escalations")).json()
    assert [(task["task_id"], task["escalation"]["code"]) for task in listed["items"]] == [("t1", "low_confidence")]


async def test_the_line_names_its_decisions_and_sources(front: RunningFront) -> None:
    await front.me.post("/v1/tasks", json=BODY | {"task_id": "t1"})
    front.house.put("chunks", "c1", {"source": "docs/orders.md", "text": "seven years"})
    action = {"action_id": "a1", "task_id": "t1", "agent": "developer", "kind": "search", "reasoning": "looked"}
    action |= {"at": NOW.isoformat(), "sources": [{"store": "chunks", "id": "c1", "version": 1}]}
    front.house.put("actions", "a1", action)
    line = (await front.me.get("/v1/tasks/t1/line")).json()
    assert [each["kind"] for each in line["items"]] == ["submit", "route", "search"]
    seqs = [each["seq"] for each in line["items"]]
    assert seqs == sorted(seqs)
    assert line["items"][1]["after"] == [line["items"][0]["action_id"]]
    assert [each["decision_id"] for each in line["decisions"]] == [line["items"][1]["decision_id"]]
    assert line["sources"] == [{"store": "chunks", "id": "c1", "name": "docs/orders.md"}]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("GET", "/line", None),
        ("GET", "/events", None),
        ("POST", "/outcome", {"outcome": "failed"}),
        ("POST", "/override", {"instruction": "x", "reasoning": "y"}),
        ("POST", "/cancel", {}),
    ],
)
async def test_a_task_that_is_not_there_is_404(front: RunningFront, method: str, path: str, body: Any) -> None:
    response = await front.me.request(method, f"/v1/tasks/nobody{path}", json=body)
    assert (response.status_code, response.json()["code"]) == (404, "unknown_task")


async def test_a_task_of_another_project_is_404(front: RunningFront) -> None:
    await front.me.post("/v1/tasks", json=BODY | {"task_id": "t1"})
    response = await front.me.get("/v1/tasks/t1", params={"project": "billing"})
    assert (response.status_code, response.json()["code"]) == (404, "unknown_task")
    problem = response.json()["errors"][0]["problem"]
    assert "project billing" in problem
    assert "--project" in problem


async def test_a_body_over_256_kib_is_413_however_it_is_sent(front: RunningFront) -> None:
    large = BODY | {"context": {"log": "x" * MESSAGE_LIMIT_BYTES}}
    assert (await front.me.post("/v1/tasks", json=large)).status_code == 413

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(MESSAGE_LIMIT_BYTES // 1024 + 1):
            yield b" " * 1024

    response = await front.me.post("/v1/tasks", content=parts())
    assert (response.status_code, response.json()["code"]) == (413, "too_large")
    assert front.house.of_type(TaskRouted) == []
