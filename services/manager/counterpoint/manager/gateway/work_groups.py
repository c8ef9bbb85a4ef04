"""Groups of work: values that wait for the same records are processed together.

Group commit without a time window: while one group of a key is processed, the next gathers.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from counterpoint.proto.errors import Denied, Permanent

V = TypeVar("V")
R = TypeVar("R")


class WorkGroups(Generic[V, R]):
    """Processes values by key, in their order of arrival.

    `work` gets a group and returns the outcome of each value: its result, or the error that its caller gets. An error
    that it raises is that of all; after `Denied` or `Permanent`, which one value may have caused for the others, each
    value is processed alone. A group has at most `limit` values and a `weight` of at most `max_weight`, or one value.
    """

    def __init__(
        self,
        work: Callable[[Sequence[V]], Awaitable[Sequence[R | Exception]]],
        limit: int,
        weight: Callable[[V], int] = lambda _: 0,
        max_weight: int = 0,
    ) -> None:
        self._work = work
        self._limit = limit
        self._weight = weight
        self._max_weight = max_weight
        self._queues: dict[Hashable, deque[tuple[V, asyncio.Future[R]]]] = {}
        self._runners: dict[Hashable, asyncio.Task[None]] = {}

    async def process(self, key: Hashable, value: V) -> R:
        """Return the result of a value. Raises its error."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(key, deque()).append((value, future))
        if key not in self._runners:
            self._runners[key] = asyncio.create_task(self._run(key))
        return await future

    def close(self) -> None:
        """Cancel all work."""
        for runner in self._runners.values():
            runner.cancel()

    async def _run(self, key: Hashable) -> None:
        queue = self._queues[key]
        group: list[tuple[V, asyncio.Future[R]]] = []
        try:
            while group := self._next(queue):
                outcomes = await self._outcomes([value for value, _ in group])
                for (_, future), outcome in zip(group, outcomes, strict=True):
                    if future.done():
                        continue
                    if isinstance(outcome, Exception):
                        future.set_exception(outcome)
                    else:
                        future.set_result(outcome)
        finally:
            for _, future in (*group, *queue):
                future.cancel()
            del self._runners[key], self._queues[key]

    def _next(self, queue: "deque[tuple[V, asyncio.Future[R]]]") -> list[tuple[V, "asyncio.Future[R]"]]:
        group, weight = list[tuple[V, asyncio.Future[R]]](), 0
        while queue and len(group) < self._limit:
            value, future = queue[0]
            weight += self._weight(value)
            if group and weight > self._max_weight:
                break
            queue.popleft()
            if not future.done():
                group.append((value, future))
        return group

    async def _outcomes(self, values: Sequence[V]) -> Sequence[R | Exception]:
        (found,) = await asyncio.gather(self._work(values), return_exceptions=True)
        if isinstance(found, Denied | Permanent) and len(values) > 1:
            return [outcome for value in values for outcome in await self._outcomes([value])]
        if isinstance(found, Exception):
            return [found] * len(values)
        if isinstance(found, BaseException):
            raise found
        return found
