"""Turns: so many at once. Those that wait are let in project by project: nobody waits behind the queue of another."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from counterpoint.proto.errors import Transient

_LATER_S = 1.0


class Turns:
    """At most `limit` turns at once, those that `beside` counts among them. A project alone has all of them.

    A project of weight 3 in `weights` is let in three times before it is the next one's turn; others have weight 1.
    """

    def __init__(
        self, limit: int, weights: Mapping[str, int] | None = None, beside: Callable[[], int] = lambda: 0
    ) -> None:
        self._limit = limit
        self._weights = weights or {}
        self._beside = beside
        self._taken = 0
        self._served = 0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Number of those that wait."""
        return sum(map(len, self._waiting.values()))

    def locked(self) -> bool:
        """Whether the next one has to wait."""
        return bool(self._waiting) or self._taken + self._beside() >= self._limit

    @asynccontextmanager
    async def turn(self, project: str, patience_s: float | None = None) -> AsyncIterator[None]:
        """Wait for a turn of the project, and have it. Raises `Transient` `busy` when it has not come in so long."""
        try:
            async with asyncio.timeout(patience_s):
                await self._take(project)
        except TimeoutError as late:
            raise Transient("busy", retry_after_s=_LATER_S) from late
        try:
            yield
        finally:
            self._taken -= 1
            self.go_on()

    def go_on(self) -> None:
        """Let in whoever there is room for; called by itself but when what is `beside` has become less."""
        while self._waiting and self._taken + self._beside() < self._limit:
            project, queue = next(iter(self._waiting.items()))
            granted = queue.popleft()
            if not granted.done():
                self._taken += 1
                self._served += 1
                granted.set_result(None)
            if not queue:
                self._waiting.pop(project)
                self._served = 0
            elif self._served >= self._weights.get(project, 1):
                self._waiting.move_to_end(project)
                self._served = 0

    async def _take(self, project: str) -> None:
        if not self.locked():
            self._taken += 1
            return
        granted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(project, deque()).append(granted)
        self.go_on()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._taken -= 1
                self.go_on()
            raise
