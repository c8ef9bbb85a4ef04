"""Readiness of a service's dependencies: the bus, memory, and its consumers."""

import asyncio
import math
from collections.abc import Awaitable, Sequence
from contextlib import suppress

from counterpoint.bus.connection import Connection
from counterpoint.bus.streams import ConsumerSpec
from counterpoint.bus.telemetry import BACKLOG
from counterpoint.proto import subjects
from counterpoint.proto.errors import Away
from counterpoint.proto.memory import Origin, QueryReply, QueryRequest

_PROBE_S, _MISSING_PROBE_S = 5.0, 0.2
"""Seconds between two probes, and while a dependency is missing."""


class Readiness:
    """The dependencies of one service as last probed. `memory` and `consumers` are events to wait for."""

    def __init__(self, name: str, connection: Connection, consumers: Sequence[ConsumerSpec], timeout_s: float) -> None:
        self.memory = asyncio.Event()
        self.consumers = asyncio.Event()
        self._name = name
        self._connection = connection
        self._specs = consumers
        self._timeout_s = timeout_s
        self._soon = asyncio.Event()
        connection.on_reconnect.append(self._soon.set)

    def missing(self) -> tuple[str, ...]:
        """Return the names of the dependencies that are not available."""
        known = {
            "bus": self._connection.connected,
            "memory": self.memory.is_set(),
            "consumers": self.consumers.is_set(),
        }
        return tuple(name for name, available in known.items() if not available)

    def lost_memory(self) -> None:
        """Take note that memory did not answer; it is probed at once."""
        self.memory.clear()
        self._soon.set()

    async def probe(self) -> None:
        """Probe every few seconds, after a reconnection, and often while a dependency is missing. Does not return."""
        while True:
            self._soon.clear()
            available = (
                await _update(self.consumers, self._have_consumers()),
                await _update(self.memory, self._memory_answers()),
            )
            if not all(available):
                await asyncio.sleep(_MISSING_PROBE_S)
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(self._soon.wait(), _PROBE_S)

    async def _have_consumers(self) -> bool:
        backlogs = [await self._connection.backlog(spec.stream, spec.durable) for spec in self._specs]
        for spec, backlog in zip(self._specs, backlogs, strict=True):
            BACKLOG.labels(spec.stream, spec.durable).set(math.nan if backlog is None else backlog)
        return None not in backlogs

    async def _memory_answers(self) -> bool:
        if self._name == "memory":
            return True
        origin = Origin(message_id="probe", project=subjects.DEFAULT_PROJECT)
        nothing = QueryRequest(origin=origin, queries=()).model_dump_json().encode()
        raw = await self._connection.request(subjects.query(self._name), nothing, self._timeout_s)
        return QueryReply.model_validate_json(raw).refusal is None


async def _update(event: asyncio.Event, check: Awaitable[bool]) -> bool:
    """Set or clear `event` by the result of `check`; `Away` counts as False."""
    try:
        available = await check
    except Away:
        available = False
    if available:
        event.set()
    else:
        event.clear()
    return available
