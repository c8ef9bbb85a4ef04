"""The cache: L1 in this process, L2 in Valkey; without Valkey everything works, slower."""

from collections.abc import Callable
from typing import Generic, TypeVar

from cachetools import TTLCache
from prometheus_client import Counter

from counterpoint.memory.cache.valkey import Valkey

HITS = Counter("counterpoint_cache_hits", "Answers from the cache", ["level"])
MISSES = Counter("counterpoint_cache_misses", "Lookups that no level of the cache answered")
L1_ITEMS = 1000
L1_LIFE_S = 60.0
L1_BYTES = 64 << 20
"""Size limit of all entries of one cache; each counts as at least `L1_BYTES / L1_ITEMS`."""
ENTRY_BYTES = 256 << 10
"""Size limit of one entry; a larger one is not kept."""

V = TypeVar("V")
_L1_HITS, _L2_HITS = HITS.labels("l1"), HITS.labels("l2")


class Cache(Generic[V]):
    """Values by key. The value of a key never changes: everything that could change it is part of the key.

    `encode` and `decode` are for L2 (None: not a value of this cache), `weigh` returns the size of a value in bytes.
    """

    def __init__(
        self,
        l2: Valkey | None,
        encode: Callable[[V], bytes],
        decode: Callable[[bytes], V | None],
        weigh: Callable[[V], int],
    ) -> None:
        self._l2 = l2
        self._encode = encode
        self._decode = decode
        self._weigh = weigh
        self._l1: TTLCache[bytes, V] = TTLCache(
            L1_BYTES, L1_LIFE_S, getsizeof=lambda value: max(weigh(value), L1_BYTES // L1_ITEMS)
        )

    async def get(self, key: bytes, *, far: bool = True) -> V | None:
        """Return the value of a key, or None; not `far` from L1 alone. A value from L2 is added to L1."""
        known = self._l1.get(key)
        if known is not None:
            _L1_HITS.inc()
            return known
        raw = await self._l2.get(key) if far and self._l2 is not None else None
        value = self._decode(raw) if raw is not None else None
        if raw is None or value is None:
            MISSES.inc()
            return None
        _L2_HITS.inc()
        self._add(key, value)
        return value

    def put(self, key: bytes, value: V, *, far: bool = True) -> None:
        """Cache a value; not `far` in L1 alone."""
        if self._add(key, value) and far and self._l2 is not None:
            self._l2.put(key, self._encode(value))

    def _add(self, key: bytes, value: V) -> bool:
        if self._weigh(value) > ENTRY_BYTES:
            self._l1.pop(key, None)
            return False
        self._l1[key] = value
        return True
