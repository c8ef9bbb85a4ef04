"""Wake-ups: requests that wait for changes, and the live messages that wake them.

A wake-up is a hint and may be lost, so waiting requests also poll.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from counterpoint.proto.errors import Transient

Result = TypeVar("Result")

UNWATCHED_S = 60.0
"""Seconds between two checks whether any request waits."""


class Watch(Protocol):
    """A subscription to live messages."""

    async def unsubscribe(self) -> None:
        """End it."""


class Listener:
    """A waiting request. Call `clear` before reading and `wait` after it, so that no change is missed."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self._closed = asyncio.Event()

    @property
    def closed(self) -> bool:
        """Whether the hub is closed."""
        return self._closed.is_set()

    async def until_closed(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Await `work` and return its result. Raises `Transient` when the hub closes first."""
        working, closing = asyncio.create_task(work), asyncio.create_task(self._closed.wait())
        try:
            await asyncio.wait({working, closing}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise Transient("the router is stopping")
        finally:
            working.cancel()
            closing.cancel()

    def clear(self) -> None:
        """Discard earlier wake-ups."""
        if not self.closed:
            self._woken.clear()

    async def wait(self, timeout_s: float) -> None:
        """Return at a wake-up, when the hub closes, or after `timeout_s`."""
        try:
            await asyncio.wait_for(self._woken.wait(), timeout_s)
        except TimeoutError:
            return

    def wake(self) -> None:
        """End the wait."""
        self._woken.set()

    def close(self) -> None:
        """End the wait and all later ones."""
        self._closed.set()
        self._woken.set()


class Hub:
    """Listeners by project and task. After `close` every wait returns at once."""

    def __init__(self) -> None:
        self._listeners: dict[tuple[str, str | None], set[Listener]] = {}
        self._listening = asyncio.Event()
        self.closed = False

    @contextmanager
    def listen(self, project: str, task_id: str | None = None) -> Iterator[Listener]:
        """Add a listener for one task, or for all changes in a project."""
        listener = Listener()
        if self.closed:
            listener.close()
        listeners = self._listeners.setdefault((project, task_id), set())
        listeners.add(listener)
        self._listening.set()
        try:
            yield listener
        finally:
            listeners.discard(listener)
            if not listeners:
                self._listeners.pop((project, task_id), None)
            if not self._listeners:
                self._listening.clear()

    def on_message(self, subject: str, headers: Mapping[str, str]) -> None:
        """Wake the listeners that a live message concerns."""
        project = subject.split(".")[2]
        for key in ((project, None), (project, headers.get("ce-correlationid"))):
            for listener in self._listeners.get(key, ()):
                listener.wake()

    async def watch_while_listening(self, watch: Callable[[], Awaitable[Watch]], idle_s: float = UNWATCHED_S) -> None:
        """Watch live messages from the first listener on, until none is left for a while.

        What a listener reads after its wake-up is asked for behind the subscription, on the same connection.
        """
        while True:
            await self._listening.wait()
            watched = await watch()
            for listeners in self._listeners.values():  # They may have missed messages.
                for listener in listeners:
                    listener.wake()
            while self._listening.is_set():  # noqa: ASYNC110
                await asyncio.sleep(idle_s)
            await watched.unsubscribe()

    def close(self) -> None:
        """End all waits and streams."""
        self.closed = True
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.close()
