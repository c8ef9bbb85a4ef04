"""The real embedding model as a similarity for tests."""

from collections.abc import Sequence
from typing import Any

from counterpoint.memory.embedding.files import ModelSettings
from counterpoint.memory.embedding.model import Embedder


class ModelSimilarity:
    """The real embedding model as a similarity."""

    def __init__(self) -> None:
        self._embedder = Embedder(ModelSettings().model_cache_dir)
        self._known: dict[str, Any] = {}

    async def __call__(self, query: str, texts: Sequence[str]) -> list[float]:
        new = [text for text in dict.fromkeys([query, *texts]) if text not in self._known]
        if new:
            self._known.update(zip(new, await self._embedder.embed(new), strict=True))
        return [float(self._known[query] @ self._known[text]) for text in texts]
