"""Authentication: bearer tokens and their principals."""

import hashlib
import time
from collections.abc import Callable

from cachetools import TTLCache

from counterpoint.client import Memory, record, records
from counterpoint.proto import subjects
from counterpoint.proto.errors import Denied, ErrorCode
from counterpoint.proto.memory import List
from counterpoint.proto.messages import utc_now
from counterpoint.proto.principals import Principal

STORE = "principals"
_CACHE_ENTRIES = 1000
_NAMESAKES = 10
"""Tokens of one name that are read: the earlier ones are revoked."""

MemoryFor = Callable[[str, str | None], Memory]
"""Function from a project and a principal's name to memory on its behalf; None is the router itself."""


def token_id(token: str) -> str:
    """Return the id of the principal record of a bearer token."""
    return hashlib.sha256(token.encode()).hexdigest()


async def principal_named(memory: Memory, name: str) -> Principal | None:
    """Return the principal of a name that is neither revoked nor expired. `memory` is the router's own."""
    (found,) = await memory.query(List(store=STORE, where={"name": name}, limit=_NAMESAKES))
    return next((each for each in records(found.items, Principal) if each.is_active(utc_now())), None)


class Authenticator:
    """Finds the principals of tokens. Results are cached for `cache_s`."""

    def __init__(self, memory: MemoryFor, cache_s: float, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._memory = memory
        self._cache: TTLCache[str, Principal] = TTLCache(_CACHE_ENTRIES, cache_s, timer=clock_s)
        self._invalidations = 0

    async def authenticate(self, token: str | None) -> Principal:
        """Return the principal of a token. Raises `Denied` `unauthenticated`."""
        if not token:
            raise Denied(ErrorCode.UNAUTHENTICATED, "a bearer token")
        return await self.principal(token_id(token))

    async def principal(self, key: str) -> Principal:
        """Return the principal of the token with this id. Raises `Denied` `unauthenticated`."""
        if (cached := self._cache.get(key)) is not None and cached.is_active(utc_now()):
            return cached
        invalidations = self._invalidations
        item = await self._memory(subjects.DEFAULT_PROJECT, None).get(STORE, key)
        principal = record(item, Principal) if item else None
        if principal is None or not principal.is_active(utc_now()):
            raise Denied(ErrorCode.UNAUTHENTICATED, "the token of a principal that is neither revoked nor expired")
        # A record read before an invalidation may be out of date.
        if invalidations == self._invalidations:
            self._cache[key] = principal
        return principal

    @property
    def invalidations(self) -> int:
        """The number of times that the cache was cleared."""
        return self._invalidations

    def forget(self) -> None:
        """Clear the cache after a principal was created or revoked."""
        self._invalidations += 1
        self._cache.clear()
