"""A handler of `TaskRouted` that a test controls."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from bus.small_house import noted

from counterpoint.bus import Service
from counterpoint.client import Memory
from counterpoint.proto.memory import Commit
from counterpoint.proto.tasks import TaskRouted


class GatedHandler:
    """Records each run, waits for `go`, then returns the commit of `then`."""

    def __init__(self, service: Service, then: Callable[[TaskRouted, Memory], Any] = lambda _, memory: noted(memory)):
        self.runs: list[tuple[str, int, int]] = []
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        self._then = then
        service.on(TaskRouted)(self.handle)

    async def handle(self, message: TaskRouted, memory: Memory) -> Commit:
        self.runs.append((message.task.description, memory.origin.fence & 0xFFFFF, memory.origin.run))
        self.entered.set()
        await self.go.wait()
        made = self._then(message, memory)
        commit: Commit = await made if isinstance(made, Awaitable) else made
        return commit

    def ran(self, description: str) -> int:
        return sum(1 for known, _, _ in self.runs if known == description)
