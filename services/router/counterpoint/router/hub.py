"""Wake-ups: requests that wait for changes, and the live messages that wake them.

A wake-up is a hint and may be lost, so waiting requests also poll.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from counterpoint.proto.errors import Transient

Result = TypeVar("Result")

WOKEN_BY: tuple[Literal["tasks", "decisions"], ...] = ("tasks", "decisions")
"""The kinds of live messages that concern a request."""


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
        self.closed = False

    @contextmanager
    def listen(self, project: str, task_id: str | None = None) -> Iterator[Listener]:
        """Add a listener for one task, or for all changes in a project."""
        listener = Listener()
        if self.closed:
            listener.close()
        listeners = self._listeners.setdefault((project, task_id), set())
        listeners.add(listener)
        try:
            yield listener
        finally:
            listeners.discard(listener)
            if not listeners:
                self._listeners.pop((project, task_id), None)

    def on_message(self, subject: str, headers: Mapping[str, str]) -> None:
        """Wake the listeners that a live message concerns."""
        project = subject.split(".")[2]
        for key in ((project, None), (project, headers.get("ce-correlationid"))):
            for listener in self._listeners.get(key, ()):
                listener.wake()

    def close(self) -> None:
        """End all waits and streams."""
        self.closed = True
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.close()
