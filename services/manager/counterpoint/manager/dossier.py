"""What the manager knows of one task when something happens to it: its record, and every attempt made at it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from counterpoint.manager.workflow import AWAITS_OUTCOME, WORKING, Place
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.decisions import Source
from counterpoint.proto.errors import Transient
from counterpoint.proto.memory import Get, Item, List
from counterpoint.proto.tasks import State, Task, WaitingFor
from counterpoint.recall import Memory, readable, record

RETRY_UNKNOWN_S = 0.2
"""A request may overtake the routing of its task, by milliseconds."""


@dataclass(frozen=True, slots=True)
class Dossier:
    """A task and its attempts by number, as they were read."""

    task: Task
    item: Item
    attempts: dict[int, tuple[Attempt, Item]]

    @property
    def place(self) -> Place:
        """Where the task stands in the workflow."""
        return place_of(self.task)

    @property
    def tried(self) -> tuple[Attempt, ...]:
        """The attempts, oldest first."""
        return tuple(attempt for attempt, _ in self.attempts.values())

    @property
    def next_attempt(self) -> int:
        """The number of the next attempt, from 1. A stop is none; one in work or proposed has taken its number."""
        taken = self.place in (WORKING, AWAITS_OUTCOME)
        return max([0, *self.attempts, *([self.task.attempt or 0] if taken else [])]) + 1

    @property
    def sources(self) -> tuple[Source, ...]:
        """What a decision on this dossier rests on."""
        items = (self.item, *(item for _, item in self.attempts.values()))
        return tuple(Source(store=item.store, id=item.id, version=item.version) for item in items)


def place_of(task: Task) -> Place:
    """Where a task stands in the workflow."""
    return Place(cast(State, task.state), cast(WaitingFor | None, task.waiting_for))


def dossier_of(task: Item, attempts: Sequence[Item]) -> Dossier:
    """The dossier made of the records."""
    known = sorted(((one, item) for item, one in readable(attempts, Attempt)), key=lambda pair: pair[0].attempt)
    return Dossier(record(task, Task), task, {attempt.attempt: (attempt, item) for attempt, item in known})


async def open_dossier(memory: Memory, task_id: str) -> Dossier:
    """Read the dossier of a task. Raises `Transient` when the task has no record yet."""
    attempts = List(store="attempts", task_id=task_id, ascending=True, limit=1000)
    tasks, first = await memory.query(Get(store="tasks", id=task_id), attempts)
    if not tasks.items:
        raise Transient(f"task {task_id} has no record yet", retry_after_s=RETRY_UNKNOWN_S)
    known = [item async for page in memory.pages(attempts, first) for item in page.items]
    return dossier_of(tasks.items[0], known)
