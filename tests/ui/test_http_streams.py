"""Event streams: the log in order, resumed without loss or repetition, awake at once, and ended cleanly."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents.router_house import NOW, House
from ui.decision_streams import DECISIONS, decided, steps, stream
from ui.http_front import Event, Events, RunningFront, running

from counterpoint.proto.tasks import TaskDue, TaskResumed
from counterpoint.router import open_streams
from counterpoint.router.api.application import HttpApi
from counterpoint.router.live_log import EncodedEvent, EncodedPage
from counterpoint.router.streams import _PART_BYTES, _Pace, _parts

TASK = "/v1/tasks/t1/events"


@pytest.fixture
async def front(listener: tuple[HttpApi, str]) -> AsyncIterator[RunningFront]:
    async with running(*listener) as found:
        await submitted(found)
        yield found


async def submitted(front: RunningFront, task_id: str = "t1") -> None:
    body = {"kind": "question", "description": "How long?", "task_id": task_id}
    assert (await front.me.post("/v1/tasks", json=body)).status_code == 202


async def until_end(events: Events) -> AsyncIterator[Event]:
    while (one := await events.next()) is not None:
        if isinstance(one, Event):
            yield one


def action(action_id: str, reasoning: str, task_id: str = "t1") -> dict[str, Any]:
    body = {"action_id": action_id, "task_id": task_id, "agent": "manager", "kind": "assess", "reasoning": reasoning}
    return {**body, "at": NOW.isoformat()}


async def test_a_task_is_told_from_its_beginning_as_cloudevents(front: RunningFront) -> None:
    async with stream(front.me, TASK) as events:
        told = await events.events(3)
    assert [event.data["type"].split(".")[2] for event in told] == ["submitted", "routed", "made"]
    assert [event.id for event in told] == sorted(item.seq for item in front.house.log)
    first = told[0].data
    assert first["specversion"] == "1.0"
    assert (first["source"], first["subject"]) == ("counterpoint/router", "t1")
    assert (first["id"], first["time"]) == (front.house.log[0].id, NOW.isoformat())
    assert first["data"]["kind"] == "question"
    assert told[0].name == "message"


async def test_the_streams_of_one_principal_are_limited_until_one_closes(
    front: RunningFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_streams, "LIMIT", 2)
    async with stream(front.me, TASK):
        async with stream(front.me, DECISIONS):
            refused = await front.me.get(TASK)
            assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
            assert "2 open event streams" in refused.json()["errors"][0]["problem"]
            async with front.as_principal("another", "read") as another, stream(another, DECISIONS):
                pass
        async with asyncio.timeout(5):
            while (await _status(front, TASK)) != 200:
                pass


async def _status(front: RunningFront, path: str) -> int:
    async with front.me.stream("GET", path) as response:
        return response.status_code


async def test_a_task_is_told_with_its_line_in_one_order(front: RunningFront) -> None:
    async with stream(front.me, TASK, line=True) as events:
        told = await events.events(5)
        front.house.put("actions", "a9", action("a9", "looks"))
        front.house.send(TaskResumed(task_id="t1", reason="new knowledge"))
        told += await events.events(2)
    assert [event.name for event in told] == [*["action"] * 2, *["message"] * 3, "action", "message"]
    ids = [event.id for event in told]
    assert ids == sorted(set(ids))  # type: ignore[type-var]
    assert (told[5].data["action_id"], told[5].data["reasoning"]) == ("a9", "looks")
    assert told[5].data["seq"] == told[5].id


async def test_a_long_line_and_its_messages_are_resumed_without_loss_or_repetition(front: RunningFront) -> None:
    for number in range(450):
        front.house.put("actions", f"b{number}", action(f"b{number}", f"step {number}"))
        if number % 3 == 0:
            decided(front, number)
    seen: list[Event] = []
    async with stream(front.me, TASK, line=True) as events:
        seen += await events.events(301)
    async with stream(front.me, TASK, seen[-1].id, line=True) as events:
        seen += await events.events(5 + 450 + 150 - 301)
    ids = [event.id for event in seen]
    assert ids == sorted(set(ids))  # type: ignore[type-var]
    actions = [event.data["reasoning"] for event in seen if event.name == "action"]
    assert actions[2:] == [f"step {number}" for number in range(450)]


async def test_an_action_of_another_task_and_an_unreadable_one_are_no_events(front: RunningFront) -> None:
    front.house.put("actions", "c1", action("c1", "of another", task_id="t2"))
    front.house.put("actions", "c2", {"action_id": "c2", "task_id": "t1"})
    front.house.put("actions", "c3", action("c3", "read"))
    async with stream(front.me, TASK, line=True) as events:
        told = await events.events(6)
    assert [event.data["reasoning"] for event in told if event.name == "action"][2:] == ["read"]


async def test_later_events_of_the_task_come_at_once(front: RunningFront) -> None:
    async with stream(front.me, TASK) as events:
        await events.events(3)
        await submitted(front, "t2")
        front.house.send(TaskResumed(task_id="t1", reason="new knowledge"))
        (event,) = await events.events(1)
    assert (event.data["subject"], event.data["data"]["reason"]) == ("t1", "new knowledge")


async def test_a_timer_that_was_set_is_no_event(front: RunningFront) -> None:
    front.house.send(TaskDue(task_id="t1", timer="deadline"))
    front.house.send(TaskResumed(task_id="t1", reason="after it"))
    async with stream(front.me, TASK) as events:
        told = await events.events(4)
    assert told[-1].data["data"]["reason"] == "after it"


async def test_decisions_begin_now_and_are_of_one_project(front: RunningFront) -> None:
    decided(front, 1)
    async with stream(front.me, DECISIONS) as events:
        decided(front, 2, "billing")
        front.house.send(TaskResumed(task_id="t1", reason="no decision"))
        decided(front, 3)
        told = await events.events(1)
    assert list(steps(told)) == ["step 3"]


async def test_a_stream_resumes_after_the_last_event_without_loss_or_repetition(front: RunningFront) -> None:
    seen: list[Event] = []
    async with stream(front.me, DECISIONS) as events:
        for number in range(3):
            decided(front, number)
        seen += await events.events(2)
    for number in range(3, 700):
        decided(front, number)
    async with stream(front.me, DECISIONS, seen[-1].id) as events:
        seen += await events.events(698)
    assert list(steps(seen)) == [f"step {number}" for number in range(700)]
    ids = [event.id for event in seen]
    assert ids == sorted(set(ids))  # type: ignore[type-var]


async def test_a_stream_goes_on_when_the_next_messages_would_not_fit_into_one_reply(front: RunningFront) -> None:
    front.house.reply_limit = 3
    async with stream(front.me, DECISIONS) as events:
        for number in range(20):
            decided(front, number)
        assert list(steps(await events.events(20))) == [f"step {number}" for number in range(20)]


async def test_gap_is_said_when_retention_has_passed_the_reader_and_only_then(front: RunningFront) -> None:
    decided(front, 1)
    async with stream(front.me, DECISIONS, 1) as events:
        (event,) = await events.events(1)
        assert event.name == "message"
    front.house.forget(3)
    async with stream(front.me, DECISIONS, 1) as events:
        gap, event = await events.events(2)
        assert (gap.name, gap.id, gap.data) == ("gap", None, {"after": 1})
        front.house.forget()
        decided(front, 2)
        (event,) = await events.events(1)
        assert event.name == "message"
    front.house.forget()
    async with stream(front.me, DECISIONS, 1) as events:
        assert (await events.events(1))[0].name == "gap"
    async with stream(front.me, DECISIONS) as events:
        decided(front, 3)
        assert list(steps(await events.events(1))) == ["step 3"]


async def test_a_task_from_its_beginning_has_a_gap_when_it_was_forgotten_and_no_task_after_it(
    front: RunningFront,
) -> None:
    front.house.forget()
    await submitted(front, "t2")
    async with stream(front.me, "/v1/tasks/t2/events") as events:
        assert [event.name for event in await events.events(3)] == ["message"] * 3
    async with stream(front.me, TASK) as events:
        assert (await events.events(1))[0].name == "gap"


async def test_a_stream_that_retention_has_passed_gets_a_gap(listener: tuple[HttpApi, str]) -> None:
    async with running(*listener, poll_s=0.02, heartbeat_s=0.05) as patient, stream(patient.me, DECISIONS) as events:
        patient.house.away = True
        assert await events.next() == ": keep-alive"
        for number in range(3):
            decided(patient, number)
        patient.house.forget(patient.house.log[1].seq)
        patient.house.away = False
        gap, event = await events.events(2)
        assert (gap.name, event.data["data"]["decision"]) == ("gap", "step 2")


async def test_events_come_without_live_messages(listener: tuple[HttpApi, str]) -> None:
    async with running(*listener, poll_s=0.02) as deaf:
        deaf.house.heard = lambda subject, headers: None
        async with stream(deaf.me, DECISIONS) as events:
            decided(deaf, 1)
            assert list(steps(await events.events(1))) == ["step 1"]


async def test_a_stream_outlives_an_absence_of_memory(listener: tuple[HttpApi, str]) -> None:
    async with running(*listener, poll_s=0.02, heartbeat_s=0.05) as patient, stream(patient.me, DECISIONS) as events:
        patient.house.away = True
        assert await events.next() == ": keep-alive"
        assert await events.next() == ": keep-alive"
        decided(patient, 1)
        patient.house.away = False
        assert list(steps(await events.events(1))) == ["step 1"]


def test_a_page_is_sent_in_parts() -> None:
    data = [f"id: {number}\n\n".encode() * 400 for number in range(500)]
    page = EncodedPage(tuple(EncodedEvent(number, each) for number, each in enumerate(data)), 500)
    parts = list(_parts(page, 0, _Pace(60.0)))
    assert b"".join(parts) == b"".join(data)
    assert max(map(len, parts)) < _PART_BYTES + max(map(len, data))
    assert len(parts) > 10


async def test_a_stream_ends_when_the_router_stops(front: RunningFront) -> None:
    async with stream(front.me, DECISIONS) as events:
        front.hub.close()
        assert await events.next() is None


async def test_a_stream_ends_when_its_principal_is_revoked(front: RunningFront) -> None:
    async with (
        front.as_principal("watcher", "read") as watcher,
        stream(watcher, DECISIONS) as events,
    ):
        assert (await front.me.delete("/v1/principals/watcher")).status_code == 200
        decided(front, 1)
        assert await events.next() is None


@pytest.mark.parametrize("path", [TASK, DECISIONS])
async def test_a_stream_of_a_revoked_token_ends_though_a_new_one_has_the_same_name(
    front: RunningFront, path: str
) -> None:
    new = {"name": "watcher", "kind": "person", "projects": ["*"], "roles": ["read"]}
    async with front.as_principal("watcher", "read") as watcher, stream(watcher, path) as events:
        assert (await front.me.delete("/v1/principals/watcher")).status_code == 200
        assert (await front.me.post("/v1/principals", json=new)).status_code == 201
        decided(front, 1)
        told = [event.data["data"].get("decision") async for event in until_end(events)]
    assert "step 1" not in told


@pytest.mark.parametrize("path", [TASK, DECISIONS])
async def test_only_readers_may_watch(front: RunningFront, path: str) -> None:
    async with front.as_principal("airflow", "submit", "report", "ingest", "operate", "audit") as airflow:
        response = await airflow.get(path)
    assert (response.status_code, response.json()["code"]) == (403, "role")
    async with front.as_principal("elsewhere", "read", projects=["billing"]) as elsewhere:
        response = await elsewhere.get(path)
    assert (response.status_code, response.json()["code"]) == (403, "role")


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "9" * 30])
async def test_an_invalid_last_event_id_is_refused(front: RunningFront, last: str) -> None:
    response = await front.me.get(TASK, headers={"Last-Event-ID": last})
    body: dict[str, Any] = response.json()
    assert (response.status_code, body["errors"][0]["field"]) == (422, "Last-Event-ID")


async def test_a_stream_ends_even_while_memory_owes_it_an_answer(
    front: RunningFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    owed = asyncio.Event()

    async def silent(*_: Any) -> bytes:
        owed.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with stream(front.me, DECISIONS) as events:
        monkeypatch.setattr(front.house, "transport", silent)
        decided(front, 1)
        await owed.wait()
        front.hub.close()
        assert await events.next() is None


async def test_a_stream_that_has_told_all_is_quiet(front: RunningFront, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    async def counted(subject: str, body: bytes, timeout_s: float) -> bytes:
        nonlocal asked
        asked += b"log_after" in body
        return await House.transport(front.house, subject, body, timeout_s)

    async with stream(front.me, DECISIONS) as events:
        monkeypatch.setattr(front.house, "transport", counted)
        decided(front, 1)
        await events.events(1)
        for _ in range(20):
            await front.me.get("/v1/tasks")
    assert asked <= 3
