"""Turns: of one project, what is decided about incidents is decided one after the other in a process.

Records are versioned, so that processes beside each other decide alike; within one process waiting costs less than a
conflict.
"""

import asyncio
from weakref import WeakValueDictionary

from counterpoint.lineage.events import Event, EventType, RunEvent
from counterpoint.lineage.incidents import Limits
from counterpoint.lineage.intake import is_large, take
from counterpoint.lineage.standing import STORE
from counterpoint.proto.memory import Commit
from counterpoint.recall import Memory

_DECIDED = frozenset({EventType.FAIL, EventType.COMPLETE})


class Turns:
    """One lock for each project in which something is being decided."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def take(self, event: Event, memory: Memory, limits: Limits, *, waited: bool = False) -> Commit:
        """The commit of an event; it is applied already where something is decided.

        Raises `Conflict`, `Denied` or `Transient`.
        """
        decided = isinstance(event, RunEvent) and event.type in _DECIDED
        if not decided and not is_large(event):
            commit = await take(event, memory, limits, waited=waited)
            if not any(write.store == STORE for write in commit.writes):
                return commit
        async with self._locks.setdefault(memory.project, asyncio.Lock()):
            commit = await take(event, memory, limits, waited=waited)
            if commit.writes or commit.messages:
                await memory.step(commit)
        return commit
