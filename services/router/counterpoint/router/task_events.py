"""Events of tasks on the bus: each planner adds to the commit what follows from an event outside."""

from collections.abc import Sequence
from typing import Protocol

from counterpoint.bus import Service
from counterpoint.client import Memory
from counterpoint.proto.memory import Commit
from counterpoint.proto.messages import Message
from counterpoint.router.finished_messages import FinishedMessages
from counterpoint.router.notify.events import CONSUMED


class EventPlanner(Protocol):
    """A part of the router that follows what happens to tasks."""

    async def plan(self, message: Message, memory: Memory) -> Commit:
        """Return the commit of what follows from an event."""


def attach(service: Service, planners: Sequence[EventPlanner], finished: FinishedMessages) -> None:
    """Handle events of tasks. Without a planner they are finished at once."""

    async def plan(message: Message, memory: Memory) -> Commit:
        commits = [await planner.plan(message, memory) for planner in planners]
        return Commit(
            writes=tuple(write for commit in commits for write in commit.writes),
            messages=tuple(sent for commit in commits for sent in commit.messages),
        )

    for message_type in CONSUMED:
        service.on(message_type)(finished.of(plan))
