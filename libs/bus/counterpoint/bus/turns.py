"""Turns: the order of the waiters of one project, by weight and due time, without starvation. Pure."""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")

WEIGHTS: Mapping[str, int] = {"low": 1, "normal": 2, "high": 4, "urgent": 8}
"""Shares of the starts of a project by priority, while tasks of each wait."""
HORIZON = timedelta(hours=1)
"""Time after its arrival at which a task without an earlier deadline is due, so that later ones do not overtake it for
ever."""


@dataclass(frozen=True, slots=True)
class Urgency:
    """The urgency of a waiter. Of waiters of one weight the earliest `due`, in seconds, is first.

    Weights share the turns: while waiters of weight 8 and of weight 1 wait, one turn of nine is of weight 1.
    """

    weight: int = 1
    due: float = 0.0


def urgency_of_task(priority: str, deadline: datetime | None, arrived_at: datetime) -> Urgency:
    """Return the urgency of a task."""
    due = arrived_at + HORIZON if deadline is None else min(max(deadline, arrived_at), arrived_at + HORIZON)
    return Urgency(WEIGHTS.get(priority, WEIGHTS["normal"]), due.timestamp())


class TurnQueue(Generic[T]):
    """Waiters in the order of their turns: smooth weighted round robin between weights.

    A weight that waits for n turns has a credit of n times the weight, less the sum of all waiting weights for each
    turn that it got; the highest credit is next. So the first of a weight waits for at most twice that sum of turns.
    """

    def __init__(self) -> None:
        self._queues: dict[int, list[tuple[float, int, T]]] = {}
        self._credits: dict[int, int] = {}
        self._arrivals = count()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def push(self, waiter: T, urgency: Urgency) -> None:
        """Add a waiter, behind those of its weight that are due as early."""
        self._credits.setdefault(urgency.weight, 0)
        heapq.heappush(self._queues.setdefault(urgency.weight, []), (urgency.due, next(self._arrivals), waiter))

    def pop(self) -> T:
        """Remove the next waiter. Raises `ValueError` without one."""
        for weight in self._credits:
            self._credits[weight] += weight
        weight = max(self._credits, key=lambda each: (self._credits[each], each))
        self._credits[weight] -= sum(self._credits)
        *_, waiter = heapq.heappop(self._queues[weight])
        if not self._queues[weight]:
            del self._queues[weight], self._credits[weight]
        return waiter
