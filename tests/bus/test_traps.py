"""Traps of NATS and FastStream that were met, each on the real engine. Others are where their subject is tested."""

import asyncio
import json
import re
from importlib.resources import files
from typing import Any

import nats as nats_client
import nats.errors
import pytest
from bus.small_house import PASSWORDS, SmallHouse, alive, eventually, noted, opened, project, route, worked
from faststream import AckPolicy
from faststream.nats import JStream, NatsBroker, PullSub
from nats.aio.msg import Msg

from counterpoint.bus import Service
from counterpoint.client import Memory
from counterpoint.proto import subjects
from counterpoint.proto.errors import Denied
from counterpoint.proto.memory import Commit, Get, Origin
from counterpoint.proto.messages import utc_now
from counterpoint.proto.tasks import SubmitTask, TaskDelegated, TaskRouted, TaskWorked


async def test_faststream_alone_loses_a_message_whose_handler_fails(house: SmallHouse) -> None:
    """Why every subscriber of ours acknowledges by hand: the default policy ends the message at the first error."""
    place, failed = project(), asyncio.Event()
    address = house.nats.url.replace("://", f"://router:{PASSWORDS['router']}@")
    inbox = f"{subjects.inbox_prefix('router')}."
    broker = NatsBroker(address, inbox_prefix=inbox[:-1].encode(), logger=None)

    @broker.subscriber(
        subjects.of(SubmitTask.TYPE, "*"),
        durable="router",
        stream=JStream(subjects.INTAKE, declare=False),
        pull_sub=PullSub(batch_size=1, timeout=1.0),
        inbox_prefix=inbox.encode(),
    )
    async def handle(body: Any) -> None:
        failed.set()
        raise KeyError("any")

    async with house.client("publisher") as outsider, house.client("provisioner") as client:
        await broker.start()
        await outsider.jetstream().publish(subjects.of(SubmitTask.TYPE, place), b"{}")
        await asyncio.wait_for(failed.wait(), 10)

        async def gone() -> bool:
            info = await client.jetstream().consumer_info(subjects.INTAKE, "router")
            return not (info.num_ack_pending or info.num_pending)

        await eventually(gone)
        await broker.stop()


async def test_our_subscribers_acknowledge_by_hand_on_their_own_inbox(house: SmallHouse) -> None:
    manager = house.service("manager")
    manager.on(TaskRouted)(_noted)
    async with alive(manager):
        subscribers: list[Any] = list(manager.connection.broker.subscribers)
        assert {subscriber.ack_policy for subscriber in subscribers} == {AckPolicy.MANUAL}
        prefix = f"{subjects.inbox_prefix('manager')}."
        assert all(subscriber.subscription.inbox.startswith(prefix) for subscriber in subscribers)


async def _noted(message: TaskRouted, memory: Memory) -> Commit:
    return noted(memory)


async def test_a_handler_with_another_argument_that_has_a_default_runs(house: SmallHouse, router: Service) -> None:
    manager, place = house.service("manager"), project()

    async def handle(message: TaskRouted, memory: Memory, extra: int = 7) -> Commit:
        assert extra == 7
        return noted(memory)

    manager.on(TaskRouted)(handle)
    async with alive(manager):
        await route(router, place)
        await eventually(lambda: house.finished(place, "manager"))


async def test_a_message_that_the_duplicate_window_forgot_has_one_effect(house: SmallHouse, router: Service) -> None:
    manager, place, seen = house.service("manager"), project(), list[str]()
    passing: list[Msg] = []

    @manager.on(TaskRouted)
    async def routed(message: TaskRouted, memory: Memory) -> Commit:
        seen.append(memory.origin.message_id)
        return opened(message, memory)

    async def note(message: Msg) -> None:
        passing.append(message)

    async with alive(manager), house.client("observer") as observer, house.client("memory") as bus:
        await observer.subscribe(subjects.live(f"tasks.{place}.>"), cb=note)
        await observer.flush()
        await route(router, place)
        await eventually(lambda: house.sent(place, TaskDelegated.TYPE))
        original = await eventually(lambda: passing and passing[0])
        again = {**original.headers, "Nats-Msg-Id": "as if two minutes had passed"}
        for header in ("Nats-Subject", "Nats-Sequence", "Nats-Last-Sequence", "Nats-Stream", "Nats-Time-Stamp"):
            again.pop(header, None)
        ack = await bus.jetstream().publish(original.subject.removeprefix("live."), original.data, headers=again)
        assert not ack.duplicate
        await eventually(lambda: len(seen) == 2)
        await eventually(lambda: house.finished(place, "manager"))
    assert len(set(seen)) == 1
    assert len(await house.sent(place, TaskDelegated.TYPE)) == 1


async def test_the_same_failure_twice_is_two_messages(house: SmallHouse) -> None:
    service, place, seen = house.service("router"), project(), list[str]()

    @service.on(SubmitTask)
    async def submitted(message: SubmitTask, memory: Memory) -> Commit:
        if memory.origin.project == place:
            seen.append(memory.origin.message_id)
        return Commit()

    body = json.dumps({"kind": "troubleshoot", "description": "the same again"}).encode()
    async with alive(service), house.client("publisher") as outsider:
        for _ in range(2):
            await outsider.jetstream().publish(subjects.of(SubmitTask.TYPE, place), body)
        await eventually(lambda: len(seen) == 2)
    assert len(set(seen)) == 2


async def test_without_a_right_on_its_inbox_a_publisher_hears_nothing_though_its_message_is_stored(
    house: SmallHouse,
) -> None:
    service, place, seen = house.service("router"), project(), list[str]()

    @service.on(SubmitTask)
    async def submitted(message: SubmitTask, memory: Memory) -> Commit:
        if memory.origin.project == place:
            seen.append(message.description)
        return Commit()

    async def refused(error: Exception) -> None:
        pass

    task = subjects.of(SubmitTask.TYPE, place)
    async with alive(service), house.client("publisher") as ours:
        stranger = await nats_client.connect(
            house.nats.url, user="publisher", password=PASSWORDS["publisher"], error_cb=refused
        )
        with pytest.raises(nats.errors.TimeoutError):
            await stranger.jetstream(timeout=0.5).publish(task, b'{"kind": "question", "description": "deaf"}')
        await stranger.close()
        await ours.jetstream().publish(task, b'{"kind": "question", "description": "hears"}')
        await eventually(lambda: len(seen) == 2)
    assert sorted(seen) == ["deaf", "hears"]


async def test_a_capability_seen_on_the_live_copy_is_useless_to_whoever_sees_it(
    house: SmallHouse, router: Service
) -> None:
    """Republishing cannot strip a header; the token is bound to the service whose NATS login alone may use it."""
    manager, developer, place = house.service("manager"), house.service("developer"), project()
    gate, seen = asyncio.Event(), list[Msg]()

    @manager.on(TaskRouted)
    async def routed(message: TaskRouted, memory: Memory) -> Commit:
        return opened(message, memory)

    manager.on(TaskWorked)(_nothing)

    @developer.on(TaskDelegated)
    async def delegated(message: TaskDelegated, memory: Memory) -> Commit:
        await gate.wait()
        return worked(message, memory)

    async def note(message: Msg) -> None:
        seen.append(message)

    async with alive(manager, developer), house.client("observer") as observer:
        await observer.subscribe(subjects.live(subjects.of(TaskDelegated.TYPE, place)), cb=note)
        await observer.flush()
        await route(router, place)
        said = (await eventually(lambda: seen and seen[0])).headers
        stolen = Origin(
            message_id=said["ce-id"],
            fence=1 << 61,
            project=place,
            task_id=said["ce-correlationid"],
            capability=said["ce-capability"],
        )
        query = Get(store="tasks", id=said["ce-correlationid"])
        for thief in (manager, router):
            with pytest.raises(Denied) as caught:
                await Memory(thief.connection.request, thief.name, stolen, utc_now()).query(query)
            assert caught.value.rule == "audience"
        for subject in (subjects.query("developer"), subjects.query("observer")):
            with pytest.raises((nats.errors.TimeoutError, nats.errors.NoRespondersError)):
                await observer.request(subject, b"{}", timeout=0.3)
        gate.set()
        await eventually(lambda: house.sent(place, TaskWorked.TYPE))


async def _nothing(message: TaskWorked, memory: Memory) -> Commit:
    return Commit()


async def test_intake_messages_are_not_shown_live(house: SmallHouse) -> None:
    service, place, passing = house.service("router"), project(), list[str]()

    @service.on(SubmitTask)
    async def submitted(message: SubmitTask, memory: Memory) -> Commit:
        return Commit()

    async def note(message: Msg) -> None:
        passing.append(message.subject)

    async with alive(service), house.client("observer") as observer, house.client("publisher") as outsider:
        await observer.subscribe(subjects.live(f"*.{place}.>"), cb=note)
        await observer.flush()
        await outsider.jetstream().publish(subjects.of(SubmitTask.TYPE, place), b"{malformed, and maybe secret")
        await eventually(lambda: house.dead_letters(place))
        await observer.flush()
    assert not [subject for subject in passing if "intake" in subject or "dead" in subject]


def test_a_commit_does_not_scan_pending_messages() -> None:
    """It slows commits fourfold while the bus is away. The log and `pending` are written, and read by nobody there."""
    functions = files("counterpoint.memory.record").joinpath("migrations/functions.sql").read_text()
    commit = functions[functions.index("FUNCTION commit_steps") :]
    commit = commit[: commit.index("\nEND $$")]
    asked = [line for line in commit.splitlines() if re.search(r"(FROM|INTO|JOIN|UPDATE) pending", line)]
    assert asked
    assert all("INSERT INTO pending" in line or "DELETE FROM pending" in line for line in asked)
    assert all("cancelled" in block for block in commit.split("\n\n") if "FROM messages" in block)
