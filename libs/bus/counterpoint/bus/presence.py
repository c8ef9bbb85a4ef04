"""Presence: whether what a service cannot work without is there, its bus, memory and its consumers."""

import asyncio
import math
from collections.abc import Awaitable, Sequence

from counterpoint.bus.connection import Connection
from counterpoint.bus.streams import ConsumerSpec
from counterpoint.bus.telemetry import BACKLOG
from counterpoint.proto import subjects
from counterpoint.proto.errors import Away
from counterpoint.proto.memory import Origin, QueryReply, QueryRequest

_PROBE_S = 1.0


class Presence:
    """What one service's `probe` has found to be there; `memory` and `consumers` may be waited for."""

    def __init__(self, name: str, connection: Connection, consumers: Sequence[ConsumerSpec], timeout_s: float) -> None:
        self.memory = asyncio.Event()
        self.consumers = asyncio.Event()
        self._name = name
        self._connection = connection
        self._specs = consumers
        self._timeout_s = timeout_s

    def missing(self) -> tuple[str, ...]:
        """The names of what is not there."""
        found = {
            "bus": self._connection.connected,
            "memory": self.memory.is_set(),
            "consumers": self.consumers.is_set(),
        }
        return tuple(name for name, there in found.items() if not there)

    async def probe(self) -> None:
        """Ask every second, and more often while something is missing. Does not return."""
        while True:
            there = (
                await _noted(self.consumers, self._have_consumers()),
                await _noted(self.memory, self._ask_memory()),
            )
            await asyncio.sleep(_PROBE_S if all(there) else _PROBE_S / 5)

    async def _have_consumers(self) -> bool:
        backlogs = [await self._connection.backlog(spec.stream, spec.durable) for spec in self._specs]
        for spec, backlog in zip(self._specs, backlogs, strict=True):
            BACKLOG.labels(spec.stream, spec.durable).set(math.nan if backlog is None else backlog)
        return None not in backlogs

    async def _ask_memory(self) -> bool:
        if self._name == "memory":
            return True
        origin = Origin(message_id="probe", project=subjects.DEFAULT_PROJECT)
        nothing = QueryRequest(origin=origin, queries=()).model_dump_json().encode()
        raw = await self._connection.request(subjects.query(self._name), nothing, self._timeout_s)
        return QueryReply.model_validate_json(raw).refusal is None


async def _noted(fact: asyncio.Event, asked: Awaitable[bool]) -> bool:
    """Set `fact` to the answer; no answer is a no."""
    try:
        holds = await asked
    except Away:
        holds = False
    if holds:
        fact.set()
    else:
        fact.clear()
    return holds
