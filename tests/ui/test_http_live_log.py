"""Decisions that many clients watch are read once for all of them, and each keeps its own place and rights."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from agents.router_house import PROJECT, House
from ui.decision_streams import DECISIONS, decided, steps, stream
from ui.http_front import Events, RunningFront

from counterpoint.proto.errors import Denied, Transient
from counterpoint.router import live_log
from counterpoint.router.hub import Hub
from counterpoint.router.live_log import EncodedEvent, EncodedPage, LiveLog, LiveLogs

CLIENTS = 12


async def test_all_clients_get_each_decision_once_in_order_by_few_reads(
    front: RunningFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def counted(subject: str, body: bytes, timeout_s: float) -> bytes:
        nonlocal asked
        asked += b"log_after" in body
        return await House.transport(front.house, subject, body, timeout_s)

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(stream(front.me, DECISIONS)) for _ in range(CLIENTS)]
        monkeypatch.setattr(front.house, "transport", counted)
        for number in range(5):
            decided(front, number)
            told = await asyncio.gather(*(client.events(1) for client in clients))
            assert {tuple(steps(each)) for each in told} == {(f"step {number}",)}
    assert asked <= 15


async def test_a_client_that_comes_back_reads_missed_messages_and_then_goes_on_with_the_others(
    front: RunningFront,
) -> None:
    async with stream(front.me, DECISIONS) as steady:
        decided(front, 0)
        (first,) = await steady.events(1)
        for number in range(1, 30):
            decided(front, number)
        await steady.events(29)
        async with stream(front.me, DECISIONS, first.id) as late:
            assert list(steps(await late.events(29))) == [f"step {number}" for number in range(1, 30)]
            decided(front, 30)
            assert list(steps(await late.events(1))) == list(steps(await steady.events(1))) == ["step 30"]


async def test_clients_that_never_read_delay_no_other(front: RunningFront) -> None:
    """More is decided than the connections and their buffers hold."""
    host, port = front.url.removeprefix("http://").split(":")
    token = front.house.token_of("deaf", "read")
    request = f"GET {DECISIONS}?project={PROJECT} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n"
    writers = []
    for _ in range(CLIENTS):
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(request.encode())
        assert (await reader.readline()).split()[1] == b"200"
        writers.append(writer)
    async with stream(front.me, DECISIONS) as listening:
        for number in range(3000):
            decided(front, number)
        assert list(steps(await listening.events(3000))) == [f"step {number}" for number in range(3000)]
    for writer in writers:
        writer.transport.abort()


async def test_a_revoked_reader_ends_and_the_others_go_on(front: RunningFront) -> None:
    async with (
        front.as_principal("first", "read") as first,
        front.as_principal("second", "read") as second,
        stream(first, DECISIONS) as ended,
        stream(second, DECISIONS) as goes_on,
    ):
        assert (await front.me.delete("/v1/principals/first")).status_code == 200
        decided(front, 1)
        assert list(steps(await goes_on.events(1))) == ["step 1"]
        assert await _end(ended) is None


async def _end(events: Events) -> Any:
    told = await events.next()
    return None if told is None or (isinstance(told, str) and await events.next() is None) else told


def event(seq: int, size: int = 1) -> EncodedEvent:
    return EncodedEvent(seq, b"x" * size)


async def test_the_live_log_is_bounded_and_knows_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_log, "KEPT_EVENTS", 3)
    monkeypatch.setattr(live_log, "KEPT_BYTES", 10)
    live = LiveLog[Any](4)
    live.add(EncodedPage(tuple(event(seq) for seq in range(5, 10)), 12))
    assert (live.start, live.end) == (6, 12)
    assert [each.seq for each in live.after(7)] == [8, 9]
    live.add(EncodedPage((event(13, 10),), 13))
    assert (live.start, [each.seq for each in live.after(live.start)]) == (9, [13])
    live.add(EncodedPage((event(20),), 20, gap=True))
    assert (live.start, [each.seq for each in live.after(live.start)]) == (19, [20])
    waiting = asyncio.create_task(live.wait(20, 60))
    await asyncio.sleep(0)
    live.add(EncodedPage((), 21))
    await waiting


class Reader:
    """A subscriber that fails, or reads nothing."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked = asyncio.Event()

    async def read(self, after: int) -> EncodedPage:
        self.asked.set()
        if self.error is not None:
            raise self.error
        return EncodedPage((event(after + 1),) if after < 3 else (), max(after, 3))


async def test_the_live_log_is_read_with_the_rights_of_another_subscriber() -> None:
    logs, refused, other = LiveLogs[Reader](Hub(), 60), Reader(Denied("role", "read")), Reader()
    async with logs.subscribe("p", refused, 0) as live, logs.subscribe("p", other, 0) as same:
        assert same is live
        while live.end < 3:
            await live.wait(2, 60)
        assert live.end == 3
        assert (live.serves(refused), live.serves(other)) == (False, True)
    async with logs.subscribe("p", other, 7) as fresh:
        assert (fresh.start, fresh is live) == (7, False)


async def test_the_live_log_continues_when_memory_is_back() -> None:
    hub, reader = Hub(), Reader(Transient("away"))
    async with LiveLogs[Reader](hub, 60).subscribe("p", reader, 0) as live:
        await reader.asked.wait()
        reader.error = None
        hub.on_message("live.decisions.p.manager", {})
        await live.wait(0, 60)
        assert live.end == 3


async def test_decisions_are_watched_while_a_request_waits() -> None:
    hub, events = Hub(), asyncio.Queue[str]()

    class Subscription:
        async def unsubscribe(self) -> None:
            events.put_nowait("left")

    async def watch() -> Subscription:
        events.put_nowait("watched")
        return Subscription()

    watching = asyncio.create_task(hub.watch_while_listening(watch, idle_s=0))
    for _ in range(2):
        await asyncio.sleep(0)
        assert events.empty()
        with hub.listen("orders") as first:
            first.clear()
            assert await events.get() == "watched"
            await first.wait(60)
            with hub.listen("orders", "t1"):
                assert first._woken.is_set(), "it may have missed a message"
        assert await events.get() == "left"
    watching.cancel()
