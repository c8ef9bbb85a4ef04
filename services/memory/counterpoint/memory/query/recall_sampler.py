"""The recall that is seen: some searches that an index or a filter answered are compared with the exact answer.

In the background, one at a time, and not at all while requests wait: what it costs nobody feels, and what it does not
get to see is only missing in the sample.
"""

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable

import structlog
from prometheus_client import Gauge

from counterpoint.proto.errors import CounterpointError

log = structlog.get_logger()

RECALL = Gauge(
    "counterpoint_memory_recall_ratio",
    "Recall of searches against the exact answer, mean of the last samples",
    ["store", "plan"],
)
WINDOW = 200
"""Samples of a store and plan that the mean covers."""
PATIENCE_S = 10.0

Ids = frozenset[tuple[str, str]]
"""Project and id of what was found."""
Compare = Callable[[], Awaitable[tuple[Ids, Ids]]]


def recall(found: Ids, exact: Ids) -> float:
    """The share of the exact answer that was found; 1 where there is nothing to find."""
    return len(found & exact) / len(exact) if exact else 1.0


class RecallSampler:
    """Takes `share` of what it is offered, unless `busy`."""

    def __init__(self, share: float, busy: Callable[[], bool], choose: random.Random | None = None) -> None:
        self._share = share
        self._busy = busy
        self._choose = choose or random.Random()
        self._seen: defaultdict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=WINDOW))
        self._running: asyncio.Task[None] | None = None

    def offer(self, store: str, plan: str, compare: Compare) -> None:
        """A search was answered by this plan; `compare` finds again what it found, and the exact answer."""
        if self._running is not None or self._choose.random() >= self._share or self._busy():
            return
        self._running = asyncio.create_task(self._sample(store, plan, compare))
        self._running.add_done_callback(self._over)

    async def sampled(self) -> None:
        """Wait until the comparisons under way are done."""
        if self._running is not None:
            await asyncio.wait((self._running,))

    async def close(self) -> None:
        """Stop."""
        if self._running is not None:
            self._running.cancel()
            await self.sampled()

    async def _sample(self, store: str, plan: str, compare: Compare) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                found, exact = await compare()
        except (CounterpointError, TimeoutError) as error:
            log.info("recall.unsampled", store=store, plan=plan, reason=type(error).__name__)
            return
        seen = self._seen[store, plan]
        seen.append(recall(found, exact))
        RECALL.labels(store, plan).set(mean(seen))

    def _over(self, task: "asyncio.Task[None]") -> None:
        self._running = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("recall.failed", exc_info=error)


def mean(values: Iterable[float]) -> float:
    """The mean of at least one value."""
    values = tuple(values)
    return sum(values) / len(values)
