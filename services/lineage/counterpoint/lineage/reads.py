"""Reads of one delivery: queries that are ready together travel together, and what was asked is not asked again."""

import asyncio

from counterpoint.proto.errors import Permanent
from counterpoint.proto.memory import Found, MemoryQuery
from counterpoint.recall import Memory

_NESTED = 4
"""Turns of the loop that a request waits for others: as many as coroutines are gathered within each other."""


class Reads:
    """The memory of a delivery. Coroutines that are gathered share its requests, so that a decision takes as many round
    trips as its longest chain of questions."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._answers: dict[str, tuple[asyncio.Task[list[Found]], int]] = {}
        self._next: list[MemoryQuery] = []
        self._request: asyncio.Task[list[Found]] | None = None

    async def query(self, *queries: MemoryQuery) -> tuple[Found, ...]:
        """Answers in the order of the queries, from one snapshot or an earlier one. Raises `Transient` or `Denied`."""
        answers = [self._asked(query) for query in queries]
        return tuple([(await request)[at] for request, at in answers])

    def _asked(self, query: MemoryQuery) -> tuple[asyncio.Task[list[Found]], int]:
        name = query.model_dump_json()
        if name not in self._answers:
            if self._request is None:
                self._request = asyncio.create_task(self._send())
            self._answers[name] = self._request, len(self._next)
            self._next.append(query)
        return self._answers[name]

    async def _send(self) -> list[Found]:
        """One request with all that was asked for until the loop came to it; what was cut because of the others is
        asked for by itself."""
        for _ in range(_NESTED):
            await asyncio.sleep(0)
        queries, self._next, self._request = self._next, [], None
        if len(queries) == 1:
            return list(await self.memory.query(*queries))
        try:
            answers = await self.memory.query(*queries)
        except Permanent:  # too large together
            answers = tuple([(await self.memory.query(query))[0] for query in queries])
        cut = {at for at, answer in enumerate(answers) if answer.partial}
        return [(await self.memory.query(queries[at]))[0] if at in cut else one for at, one in enumerate(answers)]
