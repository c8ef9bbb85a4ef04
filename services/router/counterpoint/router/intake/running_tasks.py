"""Running tasks: the limit of tasks that are started at once.

Above this limit more parallel tasks only add cost. A waiting task holds no resources, and only its own project queues
behind it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping

from counterpoint.bus.fair_limiter import FairLimiter
from counterpoint.proto.tasks import (
    TaskCancelled,
    TaskCompleted,
    TaskEscalated,
    TaskFailed,
    TaskProposed,
    TaskRejected,
    TaskSubmitted,
)

_STARTED = TaskSubmitted.TYPE
_ENDED = frozenset(
    each.TYPE for each in (TaskCompleted, TaskProposed, TaskEscalated, TaskFailed, TaskCancelled, TaskRejected)
)
LOAD_LIMIT_S = 10.0
"""Time after which a running task no longer counts: it waits for something outside, such as a model."""


class RunningTasks:
    """At most `limit` tasks started at once, shared fairly between projects with `weights`.

    A task counts for `LOAD_LIMIT_S` at most. Starts and ends, also those of other routers, come from live messages,
    which may be lost.
    """

    def __init__(self, limit: int, weights: Mapping[str, int] | None = None) -> None:
        self.limiter = FairLimiter(limit, weights, other_load=self._count)
        self._expiry: OrderedDict[str, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def on_message(self, _: str, headers: Mapping[str, str]) -> None:
        """Count the start or the end of a task that a live message announces."""
        message_type, task_id = headers.get("ce-type", ""), headers.get("ce-correlationid", "")
        if message_type == _STARTED:
            self._expiry[task_id] = asyncio.get_running_loop().time() + LOAD_LIMIT_S
            self._schedule()
        elif message_type in _ENDED and self._expiry.pop(task_id, None) is not None:
            self.limiter.admit()

    def _count(self) -> int:
        return len(self._expiry)

    def _schedule(self) -> None:
        if self._timer is None and self._expiry:
            first = next(iter(self._expiry.values()))
            self._timer = asyncio.get_running_loop().call_at(first, self._expire)

    def _expire(self) -> None:
        self._timer, now = None, asyncio.get_running_loop().time()
        while self._expiry and next(iter(self._expiry.values())) <= now:
            self._expiry.popitem(last=False)
        self._schedule()
        self.limiter.admit()
