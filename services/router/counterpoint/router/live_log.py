"""The end of a project's decision log, read once for all streams of it.

A reader holds the last events as they are sent. It reads what is new on behalf of one of its subscribers, when a live
message or the poll interval wakes it, and wakes all of them. Who asks for earlier events reads them itself.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog

from counterpoint.proto.errors import Denied, Transient
from counterpoint.router.hub import Hub

log = structlog.get_logger()

KEPT_EVENTS, KEPT_BYTES = 2000, 8 << 20
"""Limits of the events that a reader holds."""


@dataclass(frozen=True)
class EncodedEvent:
    """An event as it is sent, and its position in the log."""

    seq: int
    data: bytes


@dataclass(frozen=True)
class EncodedPage:
    """Events of the log up to the position `end`. `gap`: retention has deleted some before them."""

    events: tuple[EncodedEvent, ...]
    end: int
    gap: bool = False


class LogSubscriber(Protocol):
    """A stream that reads the log on behalf of its principal."""

    async def read(self, after: int) -> EncodedPage:
        """Return the events after a position. Raises `Transient`, and `Denied` once the principal may not read."""


S = TypeVar("S", bound=LogSubscriber)


class LiveLog(Generic[S]):
    """The last events of a log, from after `start` to `end`, and the subscribers it is read for."""

    def __init__(self, end: int) -> None:
        self.start = self.end = end
        self._events: deque[EncodedEvent] = deque()
        self._bytes = 0
        self._changed = asyncio.get_running_loop().create_future()
        self.subscribers: dict[int, S] = {}

    def after(self, position: int) -> tuple[EncodedEvent, ...]:
        """Return the events after a position between `start` and `end`."""
        fresh = []
        for event in reversed(self._events):
            if event.seq <= position:
                break
            fresh.append(event)
        return tuple(reversed(fresh))

    async def wait(self, position: int, timeout_s: float) -> None:
        """Return when the log goes on after a position, when it is closed, or after `timeout_s`."""
        if self.end <= position:
            await asyncio.wait((self._changed,), timeout=timeout_s)

    def add(self, page: EncodedPage) -> None:
        """Add what was read after `end`. After a gap only the events behind it are held."""
        if page.gap:
            self._events.clear()
            self._bytes = 0
            self.start = page.events[0].seq - 1 if page.events else page.end
        self._events.extend(page.events)
        self._bytes += sum(len(event.data) for event in page.events)
        while len(self._events) > KEPT_EVENTS or self._bytes > KEPT_BYTES:
            gone = self._events.popleft()
            self._bytes -= len(gone.data)
            self.start = gone.seq
        moved, self.end = page.end > self.end, max(self.end, page.end)
        if moved:
            self.wake()

    def serves(self, subscriber: S) -> bool:
        """Whether a subscriber may still read, as far as is known."""
        return id(subscriber) in self.subscribers

    def refuse(self, subscriber: S) -> None:
        """Serve a subscriber no more."""
        self.subscribers.pop(id(subscriber), None)
        self.wake()

    def wake(self) -> None:
        """End all waits."""
        changed, self._changed = self._changed, asyncio.get_running_loop().create_future()
        changed.set_result(None)


class LiveLogs(Generic[S]):
    """The live logs by project; each is read while it has subscribers."""

    def __init__(self, hub: Hub, poll_s: float) -> None:
        self._hub = hub
        self._poll_s = poll_s
        self._logs: dict[str, tuple[LiveLog[S], asyncio.Task[None]]] = {}

    @asynccontextmanager
    async def subscribe(self, project: str, subscriber: S, position: int) -> AsyncIterator[LiveLog[S]]:
        """Yield the live log of a project, which begins at `position` if it has no other subscriber."""
        if project not in self._logs:
            live = LiveLog[S](position)
            self._logs[project] = live, asyncio.create_task(self._follow(project, live))
        live, reading = self._logs[project]
        live.subscribers[id(subscriber)] = subscriber
        try:
            yield live
        finally:
            live.subscribers.pop(id(subscriber), None)
            if not live.subscribers and self._logs.get(project, (None,))[0] is live:
                del self._logs[project]
                reading.cancel()

    async def _follow(self, project: str, live: LiveLog[S]) -> None:
        """Read what is new until the hub closes or the last subscriber leaves."""
        with self._hub.listen(project) as listener:
            while not listener.closed:
                listener.clear()
                page = await self._next_page(project, live, listener.until_closed)
                if page is not None:
                    live.add(page)
                if page is None or not page.events:
                    await listener.wait(self._poll_s)
        live.wake()

    async def _next_page(
        self, project: str, live: LiveLog[S], until_closed: Callable[..., Awaitable[EncodedPage]]
    ) -> EncodedPage | None:
        """Read on behalf of a subscriber; of the next one if that may not read any more. None: try again later."""
        for subscriber in tuple(live.subscribers.values()):
            try:
                return await until_closed(subscriber.read(live.end))
            except Denied as denied:
                log.info("stream.ended", project=project, rule=denied.rule)
                live.refuse(subscriber)
            except Transient as error:
                log.info("stream.waits", project=project, reason=str(error))
                return None
        return None
