"""The hub: who waits for something to happen, and the live messages that wake them.

A wake-up is a hint to look again and may be lost; whoever waits looks by itself now and then as well.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from counterpoint.proto import subjects
from counterpoint.proto.errors import Transient

Seen = TypeVar("Seen")

_HEARD = (subjects.TASKS.lower(), subjects.DECISIONS.lower())


class Listener:
    """One that waits. `clear` before looking, then `wait`: nothing that happens in between is missed."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()
        self._closed = asyncio.Event()

    @property
    def closed(self) -> bool:
        """Whether nothing more will come."""
        return self._closed.is_set()

    async def unless_closed(self, look: Coroutine[Any, Any, Seen]) -> Seen:
        """What looking finds. Raises `Transient` as soon as the hub closes, and what `look` raises."""
        looking, closing = asyncio.create_task(look), asyncio.create_task(self._closed.wait())
        try:
            await asyncio.wait({looking, closing}, return_when=asyncio.FIRST_COMPLETED)
            if looking.done():
                return looking.result()
            raise Transient("the router is stopping")
        finally:
            looking.cancel()
            closing.cancel()

    def clear(self) -> None:
        """Forget what has woken it so far."""
        if not self.closed:
            self._woken.clear()

    async def wait(self, timeout_s: float) -> None:
        """Return when woken, when the hub closes, or after `timeout_s`."""
        try:
            await asyncio.wait_for(self._woken.wait(), timeout_s)
        except TimeoutError:
            return

    def wake(self) -> None:
        """Look again."""
        self._woken.set()

    def close(self) -> None:
        """Nothing more will come."""
        self._closed.set()
        self._woken.set()


class Hub:
    """Listeners by project and task. When it has closed, every listener returns at once."""

    def __init__(self) -> None:
        self._listeners: dict[tuple[str, str | None], set[Listener]] = {}
        self.closed = False

    @contextmanager
    def listening(self, project: str, task_id: str | None = None) -> Iterator[Listener]:
        """A listener for one task, or for all that happens in a project."""
        listener = Listener()
        if self.closed:
            listener.close()
        beside = self._listeners.setdefault((project, task_id), set())
        beside.add(listener)
        try:
            yield listener
        finally:
            beside.discard(listener)
            if not beside:
                self._listeners.pop((project, task_id), None)

    def heard(self, subject: str, headers: Mapping[str, str]) -> None:
        """A live message passed by: wake whom it concerns."""
        _, stream, project, *_ = (*subject.split("."), "", "", "")
        if stream not in _HEARD:
            return
        for key in ((project, None), (project, headers.get("ce-correlationid"))):
            for listener in self._listeners.get(key, ()):
                listener.wake()

    def close(self) -> None:
        """End every wait and stream."""
        self.closed = True
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.close()
