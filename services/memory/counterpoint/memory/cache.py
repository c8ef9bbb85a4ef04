"""The cache before the embedder: L1 in this process, L2 in Valkey; without Valkey everything works, slower."""

import hashlib
import time
from collections import OrderedDict

import numpy as np
import redis.asyncio as redis
import structlog
from prometheus_client import Counter
from redis.exceptions import RedisError

from counterpoint.memory.retrieval.embed import DIMENSIONS, Vectors

log = structlog.get_logger()

HITS = Counter("counterpoint_cache_hits", "Answers from the cache", ["level"])
L1_ITEMS = 1000
L1_LIFE_S = 60.0
L2_LIFE_S = 3600
_TIMEOUT_S = 0.05
_RETRY_AFTER_S = 5.0


class VectorCache:
    """Vectors of query texts, by model, project and content. Never holds what a query found."""

    def __init__(self, url: str | None, model_id: str) -> None:
        self._model_id = model_id
        self._l1: OrderedDict[bytes, tuple[float, Vectors]] = OrderedDict()
        self._away_until = 0.0
        self._l2 = (
            redis.Redis.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S) if url else None
        )

    async def get(self, project: str, text: str) -> Vectors | None:
        """The vector of a text, or None."""
        key = self._key(project, text)
        known = self._l1.get(key)
        if known is not None and time.monotonic() - known[0] < L1_LIFE_S:
            HITS.labels("l1").inc()
            return known[1]
        raw = await self._l2_get(key)
        if raw is None or len(raw) != DIMENSIONS * 4:
            return None
        HITS.labels("l2").inc()
        vector = np.frombuffer(raw, np.float32)
        self._keep(key, vector)
        return vector

    async def put(self, project: str, text: str, vector: Vectors) -> None:
        """Remember the vector of a text."""
        key = self._key(project, text)
        self._keep(key, vector)
        if self._l2 is not None and time.monotonic() >= self._away_until:
            try:
                await self._l2.set(key, vector.astype(np.float32).tobytes(), ex=L2_LIFE_S)
            except (RedisError, OSError, TimeoutError) as error:
                self._away(error)

    async def _l2_get(self, key: bytes) -> bytes | None:
        if self._l2 is None or time.monotonic() < self._away_until:
            return None
        try:
            found = await self._l2.get(key)
        except (RedisError, OSError, TimeoutError) as error:
            self._away(error)
            return None
        return found if isinstance(found, bytes) else None

    def _away(self, error: BaseException) -> None:
        log.warning("cache.away", level="l2", reason=type(error).__name__)
        self._away_until = time.monotonic() + _RETRY_AFTER_S

    def _keep(self, key: bytes, vector: Vectors) -> None:
        self._l1[key] = (time.monotonic(), vector)
        self._l1.move_to_end(key)
        while len(self._l1) > L1_ITEMS:
            self._l1.popitem(last=False)

    def _key(self, project: str, text: str) -> bytes:
        return f"vector:{self._model_id}:{project}:".encode() + hashlib.sha256(text.encode(errors="replace")).digest()
