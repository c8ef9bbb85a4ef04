"""The health of the house as memory knows it: consumers of the bus, messages on their way, recall and caches."""

from typing import Literal

from pydantic import Field

from counterpoint.proto.messages import Shape, Time


class Health(Shape):
    """The state of the consumers, the relay, searches and caches; the `report` is a `HealthReport`."""

    op: Literal["health"] = "health"


class ConsumerHealth(Shape):
    """A consumer of a service. `waiting` messages are not delivered yet, `unacknowledged` ones are being handled.

    `pulling`: a process of the service asks for more.
    """

    service: str
    stream: str
    waiting: int
    unacknowledged: int
    pulling: bool


class RecallHealth(Shape):
    """Recall of searches of a store by a plan: mean of the last `samples` that were compared with the exact answer."""

    store: str
    plan: str
    ratio: float
    samples: int


class CacheHealth(Shape):
    """Answers since the start of memory: found in its own cache (`l1`), in Valkey (`l2`), or in none."""

    l1_hits: int
    l2_hits: int
    misses: int
    valkey: bool


class HealthReport(Shape):
    """The health at a time. `pending_messages` are logged and not known to be on the bus."""

    at: Time
    since: Time
    consumers: tuple[ConsumerHealth, ...] = ()
    pending_messages: int
    recall: tuple[RecallHealth, ...] = ()
    recall_share: float = Field(ge=0, le=1)
    cache: CacheHealth
    embedding_model: str
