"""Recall sampler: some searches by an index or with a filter are compared with the exact result.

It runs in the background, one comparison at a time, and not while requests wait, so that it delays no request. Skipped
searches are only missing in the sample.
"""

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable

import structlog
from prometheus_client import Gauge

from counterpoint.proto.errors import CounterpointError
from counterpoint.proto.memory import QueryPlan, RecallHealth

log = structlog.get_logger()

RECALL = Gauge(
    "counterpoint_memory_recall_ratio",
    "Recall of searches against the exact answer, mean of the last samples",
    ["store", "plan"],
)
WINDOW = 200
"""Samples of a store and plan in the mean."""
COMPARE_TIMEOUT_S = 10.0

Ids = frozenset[tuple[str, str]]
"""Project and id of each hit."""
Compare = Callable[[], Awaitable[tuple[Ids, Ids]]]


def recall(found: Ids, exact: Ids) -> float:
    """Return the share of the exact result that was found; 1 if the exact result is empty."""
    return len(found & exact) / len(exact) if exact else 1.0


class RecallSampler:
    """Samples a `share` of the searches offered, unless `busy`."""

    def __init__(self, share: float, busy: Callable[[], bool], choose: random.Random | None = None) -> None:
        self._share = share
        self._busy = busy
        self._choose = choose or random.Random()
        self._samples: defaultdict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=WINDOW))
        self._running: asyncio.Task[None] | None = None

    @property
    def share(self) -> float:
        """The share of the searches that is sampled."""
        return self._share

    def means(self) -> tuple[RecallHealth, ...]:
        """Return the mean recall and the number of samples by store and plan."""
        sampled = sorted(self._samples.items())
        return tuple(
            RecallHealth(store=store, plan=plan, ratio=mean(samples), samples=len(samples))
            for (store, plan), samples in sampled
        )

    def offer(self, store: str, plan: QueryPlan, compare: Compare) -> None:
        """Offer a search by a plan; `compare` repeats it and returns its result and the exact one."""
        if self._running is not None or self._choose.random() >= self._share or self._busy():
            return
        self._running = asyncio.create_task(self._sample(store, plan, compare))
        self._running.add_done_callback(self._over)

    async def sampled(self) -> None:
        """Wait until the comparisons under way are done."""
        if self._running is not None:
            await asyncio.wait((self._running,))

    async def close(self) -> None:
        """Cancel the comparisons under way."""
        if self._running is not None:
            self._running.cancel()
            await self.sampled()

    async def _sample(self, store: str, plan: QueryPlan, compare: Compare) -> None:
        try:
            async with asyncio.timeout(COMPARE_TIMEOUT_S):
                found, exact = await compare()
        except (CounterpointError, TimeoutError) as error:
            log.info("recall.not_compared", store=store, plan=plan, reason=type(error).__name__)
            return
        samples = self._samples[store, plan]
        samples.append(recall(found, exact))
        RECALL.labels(store, plan).set(mean(samples))

    def _over(self, task: "asyncio.Task[None]") -> None:
        self._running = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("recall.failed", exc_info=error)


def mean(values: Iterable[float]) -> float:
    """Return the mean of at least one value."""
    values = tuple(values)
    return sum(values) / len(values)
