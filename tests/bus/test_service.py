"""The life of a service: what it takes, how often, in which order, and how it ends, on the real bus and memory."""

import asyncio
import signal
from pathlib import Path

import pytest
from bus.gated_handler import GatedHandler
from bus.small_house import ACK_WAIT_S, TOY, SmallHouse, alive, eventually, opened, project, route, suspend, worked
from nats.aio.msg import Msg

from counterpoint.bus import Service
from counterpoint.client import Memory
from counterpoint.proto import subjects
from counterpoint.proto.errors import Away
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit, CommitReply
from counterpoint.proto.tasks import TaskDelegated, TaskRouted, TaskWorked


async def test_a_task_goes_through_three_services(house: SmallHouse, router: Service) -> None:
    manager, developer = house.service("manager"), house.service("developer")
    came_back = asyncio.Event()
    place = project()

    @manager.on(TaskRouted)
    async def routed(message: TaskRouted, memory: Memory) -> Commit:
        return opened(message, memory)

    @developer.on(TaskDelegated)
    async def delegated(message: TaskDelegated, memory: Memory) -> Commit:
        return worked(message, memory)

    @manager.on(TaskWorked)
    async def done(message: TaskWorked, memory: Memory) -> Commit:
        came_back.set()
        return Commit()

    async with alive(manager, developer):
        await route(router, place)
        await asyncio.wait_for(came_back.wait(), 10)
        await house.acknowledged("manager", "developer")
    assert not await house.dead_letters(place)


async def test_messages_keep_the_trace_of_their_cause(house: SmallHouse, router: Service) -> None:
    manager, developer, place = house.service("manager"), house.service("developer"), project()
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    passing: list[Msg] = []
    GatedHandler(manager, opened).go.set()
    manager.on(TaskWorked)(_nothing)
    developer.on(TaskDelegated)(_works)

    async def note(message: Msg) -> None:
        passing.append(message)

    async with alive(manager, developer), house.client("observer") as observer:
        await observer.subscribe(subjects.live(f"tasks.{place}.>"), cb=note)
        await observer.flush()
        await route(router, place, traceparent=trace)
        await eventually(lambda: len(passing) == 3)
    assert [(message.headers or {})["traceparent"] for message in passing] == [trace] * 3


async def test_a_handler_longer_than_the_ack_wait_and_three_reconciliations_runs_once(
    house: SmallHouse, router: Service
) -> None:
    manager, place = house.service("manager"), project()
    handler = GatedHandler(manager)
    async with alive(manager):
        await route(router, place)
        await asyncio.wait_for(handler.entered.wait(), 10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(eventually(lambda: len(handler.runs) > 1), 2.2 * ACK_WAIT_S)
        handler.go.set()
        await eventually(lambda: house.finished(place, "manager"))
        await house.acknowledged("manager")
    assert len(handler.runs) == 1


async def test_a_paused_worker_is_fenced_off_by_the_next_delivery(
    house: SmallHouse, router: Service, tmp_path: Path
) -> None:
    place, held, go = project(), tmp_path / "held", tmp_path / "held.go"
    manager = house.service("manager")
    GatedHandler(manager, opened).go.set()
    manager.on(TaskWorked)(_nothing)
    first, second = house.process("developer", (TOY,)), house.service("developer")
    second.on(TaskDelegated)(_works)
    await first.start()
    try:
        async with alive(manager):
            await route(router, place, f"hold {held}")
            await eventually(held.exists)
            await suspend(first)
            async with alive(second):
                await eventually(lambda: house.finished(place, "developer"))
                first.signal(signal.SIGCONT)
                await asyncio.to_thread(go.touch)
                await first.stop()
            await house.acknowledged("manager", "developer")
        assert len(await house.sent(place, TaskWorked.TYPE)) == 1
        assert not await house.dead_letters(place)
    finally:
        await first.stop()


async def _nothing(message: TaskWorked, memory: Memory) -> Commit:
    return Commit()


async def _works(message: TaskDelegated, memory: Memory) -> Commit:
    return worked(message, memory)


async def test_a_last_step_that_the_handler_has_applied_is_not_sent_again(
    house: SmallHouse, router: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, place = house.service("manager"), project()
    steps: list[str] = []
    step = Memory.step

    async def counted(memory: Memory, commit: Commit) -> CommitReply:
        steps.append(memory.origin.message_id)
        return await step(memory, commit)

    @manager.on(TaskRouted)
    async def routed(message: TaskRouted, memory: Memory) -> Commit:
        commit = opened(message, memory)
        await memory.step(commit)
        return commit

    monkeypatch.setattr(Memory, "step", counted)
    async with alive(manager):
        await route(router, place)
        await house.acknowledged("manager")
    assert len(steps) == len(set(steps))


async def test_a_message_of_an_older_task_version_is_stale(house: SmallHouse, router: Service) -> None:
    manager, place, task = house.service("manager"), project(), new_id()
    handler = GatedHandler(manager, opened)
    await route(router, place, "first", task)
    await route(router, place, "second", task)
    handler.go.set()
    async with alive(manager):
        await eventually(lambda: len(handler.runs) >= 2)
        await house.acknowledged("manager")
    assert len(await house.sent(place, TaskDelegated.TYPE)) == 1
    assert not await house.dead_letters(place)


async def test_a_message_of_a_later_task_version_waits_for_it(house: SmallHouse, router: Service) -> None:
    manager, place, task = house.service("manager"), project(), new_id()
    handler = GatedHandler(manager)
    handler.go.set()
    versions = "UPDATE records SET version = $2 WHERE project = $1 AND store = 'tasks'"
    await house.record.execute(
        "INSERT INTO records (project, store, id, version, seq, author, label, integrity, body, commit_id)"
        " VALUES ($1, 'tasks', $2, 2, 1, 'manager', 1, 2, '{}', gen_random_uuid())",
        place,
        task,
    )
    await route(router, place, "early", task)
    await house.record.execute(versions, place, 1)
    async with alive(manager):
        await eventually(lambda: len(handler.runs) >= 2)
        assert not await house.finished(place, "manager")
        await house.record.execute(versions, place, 2)
        await eventually(lambda: house.finished(place, "manager"))
        await house.acknowledged("manager")


async def test_stopping_finishes_the_work_under_way_and_takes_nothing_else(house: SmallHouse, router: Service) -> None:
    manager, place = house.service("manager"), project()
    handler = GatedHandler(manager)
    async with alive(manager):
        await route(router, place, "first")
        await asyncio.wait_for(handler.entered.wait(), 10)
        manager.stop()
        await route(router, place, "second")
        await eventually(lambda: not manager.connection.broker.subscribers[0].running)
        handler.go.set()
    assert [known for known, _, _ in handler.runs] == ["first"]
    assert await house.finished(place, "manager") == 1
    later = house.service("manager")
    GatedHandler(later).go.set()
    async with alive(later):
        await eventually(lambda: _finished(house, place, 2))
        await house.acknowledged("manager")


async def _finished(house: SmallHouse, place: str, count: int) -> bool:
    return await house.finished(place, "manager") == count


async def test_a_handler_that_does_not_end_is_cut_off_after_the_drain_time(house: SmallHouse, router: Service) -> None:
    manager, place = house.service("manager", drain_s=0.2), project()
    handler = GatedHandler(manager)
    async with alive(manager):
        await route(router, place)
        await asyncio.wait_for(handler.entered.wait(), 10)
    later = house.service("manager")
    GatedHandler(later).go.set()
    async with alive(later):
        await eventually(lambda: house.finished(place, "manager"))
        await house.acknowledged("manager")


async def test_sigterm_ends_a_service_cleanly(house: SmallHouse) -> None:
    process = house.process("developer", (TOY,))
    await process.start()
    process.signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.exited(), 15) == 0


async def test_a_service_that_loses_the_bus_is_not_ready_and_comes_back(house: SmallHouse, router: Service) -> None:
    manager, place = house.service("manager"), project()
    GatedHandler(manager).go.set()
    async with alive(manager):
        await house.nats.kill()
        await eventually(lambda: "bus" in manager.unready_reasons())
        with pytest.raises(Away):
            await manager.connection.request(subjects.query("manager"), b"{}", 5)
        await house.nats.start()
        await eventually(lambda: not manager.unready_reasons() and not router.unready_reasons())
        await eventually(lambda: house.memory.answers())
        await route(router, place)
        await eventually(lambda: house.finished(place, "manager"))
