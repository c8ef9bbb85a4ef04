"""Turns: ends of runs of one project are decided one after the other in a process.

Records are versioned, so that processes beside each other decide alike; within one process waiting costs less than a
conflict.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from counterpoint.lineage.events import Event, EventType, RunEvent

_DECIDED = frozenset({EventType.FAIL, EventType.COMPLETE})


class Turns:
    """One lock for each project in which something is being decided."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def taken(self, project: str, event: Event) -> AsyncIterator[bool]:
        """The turn of an event; whether there is something to be decided about it."""
        if not isinstance(event, RunEvent) or event.type not in _DECIDED:
            yield False
            return
        lock = self._locks.setdefault(project, asyncio.Lock())
        async with lock:
            yield True
