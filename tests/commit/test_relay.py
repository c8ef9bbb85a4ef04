"""The relay sends what a service waits for before what is only announced."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from counterpoint.guard.capabilities import Keyring, SigningKey
from counterpoint.guard.policy import policy
from counterpoint.memory.commit import relay as relay_module
from counterpoint.memory.commit.committer import LoggedMessage
from counterpoint.memory.commit.relay import Relay
from counterpoint.memory.provenance.read_sets import OriginCache
from counterpoint.memory.record.plan import PlannedMessage
from counterpoint.memory.record.stamps import Provenance
from counterpoint.proto.ids import new_id


class Bus:
    """A bus that notes what is published, and acknowledges nothing."""

    def __init__(self) -> None:
        self.connected = False
        self.published: list[str] = []
        self.all = asyncio.Event()

    async def publish(self, subject: str, body: bytes, headers: dict[str, str]) -> asyncio.Future[Any]:
        self.published.append(subject)
        return asyncio.get_running_loop().create_future()

    async def announce(self, subject: str, body: bytes, headers: dict[str, str]) -> None:
        self.published.append(subject)
        if len(self.published) == 4:
            self.all.set()


def message(subject: str, *, live: bool) -> LoggedMessage:
    row = PlannedMessage(
        new_id(), "counterpoint.task.worked.v1", subject, "t-1", False, (), "{}", 1, 1, None, None, live=live
    )
    return LoggedMessage(row, "orders", "developer", new_id(), 1, None, Provenance())


async def test_messages_for_services_are_sent_before_the_reply_and_live_copies_after() -> None:
    bus, ring = Bus(), Keyring((SigningKey.generate(1),))
    given: Any = (None, bus, policy(), ring, OriginCache(10))
    relay = Relay(*given, sweep_age_s=2, capability_life_s=60)
    running = asyncio.create_task(relay.run())
    await asyncio.sleep(0)
    reply = asyncio.get_running_loop().create_future()

    async def answer() -> None:
        await reply
        bus.published.append("reply")

    answering = asyncio.create_task(answer())
    await asyncio.sleep(0)
    live = "decisions.orders.developer"
    relay.sent([message(live, live=True), message(live, live=True), message("tasks.orders.worked", live=False)])
    reply.set_result(None)
    await bus.all.wait()
    await answering
    assert bus.published == ["tasks.orders.worked", "reply", f"live.{live}", f"live.{live}"]
    running.cancel()
    await asyncio.wait({running})


class EmptyDatabase:
    """A record in which nothing is pending, that counts its sweeps."""

    def __init__(self) -> None:
        self.sweeps = 0
        self.swept = asyncio.Event()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator["EmptyDatabase"]:
        yield self

    async def fetch(self, *_: object) -> list[Any]:
        self.sweeps += 1
        self.swept.set()
        return []

    async def fetchrow(self, *_: object) -> dict[str, int]:
        return {"pending": 0, "due": 0}


async def test_a_record_with_nothing_pending_is_swept_again_after_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "REST_S", 3600.0)
    monkeypatch.setattr(relay_module, "SWEEP_EVERY_S", 0.0)
    bus, database, ring = Bus(), EmptyDatabase(), Keyring((SigningKey.generate(1),))
    bus.connected = True
    given: Any = (database, bus, policy(), ring, OriginCache(10))
    relay = Relay(*given, sweep_age_s=2, capability_life_s=60)
    running = asyncio.create_task(relay.run())
    for sweeps in (1, 2):
        for _ in range(100):
            await asyncio.sleep(0)
        assert database.sweeps == sweeps - 1, "at rest"
        relay.sent([message("tasks.orders.worked", live=False)])
        async with asyncio.timeout(30):
            await database.swept.wait()
        database.swept.clear()
    running.cancel()
    await asyncio.wait({running})
