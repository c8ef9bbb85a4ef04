"""The right of principals to go on reading, checked anew while a stream is open."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from cachetools import TTLCache

from counterpoint.router.authentication import Authenticator

_ENTRIES = 10_000

Key = tuple[str, str]
"""A project and the name of a principal."""


class ReadRights:
    """Checks rights at most once in `cache_s` for a principal in a project, and anew after a principal was revoked."""

    def __init__(self, authenticator: Authenticator, cache_s: float) -> None:
        self._authenticator = authenticator
        self._checks: TTLCache[Key, tuple[int, asyncio.Task[Any]]] = TTLCache(_ENTRIES, cache_s)

    async def check(self, key: Key, read: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Return if the principal may read; `read` asks memory. Raises what it raises; only a success is kept."""
        number, checking = self._checks.get(key, (-1, None))
        if checking is None or number != self._authenticator.invalidations:
            checking = asyncio.create_task(read())
            self._checks[key] = self._authenticator.invalidations, checking
        try:
            await asyncio.shield(checking)
        except BaseException:
            if self._checks.get(key, (0, None))[1] is checking and checking.done():
                del self._checks[key]
            raise
