"""Pulls that stand, on the real server and across the accounts."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats.errors
import pytest
from bus.lone_bus import CONFIG, PASSWORDS, Bus, provisioned
from bus.rights import MINE
from bus.small_house import eventually
from nats.aio.client import Client
from nats.aio.msg import Msg

from counterpoint.bus.provision import provision
from counterpoint.bus.standing_pull import StandingPull, StandingPullContext
from counterpoint.bus.streams import ACK_WAIT_S
from counterpoint.local.nats import run_nats
from counterpoint.proto import subjects
from counterpoint.proto.tasks import SubmitTask, TaskDelegated

SUBJECT = subjects.of(TaskDelegated.TYPE, MINE)
LONG_S = 30.0


@pytest.fixture
async def lone_bus(tmp_path: Path) -> AsyncIterator[Bus]:
    async with provisioned(tmp_path, CONFIG) as server:
        yield server


@asynccontextmanager
async def pulling(bus: Bus, room: int = 50) -> "AsyncIterator[tuple[CountingClient, StandingPull]]":
    """The developer's login, and a pull of its consumer."""
    async with CountingClient() as developer:
        developer.asked = []
        await developer.connect(
            bus.url, user="developer", password=bus.passwords["developer"], inbox_prefix=b"_INBOX_developer"
        )
        pull = StandingPull(developer, subjects.TASKS, "developer", lambda: room)
        await pull.open()
        yield developer, pull


async def publish(bus: Bus, count: int) -> None:
    async with await bus.client("memory") as memory:
        for number in range(count):
            await memory.jetstream().publish(SUBJECT, str(number).encode())


async def consumer_counts(bus: Bus) -> tuple[int, int]:
    """Return the numbers of undelivered and unacknowledged messages of the developer's consumer."""
    async with await bus.client("provisioner") as client:
        info = await client.jetstream().consumer_info(subjects.TASKS, "developer")
        return info.num_pending or 0, info.num_ack_pending or 0


class CountingClient(Client):
    """A client that notes how much it asks for."""

    asked: list[int]

    async def publish(self, subject: str, payload: bytes = b"", *args: Any, **kwargs: Any) -> None:
        if ".MSG.NEXT." in subject:
            self.asked.append(json.loads(payload)["batch"])
        await super().publish(subject, payload, *args, **kwargs)


async def test_a_message_is_handed_on_at_once_however_many_were_asked_for(lone_bus: Bus) -> None:
    async with pulling(lone_bus) as (_, pull):
        asked = asyncio.create_task(pull.fetch(50, LONG_S))
        await publish(lone_bus, 1)
        async with asyncio.timeout(LONG_S / 3):
            (message,) = await asked
        assert message.data == b"0"


async def test_one_request_brings_many_messages_one_after_the_other(lone_bus: Bus) -> None:
    async with pulling(lone_bus) as (developer, pull):
        got: list[bytes] = []
        for number in range(5):
            asked = asyncio.create_task(pull.fetch(50, LONG_S))
            await publish(lone_bus, 1)
            for message in await asked:
                got.append(message.data)
                await message.ack_sync()
            assert len(got) == number + 1
    assert developer.asked == [50]


async def test_no_more_is_asked_for_than_there_is_room(lone_bus: Bus) -> None:
    await publish(lone_bus, 20)
    async with pulling(lone_bus, room=3) as (developer, pull):
        got = 0
        while got < 3:
            got += len(await pull.fetch(50, LONG_S))
        assert (got, await consumer_counts(lone_bus)) == (3, (17, 3))
    assert developer.asked == [3]


async def test_a_pull_without_room_takes_one_message(lone_bus: Bus) -> None:
    await publish(lone_bus, 2)
    async with pulling(lone_bus, room=0) as (_, pull):
        assert len(await pull.fetch(50, LONG_S)) == 1


async def test_a_request_that_runs_out_is_repeated(lone_bus: Bus) -> None:
    async with pulling(lone_bus) as (developer, pull):
        with pytest.raises(nats.errors.TimeoutError):
            await pull.fetch(50, 0.2)
        asked = asyncio.create_task(pull.fetch(50, LONG_S))
        await publish(lone_bus, 1)
        assert len(await asked) == 1
    assert len(developer.asked) == 2


async def test_received_messages_go_back_at_once_when_the_pull_ends(lone_bus: Bus) -> None:
    async with pulling(lone_bus) as (developer, pull):
        asked = asyncio.create_task(pull.fetch(3, LONG_S))
        await publish(lone_bus, 1)
        (first,) = await asked
        await publish(lone_bus, 2)
        await eventually(lambda: developer.stats["in_msgs"] == 3)
        await pull.unsubscribe()
        await first.ack_sync()
        await developer.flush()
    async with pulling(lone_bus) as (_, another):
        async with asyncio.timeout(2):
            again = await another.fetch(50, LONG_S)
            while len(again) < 2:
                again += await another.fetch(50, LONG_S)
    assert [message.metadata.sequence.stream for message in again] == [2, 3]


async def test_messages_in_the_queue_of_the_client_go_back_at_once(lone_bus: Bus) -> None:
    released = asyncio.Event()

    class SlowPull(StandingPull):
        async def _receive(self, message: Msg) -> None:
            await released.wait()
            await super()._receive(message)

    async with pulling(lone_bus) as (developer, pull):
        slow = SlowPull(developer, subjects.TASKS, "developer", lambda: 50)
        await slow.open()
        fetching = asyncio.create_task(slow.fetch(2, LONG_S))
        await publish(lone_bus, 2)
        await eventually(lambda: developer.stats["in_msgs"] == 2)
        fetching.cancel()
        ending = asyncio.create_task(slow.unsubscribe())
        await asyncio.sleep(0)
        released.set()
        await ending
        again: list[Msg] = []
        async with asyncio.timeout(ACK_WAIT_S / 2):
            while len(again) < 2:
                again += await pull.fetch(50, LONG_S)
    assert [message.metadata.sequence.stream for message in again] == [1, 2]


async def test_a_request_that_a_restarted_server_forgot_is_repeated(tmp_path: Path) -> None:
    async with run_nats(tmp_path, CONFIG) as server:
        await provision(server.url, "provisioner", PASSWORDS["provisioner"])
        bus = Bus(server.url, server.port, PASSWORDS)
        async with pulling(bus) as (developer, pull):
            asked = asyncio.create_task(pull.fetch(50, 0.5))
            await developer.flush()
            await server.restart()
            await publish(bus, 1)
            got: list[Msg] = []
            async with asyncio.timeout(LONG_S):
                while not got:
                    try:
                        got = await asked
                    except nats.errors.Error:
                        asked = asyncio.create_task(pull.fetch(50, 0.5))
            assert [message.data for message in got] == [b"0"]


async def test_no_pull_request_is_sent_while_the_server_is_away(tmp_path: Path) -> None:
    async with run_nats(tmp_path, CONFIG) as server:
        await provision(server.url, "provisioner", PASSWORDS["provisioner"])
        bus = Bus(server.url, server.port, PASSWORDS)
        async with pulling(bus, room=3) as (developer, pull):
            with pytest.raises(nats.errors.TimeoutError):
                await pull.fetch(50, 0.1)
            gone = asyncio.Event()
            developer._disconnected_cb = _setting(gone)
            asked = len(developer.asked)
            await server.stop()
            await gone.wait()
            for _ in range(3):
                with pytest.raises(nats.errors.TimeoutError):
                    await pull.fetch(50, 0.1)
            assert len(developer.asked) == asked
            await server.start()
            await publish(bus, 20)
            got: list[Msg] = []
            async with asyncio.timeout(LONG_S):
                while not got:
                    try:
                        got = await pull.fetch(50, LONG_S)
                    except nats.errors.TimeoutError:
                        continue
            assert len(got) <= 3


async def test_an_empty_message_from_outside_loses_none_that_follow(lone_bus: Bus) -> None:
    subject = subjects.of(SubmitTask.TYPE, MINE)
    async with await lone_bus.client("router") as router, await lone_bus.client("publisher") as publisher:
        pull = await StandingPullContext(router, lambda: 50).pull_subscribe(
            subject, stream=subjects.INTAKE, durable="router"
        )
        got: list[Msg] = []
        async with asyncio.timeout(ACK_WAIT_S * 3):
            for data in (b"", b"1", b"2"):
                await publisher.jetstream().publish(subject, data)
                for message in await pull.fetch(50, LONG_S):
                    await message.ack_sync()
                    got.append(message)
        assert [(message.data, message.metadata.num_delivered) for message in got] == [(b"", 1), (b"1", 1), (b"2", 1)]


def _setting(event: asyncio.Event) -> Any:
    async def called() -> None:
        event.set()

    return called
