"""Project locks: decisions about the incidents of one project run one at a time in a process.

Between processes the versions of records detect conflicts; within one process a lock is cheaper than a conflict.
"""

import asyncio
from weakref import WeakValueDictionary

from counterpoint.client import Memory
from counterpoint.lineage.event_commit import commit_for_event, is_large
from counterpoint.lineage.incidents.context import STORE
from counterpoint.lineage.incidents.incident import IncidentLimits
from counterpoint.lineage.openlineage.events import EventType, OpenLineageEvent, RunEvent
from counterpoint.proto.memory import Commit

_DECIDED = frozenset({EventType.FAIL, EventType.COMPLETE})


class ProjectLocks:
    """One lock for each project with a decision in progress."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def commit_for(
        self, event: OpenLineageEvent, memory: Memory, limits: IncidentLimits, *, waited: bool = False
    ) -> Commit:
        """Return the commit of an event; a commit that decides about incidents is applied already.

        Raises `Conflict`, `Denied` or `Transient`.
        """
        decided = isinstance(event, RunEvent) and event.type in _DECIDED
        if not decided and not is_large(event):
            commit = await commit_for_event(event, memory, limits, waited=waited)
            if not any(write.store == STORE for write in commit.writes):
                return commit
        async with self._locks.setdefault(memory.project, asyncio.Lock()):
            commit = await commit_for_event(event, memory, limits, waited=waited)
            if commit.writes or commit.messages:
                await memory.step(commit)
        return commit
