"""A concurrency limiter that is fair between projects: waiters are admitted round robin, project by project."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from counterpoint.bus.turns import TurnQueue, Urgency
from counterpoint.proto.errors import Transient

_RETRY_AFTER_S = 1.0
_NEXT = Urgency()


class FairLimiter:
    """At most `limit` slots in use, including the number that `other_load` returns. One project alone may use all.

    A project of weight 3 in `weights` is admitted three times before the next project is; the default weight is 1. The
    waiters of one project are admitted in the order of their turns.
    """

    def __init__(
        self, limit: int, weights: Mapping[str, int] | None = None, other_load: Callable[[], int] = lambda: 0
    ) -> None:
        self._limit = limit
        self._weights = weights or {}
        self._other_load = other_load
        self._taken = 0
        self._served = 0
        self._waiting: dict[str, TurnQueue[asyncio.Future[None]]] = {}
        """Waiters by project, in the order in which the projects are served."""

    @property
    def waiting(self) -> int:
        """Number of waiters."""
        return sum(map(len, self._waiting.values()))

    def locked(self) -> bool:
        """Whether the next caller has to wait."""
        return bool(self._waiting) or self._taken + self._other_load() >= self._limit

    @asynccontextmanager
    async def slot(self, project: str, timeout_s: float | None = None, urgency: Urgency = _NEXT) -> AsyncIterator[None]:
        """Hold a slot for the project. Raises `Transient` when none is free within `timeout_s` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._take(project, urgency)
        except TimeoutError as late:
            raise Transient("busy", retry_after_s=_RETRY_AFTER_S) from late
        try:
            yield
        finally:
            self._taken -= 1
            self.admit()

    def admit(self) -> None:
        """Admit waiters while slots are free. Callers need this only after `other_load` has fallen."""
        while self._waiting and self._taken + self._other_load() < self._limit:
            project, queue = next(iter(self._waiting.items()))
            granted = queue.pop()
            if not granted.done():
                self._taken += 1
                self._served += 1
                granted.set_result(None)
            if not queue:
                self._waiting.pop(project)
                self._served = 0
            elif self._served >= self._weights.get(project, 1):
                self._waiting[project] = self._waiting.pop(project)
                self._served = 0

    async def _take(self, project: str, urgency: Urgency) -> None:
        if not self.locked():
            self._taken += 1
            return
        granted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(project, TurnQueue()).push(granted, urgency)
        self.admit()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._taken -= 1
                self.admit()
            raise
