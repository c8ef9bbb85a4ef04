"""Askers: from a bearer token to its principal."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable

from counterpoint.proto import subjects
from counterpoint.proto.errors import Denied
from counterpoint.proto.principals import Principal
from counterpoint.recall import Memory, record
from counterpoint.router.problems import UNAUTHENTICATED

STORE = "principals"
_REMEMBERED = 1000

MemoryFor = Callable[[str, str | None], Memory]
"""From a project and a principal's name to memory on its behalf; without a name, on the router's own."""


def token_id(token: str) -> str:
    """The id of the record of the principal that a bearer token stands for."""
    return hashlib.sha256(token.encode()).hexdigest()


class Askers:
    """Looks principals up, and remembers each for `cache_s`."""

    def __init__(self, memory: MemoryFor, cache_s: float, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._memory = memory
        self._cache_s = cache_s
        self._clock_s = clock_s
        self._known: OrderedDict[str, tuple[float, Principal]] = OrderedDict()
        self._changes = 0

    async def of(self, token: str | None) -> Principal:
        """The principal of a token. Raises `Denied` `unauthenticated` for none, an unknown or a revoked one."""
        if not token:
            raise Denied(UNAUTHENTICATED, "a bearer token")
        key = token_id(token)
        known = self._known.get(key)
        if known is not None and self._clock_s() - known[0] < self._cache_s:
            return known[1]
        self._known.pop(key, None)
        changes = self._changes
        item = await self._memory(subjects.DEFAULT_PROJECT, None).get(STORE, key)
        principal = record(item, Principal) if item else None
        if principal is None or principal.revoked_at is not None:
            raise Denied(UNAUTHENTICATED, "the token of a principal that is not revoked")
        # What changed while it was looked up may be what was found.
        if changes == self._changes:
            self._known[key] = (self._clock_s(), principal)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return principal

    def forget(self) -> None:
        """Called when a principal is created or revoked here."""
        self._changes += 1
        self._known.clear()
