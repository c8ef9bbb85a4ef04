"""Tasks under way: how many are begun at once, whichever door they came through.

What is begun beyond what the house can do in time is only done later, at more cost: so a task waits at the door, where
it costs nothing and its project alone is behind it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping

from counterpoint.bus.turns import Turns
from counterpoint.proto.tasks import (
    TaskCancelled,
    TaskCompleted,
    TaskEscalated,
    TaskFailed,
    TaskProposed,
    TaskRejected,
    TaskSubmitted,
)

_BEGUN = TaskSubmitted.TYPE
_DONE = frozenset(
    each.TYPE for each in (TaskCompleted, TaskProposed, TaskEscalated, TaskFailed, TaskCancelled, TaskRejected)
)
LASTS_S = 10.0
"""A task that has not come to its end by then waits for somebody, such as a model, and is no load."""


class UnderWay:
    """At most `limit` tasks begun at once, by turns of projects with `weights`; each counts for `LASTS_S` at most.

    It hears of tasks by live messages, which may be lost, and of those of other routers too.
    """

    def __init__(self, limit: int, weights: Mapping[str, int] | None = None) -> None:
        self.turns = Turns(limit, weights, beside=self._count)
        self._tasks: OrderedDict[str, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def heard(self, _: str, headers: Mapping[str, str]) -> None:
        """A live message passed by: a task has begun, or is no load any more."""
        message_type, task_id = headers.get("ce-type", ""), headers.get("ce-correlationid", "")
        if message_type == _BEGUN:
            self._tasks[task_id] = asyncio.get_running_loop().time() + LASTS_S
            self._look_again()
        elif message_type in _DONE and self._tasks.pop(task_id, None) is not None:
            self.turns.go_on()

    def _count(self) -> int:
        return len(self._tasks)

    def _look_again(self) -> None:
        if self._timer is None and self._tasks:
            first = next(iter(self._tasks.values()))
            self._timer = asyncio.get_running_loop().call_at(first, self._over)

    def _over(self) -> None:
        self._timer, now = None, asyncio.get_running_loop().time()
        while self._tasks and next(iter(self._tasks.values())) <= now:
            self._tasks.popitem(last=False)
        self._look_again()
        self.turns.go_on()
