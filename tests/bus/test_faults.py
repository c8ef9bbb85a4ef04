"""Failed deliveries of a service, on the real bus and the real memory."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from bus.gated_handler import GatedHandler
from bus.small_house import TOY, SmallHouse, alive, eventually, noted, opened, project, route
from nats.aio.msg import Msg

from counterpoint.bus import Service, delivery
from counterpoint.bus.codec import Inbound
from counterpoint.bus.delivery import LAST_DELIVERY
from counterpoint.bus.heartbeat import Heartbeat
from counterpoint.client import Memory, put, send
from counterpoint.proto import subjects
from counterpoint.proto.errors import Away, Permanent, Problem, Transient
from counterpoint.proto.memory import Commit, MessageDied, Outgoing
from counterpoint.proto.messages import utc_now
from counterpoint.proto.sessions import SessionRecord
from counterpoint.proto.tasks import SubmitTask, TaskDelegated, TaskRejected, TaskRouted, TaskWorked


async def test_a_passing_fault_is_tried_again_later(
    house: SmallHouse, router: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the delay that it asks for: the server waits so long, or longer on a busy machine."""
    manager, place = house.service("manager"), project()
    delays, deliveries = list[float](), set[int]()
    nak = Msg.nak

    async def noted_nak(message: Msg, delay: float | None = None) -> None:
        delays.extend([delay] if delay is not None else [])
        await nak(message, delay=delay)

    def third_time(message: TaskRouted, memory: Memory) -> Commit:
        deliveries.add(memory.origin.fence)
        if len(deliveries) < 3:
            raise Transient("busy", retry_after_s=0.3)
        return noted(memory)

    monkeypatch.setattr(Msg, "nak", noted_nak)
    handler = GatedHandler(manager, third_time)
    handler.go.set()
    async with alive(manager):
        await route(router, place)
        await eventually(lambda: house.finished(place, "manager"))
        await house.acknowledged("manager")
    assert delays == [0.3, 0.3]
    # A run whose reply is late on a busy machine is repeated: within its delivery, and without another effect.
    assert len(deliveries) == 3
    assert await house.actions(place) == 1
    assert not await house.dead_letters(place)


async def test_a_message_that_comes_again_while_it_is_handled_is_not_begun_again(
    house: SmallHouse, router: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its heartbeats are late, as in a process without processor time. The next run would discard each earlier one."""
    monkeypatch.setattr(Heartbeat, "_beat", lambda _: None)
    manager, place = house.service("manager"), project()
    handler = GatedHandler(manager, opened)
    async with alive(manager):
        before = await _deliveries(house, "manager")
        await route(router, place)
        await eventually(lambda: _came(house, "manager", before + 3))
        handler.go.set()
        await eventually(lambda: house.finished(place, "manager"))
        await house.acknowledged("manager")
    assert [(number, run) for _, number, run in handler.runs] == [(1, 0)]
    assert not await house.dead_letters(place)


async def _deliveries(house: SmallHouse, consumer: str) -> int:
    async with house.client("provisioner") as client:
        return int((await client.jetstream().consumer_info(subjects.TASKS, consumer)).delivered.consumer_seq)


async def _came(house: SmallHouse, consumer: str, count: int) -> bool:
    return await _deliveries(house, consumer) >= count


async def test_an_unreadable_message_is_rejected_and_kept_and_delays_no_other(house: SmallHouse) -> None:
    service, place = house.service("router"), project()
    heard: list[str] = []

    def rejected(inbound: Inbound, error: Permanent) -> Sequence[Outgoing]:
        message = TaskRejected(stream_sequence=inbound.stream_sequence, code=error.code, errors=error.problems)
        return (send(message),)

    @service.on(SubmitTask)
    async def submitted(message: SubmitTask, memory: Memory) -> Commit:
        if message.description == "forbidden":
            raise Permanent("invalid", (Problem(field="description", problem="is forbidden"),))
        heard.append(message.description)
        return Commit()

    service.on_rejected(rejected)
    task = subjects.of(SubmitTask.TYPE, place)
    bodies = (
        b"{nothing",
        b"\xff\x00\x01" * 150_000,
        b'{"kind": 5, "description": ""}',
        b'{"kind": "question", "description": "forbidden"}',
        b'{"kind": "question", "description": "in order"}',
    )
    async with alive(service), house.client("publisher") as outsider:
        for body in bodies:
            await outsider.publish(task, body)
        await eventually(lambda: heard)
        letters = await eventually(lambda: _letters(house, place, 4))
    assert heard == ["in order"]
    assert sorted(letter["code"] for letter in letters) == ["invalid", "invalid", "malformed", "too_large"]
    assert [letter["body"] for letter in letters if letter["code"] == "malformed"] == ["{nothing"]
    assert {"kind", "description"} in [{problem["field"] for problem in letter["problems"]} for letter in letters]
    told = await house.sent(place, TaskRejected.TYPE)
    assert sorted(message["code"] for message in told) == ["invalid", "invalid", "malformed", "too_large"]
    async with house.client("provisioner") as client:
        died = await client.jetstream().get_last_msg(subjects.DEAD, subjects.of(MessageDied.TYPE, place))
        # Whichever was the last.
        assert json.loads(died.data or b"")["code"] in ("invalid", "malformed", "too_large")
        info = await client.jetstream().consumer_info(subjects.INTAKE, "router")
        assert info.num_ack_pending == 0


async def _letters(house: SmallHouse, place: str, count: int) -> list[dict[str, Any]] | None:
    letters = await house.dead_letters(place)
    return letters if len(letters) == count else None


async def test_an_unforeseen_fault_is_buried_at_the_last_delivery_and_delays_no_other(
    house: SmallHouse, router: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "DELAYS_S", (0.15,))
    manager, place = house.service("manager"), project()

    def stumble(message: TaskRouted, memory: Memory) -> Commit:
        if message.task.description == "bad":
            raise KeyError("what nobody foresaw")
        return noted(memory)

    handler = GatedHandler(manager, stumble)
    handler.go.set()
    async with alive(manager):
        await route(router, place, "bad")
        await eventually(lambda: handler.ran("bad"))
        await route(router, place, "good")
        await eventually(lambda: house.actions(place))
        assert handler.ran("bad") < LAST_DELIVERY
        (letter,) = await eventually(lambda: house.dead_letters(place))
        await house.acknowledged("manager")
    assert (letter["code"], letter["problems"][0]["problem"]) == ("unexpected", "KeyError")
    assert [number for known, number, _ in handler.runs if known == "bad"] == list(range(1, LAST_DELIVERY + 1))


async def test_on_a_conflict_the_handler_reads_and_decides_anew(house: SmallHouse, router: Service) -> None:
    manager, place = house.service("manager"), project()
    seen: list[int | None] = []

    async def count_up(message: TaskRouted, memory: Memory) -> Commit:
        item = await memory.get("sessions", "s")
        seen.append(item.version if item else None)
        if len(seen) == 1:
            await house.record.execute(
                "INSERT INTO records (project, store, id, version, seq, author, label, integrity, body, commit_id)"
                " VALUES ($1, 'sessions', 's', 1, 1, 'manager', 1, 2, '{}', gen_random_uuid())",
                place,
            )
        now = utc_now()
        session = SessionRecord(
            session_id="s", project=place, task_ids=(message.task_id,), summary="", opened_at=now, continued_at=now
        )
        return Commit(writes=(put("sessions", "s", session, item),))

    handler = GatedHandler(manager, count_up)
    handler.go.set()
    async with alive(manager):
        await route(router, place)
        await eventually(lambda: house.finished(place, "manager"))
        await house.acknowledged("manager")
    assert seen == [None, 1]
    assert [(number, run) for _, number, run in handler.runs] == [(1, 0), (1, 1)]


async def test_memory_killed_under_a_handler_delays_its_effect_and_does_not_double_it(
    house: SmallHouse, router: Service
) -> None:
    manager, place = house.service("manager"), project()
    handler = GatedHandler(manager, opened)
    async with alive(manager):
        await route(router, place)
        await asyncio.wait_for(handler.entered.wait(), 10)
        await house.memory.kill()
        handler.go.set()
        await eventually(lambda: "memory" in manager.unready_reasons())
        await house.memory.start()
        await eventually(lambda: house.finished(place, "manager"))
        await eventually(lambda: not manager.unready_reasons())
        await house.acknowledged("manager")
        assert len(await house.sent(place, TaskDelegated.TYPE)) == 1
    assert {number for _, number, _ in handler.runs} == {1}, "the delivery was kept, not repeated"
    assert await house.actions(place) == 1


async def test_a_commit_whose_reply_was_lost_is_applied_once(
    house: SmallHouse, router: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, place = house.service("manager"), project()
    request, lost = manager.connection.request, []

    async def lossy(subject: str, body: bytes, timeout_s: float) -> bytes:
        reply = await request(subject, body, timeout_s)
        if subject == subjects.commit("manager") and not lost:
            lost.append(reply)
            raise Away("the reply was lost")
        return reply

    monkeypatch.setattr(manager.connection, "request", lossy)
    handler = GatedHandler(manager, opened)
    handler.go.set()
    async with alive(manager):
        await route(router, place)
        await eventually(lambda: len(handler.runs) == 2)
        await house.acknowledged("manager")
    assert lost
    assert await house.finished(place, "manager") == 1
    assert len(await house.sent(place, TaskDelegated.TYPE)) == 1


async def test_a_commit_that_never_gets_an_answer_does_not_hold_its_delivery_for_ever(
    house: SmallHouse, router: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, place = house.service("manager"), project()
    request = manager.connection.request
    handler = GatedHandler(manager)
    handler.go.set()

    async def unanswered(subject: str, body: bytes, timeout_s: float) -> bytes:
        if subject == subjects.commit("manager") and handler.runs[-1][1] == 1:
            raise Away("memory fails on this one")
        return await request(subject, body, timeout_s)

    monkeypatch.setattr(manager.connection, "request", unanswered)
    async with alive(manager):
        await route(router, place)
        await eventually(lambda: house.finished(place, "manager"))
        await house.acknowledged("manager")
    assert [(number, run) for _, number, run in handler.runs] == [*((1, run) for run in range(5)), (2, 0)]


async def test_poison_that_kills_its_process_ends_in_the_dead_letters_and_stays_there(
    house: SmallHouse, router: Service
) -> None:
    manager, place = house.service("manager"), project()
    GatedHandler(manager, opened).go.set()
    victim = house.process("developer", (TOY,))
    deaths = 0
    async with alive(manager):
        await route(router, place, "die")
        while not await house.dead_letters(place):
            if not victim.running:
                deaths += 1
                assert deaths < 10
                await victim.spawn()
            await asyncio.wait([asyncio.create_task(victim.exited())], timeout=0.1)
        (letter,) = await house.dead_letters(place)
        assert (letter["code"], letter["consumer"]) == ("max_deliveries", "developer")
        await victim.until_ready(30)
        await house.wipe_bus()
        await eventually(lambda: not manager.unready_reasons() and not router.unready_reasons())
        await route(router, place, "fine")
        await eventually(lambda: _developed(house, place))
        assert victim.running, "the dead message was not delivered again"
        assert [one["code"] for one in await house.dead_letters(place) if one["consumer"] == "developer"] == [
            "max_deliveries"
        ]
    await victim.stop()


async def _developed(house: SmallHouse, place: str) -> bool:
    return len(await house.sent(place, TaskWorked.TYPE)) == 1
