"""The bus may lose all it holds: what the record says waits is delivered all the same, once."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from bus.gated_handler import GatedHandler
from bus.small_house import (
    ACK_WAIT_S,
    DEVELOPER_MAX_DELIVER,
    SmallHouse,
    alive,
    eventually,
    noted,
    opened,
    project,
    route,
    suspend,
)
from nats.aio.msg import Msg

from counterpoint.bus import Service
from counterpoint.bus.streams import stream_specs
from counterpoint.client import Memory, send
from counterpoint.memory.settings import MemorySettings
from counterpoint.proto import subjects
from counterpoint.proto.memory import Commit, Origin
from counterpoint.proto.messages import utc_now
from counterpoint.proto.tasks import TaskDelegated, TaskDue, TaskRouted

WAITING = 200
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def test_a_wiped_bus_strands_no_waiting_message(house: SmallHouse, router: Service) -> None:
    place, busy = project(), asyncio.Semaphore(20)

    async def one(number: int) -> None:
        async with busy:
            await route(router, place, str(number), traceparent=TRACE)

    await asyncio.gather(*(one(number) for number in range(WAITING)))
    await eventually(lambda: _nothing_pending(house))
    await house.wipe_bus()
    manager = house.service("manager")
    seen: list[str] = []
    traces = set[str | None]()

    @manager.on(TaskRouted)
    async def routed(message: TaskRouted, memory: Memory) -> Commit:
        if message.project == place:
            seen.append(message.task.description)
            traces.add(memory.origin.traceparent)
        return noted(memory)

    async with alive(manager):
        await eventually(lambda: _finished(house, place, WAITING))
        assert await house.actions(place) == WAITING
    assert set(seen) == {str(number) for number in range(WAITING)}
    assert traces == {TRACE}


def test_a_capability_lives_as_long_as_its_message_may_wait() -> None:
    life_s = MemorySettings.model_fields["capability_life_s"].default
    assert life_s > max(spec.max_age_s for spec in stream_specs())


async def _nothing_pending(house: SmallHouse) -> bool:
    return not await house.unfinished()


async def _finished(house: SmallHouse, place: str, count: int) -> bool:
    return await house.finished(place, "manager") == count


def _ringing(manager: Service, place: str, due_s: float, count: int, seen: list[str]) -> None:
    """A manager that sets `count` timers for a routed task and notes those that come due in this project.

    A bus that was killed may hand out again what another project has finished."""

    @manager.on(TaskRouted)
    async def routed(message: TaskRouted, memory: Memory) -> Commit:
        due_at = utc_now() + timedelta(seconds=due_s)
        timers = tuple(
            send(TaskDue(task_id=message.task_id, timer=f"t{n}"), due_at=due_at, timer=f"{message.task_id}.t{n}")
            for n in range(count)
        )
        made = opened(message, memory)
        return made.model_copy(update={"messages": timers})

    @manager.on(TaskDue)
    async def due(message: TaskDue, memory: Memory) -> Commit:
        if memory.project == place:
            seen.append(message.timer)
        return noted(memory)


async def test_a_delivery_of_a_wiped_bus_is_not_acknowledged_to_the_next(
    house: SmallHouse, router: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, manager, said = project(), house.service("manager"), list[tuple[str, int]]()
    handler = GatedHandler(manager)

    def noted_as(kind: str, real: Any) -> Any:
        async def told(message: Msg, *args: Any, **kwargs: Any) -> Any:
            said.append((kind, message.metadata.timestamp.timestamp()))
            return await real(message, *args, **kwargs)

        return told

    for kind in ("ack", "nak", "in_progress"):
        monkeypatch.setattr(Msg, kind, noted_as(kind, getattr(Msg, kind)))
    async with alive(manager):
        await route(router, place)
        await handler.entered.wait()
        wiped_at = utc_now().timestamp()
        await house.wipe_bus()
        said.clear()
        handler.go.set()
        await eventually(lambda: house.finished(place, "manager"))
        # The finished message need not be in the new stream, so another one is acknowledged there.
        await eventually(lambda: router.connection.connected)
        await route(router, place)
        await eventually(lambda: any(kind == "ack" for kind, _ in said))
    assert all(stored_at >= wiped_at for _, stored_at in said)


async def test_ten_waiting_timers_survive_a_wiped_bus(house: SmallHouse, router: Service) -> None:
    place, manager, seen = project(), house.service("manager"), list[str]()
    _ringing(manager, place, 4.0, 10, seen)
    async with alive(manager):
        await route(router, place)
        await eventually(lambda: house.finished(place, "manager"))
        await house.wipe_bus()
        assert not seen
        await eventually(lambda: _finished(house, place, 11))
    assert set(seen) == {f"t{n}" for n in range(10)}
    noted_once = "SELECT count(*) FROM records WHERE project = $1 AND store = 'actions' AND version = 1"
    assert await house.record.fetchval(noted_once, place) == 11


async def test_a_message_lost_between_sending_and_storing_is_sent_again(house: SmallHouse, router: Service) -> None:
    place, manager, seen = project(), house.service("manager"), list[str]()
    _ringing(manager, place, 1.0, 1, seen)
    async with alive(manager):
        await route(router, place)
        await eventually(lambda: house.finished(place, "manager"))
        await suspend(house.nats)
        overdue = "SELECT count(*) FROM pending WHERE project = $1 AND due_at < now() - interval '1 second'"
        await eventually(lambda: house.record.fetchval(overdue, place))
        await house.nats.kill()
        await house.nats.start()
        await eventually(lambda: _finished(house, place, 2))
    assert seen == ["t0"]


async def test_a_message_finished_otherwise_is_acknowledged_without_effect(house: SmallHouse, router: Service) -> None:
    place, manager = project(), house.service("manager")
    reply = await route(router, place)
    await house.record.execute(
        "INSERT INTO inbox (project, consumer, message_id, step, last, fence, outcome, reply)"
        " VALUES ($1, 'manager', $2, 'cancelled', true, 0, 'cancelled', '{\"status\": \"stale\"}')",
        place,
        reply.message_ids[0],
    )
    runs: list[str] = []

    @manager.on(TaskRouted)
    async def routed(message: TaskRouted, memory: Memory) -> Commit:
        runs.append(message.task_id)
        return opened(message, memory)

    async with alive(manager), house.client("provisioner") as client:
        await eventually(lambda: runs)

        async def acknowledged() -> bool:
            return (await client.jetstream().consumer_info(subjects.TASKS, "manager")).num_ack_pending == 0

        await eventually(acknowledged)
    assert not await house.sent(place, TaskDelegated.TYPE)


async def test_a_finished_message_with_lost_acks_becomes_no_dead_letter(house: SmallHouse, router: Service) -> None:
    place, manager, developer = project(), house.service("manager"), house.service("developer")

    @manager.on(TaskRouted)
    async def routed(message: TaskRouted, memory: Memory) -> Commit:
        return opened(message, memory)

    async with alive(manager, developer), house.client("provisioner") as client:
        js = client.jetstream()
        advised = (await js.stream_info(subjects.ADVISORIES)).state.messages
        await route(router, place)
        pull = await developer.connection.client.jetstream().pull_subscribe_bind(
            "developer", subjects.TASKS, inbox_prefix=f"{subjects.inbox_prefix('developer')}.".encode()
        )
        (first,) = await pull.fetch(1, timeout=10)
        said = first.headers or {}
        origin = Origin(
            message_id=said["ce-id"],
            fence=1,
            project=place,
            task_id=said["ce-correlationid"],
            capability=said["ce-capability"],
        )
        memory = Memory(developer.connection.request, "developer", origin, utc_now())
        assert (await memory.step(Commit())).status == "done"
        for _ in range(DEVELOPER_MAX_DELIVER - 1):
            await pull.fetch(1, timeout=10)
        with pytest.raises(TimeoutError):
            await pull.fetch(1, timeout=2 * ACK_WAIT_S)
        await pull.unsubscribe()

        async def told() -> bool:
            return (await js.stream_info(subjects.ADVISORIES)).state.messages > advised

        async def heard() -> bool:
            info = await js.consumer_info(subjects.ADVISORIES, "memory")
            return not (info.num_pending or info.num_ack_pending)

        await eventually(told)
        await eventually(heard)
        assert not await house.dead_letters(place)
        assert house.memory.running
