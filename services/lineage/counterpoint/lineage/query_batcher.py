"""Batched queries of one delivery: concurrent queries share a request, and repeated queries are answered once."""

import asyncio

from counterpoint.client import Memory
from counterpoint.proto.errors import Permanent
from counterpoint.proto.memory import MemoryQuery, QueryResult

_NESTED = 4
"""Iterations of the event loop that a request waits for further queries: the depth of nested gathers."""


class QueryBatcher:
    """Queries memory for one delivery.

    Gathered coroutines share requests, so a decision takes as many round trips as its longest chain of queries.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._answers: dict[str, tuple[asyncio.Task[list[QueryResult]], int]] = {}
        self._next: list[MemoryQuery] = []
        self._request: asyncio.Task[list[QueryResult]] | None = None

    async def query(self, *queries: MemoryQuery) -> tuple[QueryResult, ...]:
        """Return the answers in the order of the queries, from one snapshot or an earlier one. Raises `Transient` or
        `Denied`."""
        answers = [self._enqueue(query) for query in queries]
        return tuple([(await request)[at] for request, at in answers])

    def _enqueue(self, query: MemoryQuery) -> tuple[asyncio.Task[list[QueryResult]], int]:
        name = query.model_dump_json()
        if name not in self._answers:
            if self._request is None:
                self._request = asyncio.create_task(self._send())
            self._answers[name] = self._request, len(self._next)
            self._next.append(query)
        return self._answers[name]

    async def _send(self) -> list[QueryResult]:
        """Send all queries collected so far; a query whose answer was cut is repeated by itself."""
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
