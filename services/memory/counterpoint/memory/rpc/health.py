"""The health of the house: what memory alone can see of the bus, and what it knows of itself."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from prometheus_client import Counter, Gauge

from counterpoint.bus.connection import Connection
from counterpoint.bus.streams import consumer_specs
from counterpoint.guard.policy import Policy
from counterpoint.memory.cache.cache import HITS, MISSES
from counterpoint.memory.commit.relay import PENDING
from counterpoint.memory.query.recall_sampler import RecallSampler
from counterpoint.memory.search.vectors import SearchEngine
from counterpoint.proto.memory import CacheHealth, ConsumerHealth, HealthReport

ReadConsumers = Callable[[], Awaitable[tuple[ConsumerHealth, ...]]]


def consumers_of(connection: Connection, policy: Policy) -> ReadConsumers:
    """Return the function that reads the state of each consumer of the policy. It raises `Away`."""
    specs = consumer_specs(policy)

    async def read() -> tuple[ConsumerHealth, ...]:
        states = [await connection.consumer_state(spec.stream, spec.durable) for spec in specs]
        return tuple(
            ConsumerHealth(
                service=spec.durable,
                stream=spec.stream,
                waiting=state.waiting,
                unacknowledged=state.unacknowledged,
                pulling=state.pulls > 0,
            )
            for spec, state in zip(specs, states, strict=True)
            if state is not None
        )

    return read


class HealthReporter:
    """Reports the health of this process and of the consumers."""

    def __init__(self, consumers: ReadConsumers, sampler: RecallSampler, search: SearchEngine, *, valkey: bool) -> None:
        self._consumers = consumers
        self._sampler = sampler
        self._search = search
        self._valkey = valkey
        self._since = datetime.now(UTC)

    async def report(self) -> HealthReport:
        """Return the health now. Raises `Away` without the bus."""
        return HealthReport(
            at=datetime.now(UTC),
            since=self._since,
            consumers=await self._consumers(),
            pending_messages=int(_value(PENDING)),
            recall=self._sampler.means(),
            recall_share=self._sampler.share,
            cache=CacheHealth(
                l1_hits=int(_value(HITS.labels("l1"))),
                l2_hits=int(_value(HITS.labels("l2"))),
                misses=int(_value(MISSES)),
                valkey=self._valkey,
            ),
            embedding_model=self._search.model_id,
        )


def _value(metric: Counter | Gauge) -> float:
    """Return the value of a metric without labels."""
    return next(sample.value for family in metric.collect() for sample in family.samples if _is_value(sample.name))


def _is_value(name: str) -> bool:
    return not name.endswith("_created")
