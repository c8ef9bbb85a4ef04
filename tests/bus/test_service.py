"""What a service does with its deliveries, on the real bus and the real memory."""

import asyncio
import itertools
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from bus.small_house import (
    ACK_WAIT_S,
    SmallHouse,
    alive,
    eventually,
    noted,
    opened,
    project,
    route,
    worked,
)
from nats.aio.msg import Msg

from counterpoint.bus import Service, delivery
from counterpoint.bus.codec import Inbound
from counterpoint.bus.delivery import LAST_DELIVERY
from counterpoint.proto import subjects
from counterpoint.proto.errors import Away, Permanent, Problem, Transient
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit, MessageDied, Outgoing
from counterpoint.proto.tasks import SubmitTask, TaskDelegated, TaskRejected, TaskRouted, TaskWorked
from counterpoint.recall import Memory, send

TOY = str(Path(__file__).with_name("toy.py"))


class Desk:
    """A manager's handler under a test's control: it notes each run, waits for `go`, then does as it is told."""

    def __init__(self, service: Service, then: Callable[[TaskRouted, Memory], Any] = lambda _, memory: noted(memory)):
        self.runs: list[tuple[str, int, int]] = []
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        self._then = then
        service.on(TaskRouted)(self.handle)

    async def handle(self, message: TaskRouted, memory: Memory) -> Commit:
        self.runs.append((message.task.description, memory.origin.fence & 0xFFFFF, memory.origin.run))
        self.entered.set()
        await self.go.wait()
        made = self._then(message, memory)
        commit: Commit = await made if isinstance(made, Awaitable) else made
        return commit

    def ran(self, description: str) -> int:
        return sum(1 for known, _, _ in self.runs if known == description)


async def actions(house: SmallHouse, place: str) -> int:
    count = "SELECT count(*) FROM records WHERE project = $1 AND store = 'actions'"
    return int(await house.record.fetchval(count, place))


async def all_acknowledged(house: SmallHouse, *names: str) -> None:
    """Nothing of these consumers of TASKS is waiting, under way or to be redelivered."""
    async with house.client("provisioner") as client:
        js = client.jetstream()

        async def rest() -> bool:
            infos = [await js.consumer_info(subjects.TASKS, name) for name in names]
            return all(not (info.num_ack_pending or info.num_pending) for info in infos)

        await eventually(rest, f"{names} to have acknowledged all")


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
        await all_acknowledged(house, "manager", "developer")
    assert not await house.dead_letters(place)


async def test_a_passing_fault_is_tried_again_later(house: SmallHouse, router: Service) -> None:
    manager, place = house.service("manager"), project()
    times: list[float] = []

    def twice(message: TaskRouted, memory: Memory) -> Commit:
        times.append(asyncio.get_running_loop().time())
        if len(times) < 3:
            raise Transient("busy", retry_after_s=0.3)
        return noted(memory)

    desk = Desk(manager, twice)
    desk.go.set()
    async with alive(manager):
        await route(router, place)
        await eventually(lambda: house.finished(place, "manager"))
        await all_acknowledged(house, "manager")
    assert len(times) == 3
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) >= 0.29
    assert not await house.dead_letters(place)


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
    assert [letter["code"] for letter in letters] == ["malformed", "too_large", "invalid", "invalid"]
    assert letters[0]["body"] == "{nothing"
    assert {problem["field"] for problem in letters[2]["problems"]} == {"kind", "description"}
    told = await house.sent(place, TaskRejected.TYPE)
    assert [message["code"] for message in told] == ["malformed", "too_large", "invalid", "invalid"]
    async with house.client("provisioner") as client:
        died = await client.jetstream().get_last_msg(subjects.DEAD, subjects.of(MessageDied.TYPE, place))
        assert b'"code":"invalid"' in (died.data or b"")
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

    desk = Desk(manager, stumble)
    desk.go.set()
    async with alive(manager):
        await route(router, place, "bad")
        await eventually(lambda: desk.ran("bad"))
        await route(router, place, "good")
        await eventually(lambda: actions(house, place))
        assert desk.ran("bad") < LAST_DELIVERY
        (letter,) = await eventually(lambda: house.dead_letters(place))
        await all_acknowledged(house, "manager")
    assert (letter["code"], letter["problems"][0]["problem"]) == ("unexpected", "KeyError")
    assert [number for known, number, _ in desk.runs if known == "bad"] == list(range(1, LAST_DELIVERY + 1))


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
        body = {"session_id": "s", "n": len(seen)}
        write = (
            noted(memory)
            .writes[0]
            .model_copy(update={"store": "sessions", "id": "s", "body": body, "expect": item.version if item else 0})
        )
        return Commit(writes=(write,))

    desk = Desk(manager, count_up)
    desk.go.set()
    async with alive(manager):
        await route(router, place)
        await eventually(lambda: house.finished(place, "manager"))
        await all_acknowledged(house, "manager")
    assert seen == [None, 1]
    assert [(number, run) for _, number, run in desk.runs] == [(1, 0), (1, 1)]


async def test_memory_killed_under_a_handler_delays_its_effect_and_does_not_double_it(
    house: SmallHouse, router: Service
) -> None:
    manager, place = house.service("manager"), project()
    desk = Desk(manager, opened)
    async with alive(manager):
        await route(router, place)
        await asyncio.wait_for(desk.entered.wait(), 10)
        await house.memory.kill()
        desk.go.set()
        await eventually(lambda: "memory" in manager.waiting_for())
        await house.memory.start()
        await eventually(lambda: house.finished(place, "manager"))
        await eventually(lambda: not manager.waiting_for())
        await all_acknowledged(house, "manager")
        assert len(await house.sent(place, TaskDelegated.TYPE)) == 1
    assert {number for _, number, _ in desk.runs} == {1}, "the delivery was kept, not repeated"
    assert await actions(house, place) == 1


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
    desk = Desk(manager, opened)
    desk.go.set()
    async with alive(manager):
        await route(router, place)
        await eventually(lambda: len(desk.runs) == 2)
        await all_acknowledged(house, "manager")
    assert lost
    assert await house.finished(place, "manager") == 1
    assert len(await house.sent(place, TaskDelegated.TYPE)) == 1


async def test_a_commit_that_never_gets_an_answer_does_not_hold_its_delivery_for_ever(
    house: SmallHouse, router: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, place = house.service("manager"), project()
    request = manager.connection.request
    desk = Desk(manager)
    desk.go.set()

    async def unanswered(subject: str, body: bytes, timeout_s: float) -> bytes:
        if subject == subjects.commit("manager") and desk.runs[-1][1] == 1:
            raise Away("memory fails on this one")
        return await request(subject, body, timeout_s)

    monkeypatch.setattr(manager.connection, "request", unanswered)
    async with alive(manager):
        await route(router, place)
        await eventually(lambda: house.finished(place, "manager"))
        await all_acknowledged(house, "manager")
    assert [(number, run) for _, number, run in desk.runs] == [*((1, run) for run in range(5)), (2, 0)]


async def test_the_trace_of_an_inbound_message_goes_on_with_what_it_causes(house: SmallHouse, router: Service) -> None:
    manager, developer, place = house.service("manager"), house.service("developer"), project()
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    passing: list[Msg] = []
    Desk(manager, opened).go.set()
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
    desk = Desk(manager)
    async with alive(manager):
        await route(router, place)
        await asyncio.wait_for(desk.entered.wait(), 10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(eventually(lambda: len(desk.runs) > 1), 2.2 * ACK_WAIT_S)
        desk.go.set()
        await eventually(lambda: house.finished(place, "manager"))
        await all_acknowledged(house, "manager")
    assert len(desk.runs) == 1


async def test_a_paused_worker_is_fenced_off_by_the_next_delivery(
    house: SmallHouse, router: Service, tmp_path: Path
) -> None:
    place, held, go = project(), tmp_path / "held", tmp_path / "held.go"
    manager = house.service("manager")
    Desk(manager, opened).go.set()
    manager.on(TaskWorked)(_nothing)
    first, second = house.process("developer", (TOY,)), house.service("developer")
    second.on(TaskDelegated)(_works)
    await first.start()
    try:
        async with alive(manager):
            await route(router, place, f"hold {held}")
            await eventually(held.exists)
            first.signal(signal.SIGSTOP)
            async with alive(second):
                await eventually(lambda: house.finished(place, "developer"))
                first.signal(signal.SIGCONT)
                await asyncio.to_thread(go.touch)
                await first.stop()
            await all_acknowledged(house, "manager", "developer")
        assert len(await house.sent(place, TaskWorked.TYPE)) == 1
        assert not await house.dead_letters(place)
    finally:
        await first.stop()


async def _nothing(message: TaskWorked, memory: Memory) -> Commit:
    return Commit()


async def _works(message: TaskDelegated, memory: Memory) -> Commit:
    return worked(message, memory)


async def test_a_message_of_an_older_task_version_is_stale(house: SmallHouse, router: Service) -> None:
    manager, place, task = house.service("manager"), project(), new_id()
    desk = Desk(manager, opened)
    await route(router, place, "first", task)
    await route(router, place, "second", task)
    desk.go.set()
    async with alive(manager):
        await eventually(lambda: len(desk.runs) >= 2)
        await all_acknowledged(house, "manager")
    assert len(await house.sent(place, TaskDelegated.TYPE)) == 1
    assert not await house.dead_letters(place)


async def test_a_message_of_a_later_task_version_waits_for_it(house: SmallHouse, router: Service) -> None:
    manager, place, task = house.service("manager"), project(), new_id()
    desk = Desk(manager)
    desk.go.set()
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
        await eventually(lambda: len(desk.runs) >= 2)
        assert not await house.finished(place, "manager")
        await house.record.execute(versions, place, 2)
        await eventually(lambda: house.finished(place, "manager"))
        await all_acknowledged(house, "manager")


async def test_stopping_finishes_what_is_under_way_and_takes_nothing_else(house: SmallHouse, router: Service) -> None:
    manager, place = house.service("manager"), project()
    desk = Desk(manager)
    async with alive(manager):
        await route(router, place, "first")
        await asyncio.wait_for(desk.entered.wait(), 10)
        manager.stop()
        await route(router, place, "second")
        await eventually(lambda: not manager.connection.broker.subscribers[0].running)
        desk.go.set()
    assert [known for known, _, _ in desk.runs] == ["first"]
    assert await house.finished(place, "manager") == 1
    later = house.service("manager")
    Desk(later).go.set()
    async with alive(later):
        await eventually(lambda: _finished(house, place, 2))
        await all_acknowledged(house, "manager")


async def _finished(house: SmallHouse, place: str, count: int) -> bool:
    return await house.finished(place, "manager") == count


async def test_a_handler_that_does_not_end_is_cut_off_after_the_drain_time(house: SmallHouse, router: Service) -> None:
    manager, place = house.service("manager", drain_s=0.2), project()
    desk = Desk(manager)
    async with alive(manager):
        await route(router, place)
        await asyncio.wait_for(desk.entered.wait(), 10)
    later = house.service("manager")
    Desk(later).go.set()
    async with alive(later):
        await eventually(lambda: house.finished(place, "manager"))
        await all_acknowledged(house, "manager")


async def test_sigterm_ends_a_service_cleanly(house: SmallHouse) -> None:
    process = house.process("developer", (TOY,))
    await process.start()
    process.signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.exited(), 15) == 0


async def test_a_service_that_loses_the_bus_is_not_ready_and_comes_back(house: SmallHouse, router: Service) -> None:
    manager, place = house.service("manager"), project()
    Desk(manager).go.set()
    async with alive(manager):
        await house.nats.kill()
        await eventually(lambda: "bus" in manager.waiting_for())
        with pytest.raises(Away):
            await manager.connection.request(subjects.query("manager"), b"{}", 5)
        await house.nats.start()
        await eventually(lambda: not manager.waiting_for() and not router.waiting_for())
        await eventually(lambda: house.memory.answers())
        await route(router, place)
        await eventually(lambda: house.finished(place, "manager"))


async def test_poison_that_kills_its_process_ends_in_the_dead_letters_and_stays_there(
    house: SmallHouse, router: Service
) -> None:
    manager, place = house.service("manager"), project()
    Desk(manager, opened).go.set()
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
        await eventually(lambda: not manager.waiting_for())
        await route(router, place, "fine")
        await eventually(lambda: _developed(house, place))
        assert victim.running, "the dead message was not delivered again"
        assert [one["code"] for one in await house.dead_letters(place) if one["consumer"] == "developer"] == [
            "max_deliveries"
        ]
    await victim.stop()


async def _developed(house: SmallHouse, place: str) -> bool:
    return len(await house.sent(place, TaskWorked.TYPE)) == 1
