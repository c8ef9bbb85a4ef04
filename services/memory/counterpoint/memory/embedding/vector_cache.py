"""Vectors of query texts in the cache, by model, project and content."""

import hashlib

import numpy as np

from counterpoint.memory.cache.cache import Cache
from counterpoint.memory.cache.valkey import Valkey
from counterpoint.memory.embedding.model import Vectors


class VectorCache:
    """Vectors of query texts, by model, project and content."""

    def __init__(self, l2: Valkey | None, model_id: str) -> None:
        self._model_id = model_id
        self._cache: Cache[Vectors] = Cache(l2, _as_bytes, _as_vector, len)

    async def get(self, project: str, text: str) -> Vectors | None:
        """Return the vector of a text, or None."""
        return await self._cache.get(self._key(project, text))

    def put(self, project: str, text: str, vector: Vectors) -> None:
        """Cache the vector of a text."""
        self._cache.put(self._key(project, text), vector)

    def _key(self, project: str, text: str) -> bytes:
        return f"vector:{self._model_id}:{project}:".encode() + hashlib.sha256(text.encode(errors="replace")).digest()


def _as_bytes(vector: Vectors) -> bytes:
    return vector.astype(np.float32).tobytes()


def _as_vector(raw: bytes) -> Vectors | None:
    return np.frombuffer(raw, np.float32) if len(raw) % 4 == 0 else None
