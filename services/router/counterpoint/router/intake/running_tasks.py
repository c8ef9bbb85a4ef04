"""Running tasks: the limit of tasks that are started at once.

Above this limit more parallel tasks only add cost. A waiting task holds no resources, and only its own project queues
behind it.
"""

import asyncio
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
"""Time after which a running task no longer counts: it waits for an external system, such as a model."""


class RunningTasks:
    """At most `limit` tasks started at once, shared fairly between projects with `weights`.

    A task counts for `LOAD_LIMIT_S` at most. Starts and ends, also those of other routers, come from live messages,
    which may be lost.
    """

    def __init__(self, limit: int, weights: Mapping[str, int] | None = None) -> None:
        self.limiter = FairLimiter(limit, weights, other_load=self._count)
        self._expiry_timers: dict[str, asyncio.TimerHandle] = {}

    def on_message(self, _: str, headers: Mapping[str, str]) -> None:
        """Count the start or the end of a task that a live message announces."""
        message_type, task_id = headers.get("ce-type", ""), headers.get("ce-correlationid", "")
        if message_type == _STARTED:
            if known := self._expiry_timers.pop(task_id, None):
                known.cancel()
            self._expiry_timers[task_id] = asyncio.get_running_loop().call_later(LOAD_LIMIT_S, self._end, task_id)
        elif message_type in _ENDED:
            self._end(task_id)

    def _count(self) -> int:
        return len(self._expiry_timers)

    def _end(self, task_id: str) -> None:
        if timer := self._expiry_timers.pop(task_id, None):
            timer.cancel()
            self.limiter.admit()
