"""The cache: L1 in this process, L2 in Valkey; without Valkey everything works, slower."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from prometheus_client import Counter

from counterpoint.memory.cache.valkey import Valkey

HITS = Counter("counterpoint_cache_hits", "Answers from the cache", ["level"])
L1_ITEMS = 1000
L1_LIFE_S = 60.0
L1_BYTES = 64 << 20
"""All entries of one cache together."""
ENTRY_BYTES = 256 << 10
"""One entry; a larger one is not kept."""

V = TypeVar("V")
_L1, _L2 = HITS.labels("l1"), HITS.labels("l2")


class Cache(Generic[V]):
    """Values by key. What a key stands for never changes: whatever could change it is part of the key.

    `encode` and `decode` are for L2 (None: not a value of ours), `weigh` says how many bytes a value takes.
    """

    def __init__(
        self,
        far: Valkey | None,
        encode: Callable[[V], bytes],
        decode: Callable[[bytes], V | None],
        weigh: Callable[[V], int],
    ) -> None:
        self._far = far
        self._encode = encode
        self._decode = decode
        self._weigh = weigh
        self._near: OrderedDict[bytes, tuple[float, int, V]] = OrderedDict()
        self._bytes = 0

    async def get(self, key: bytes) -> V | None:
        """The value of a key, or None. What only L2 has is in L1 from then on."""
        known = self._near.get(key)
        if known is not None and time.monotonic() < known[0]:
            self._near.move_to_end(key)
            _L1.inc()
            return known[2]
        raw = await self._far.get(key) if self._far is not None else None
        value = self._decode(raw) if raw is not None else None
        if raw is None or value is None:
            return None
        _L2.inc()
        self._keep(key, value)
        return value

    def put(self, key: bytes, value: V) -> None:
        """Remember a value."""
        if self._keep(key, value) and self._far is not None:
            self._far.put(key, self._encode(value))

    def _keep(self, key: bytes, value: V) -> bool:
        self._drop(key)
        weight = self._weigh(value)
        if weight > ENTRY_BYTES:
            return False
        self._near[key] = time.monotonic() + L1_LIFE_S, weight, value
        self._bytes += weight
        while len(self._near) > L1_ITEMS or self._bytes > L1_BYTES:
            self._drop(next(iter(self._near)))
        return True

    def _drop(self, key: bytes) -> None:
        known = self._near.pop(key, None)
        if known is not None:
            self._bytes -= known[1]
