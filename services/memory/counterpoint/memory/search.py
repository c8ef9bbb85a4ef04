"""The vector tier: texts are embedded before a transaction starts, rows searched and written inside it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.memory.cache import VectorCache
from counterpoint.memory.retrieval.embed import Embedder, Vectors
from counterpoint.memory.retrieval.model import ModelSettings
from counterpoint.memory.retrieval.search import Scope, prepare, search
from counterpoint.memory.retrieval.terms import terms
from counterpoint.proto.memory import HybridSearch, MemoryQuery, VectorSearch

_OVERFETCH = 5
"""How many more hits are looked for when a filter will leave some out."""


@dataclass(frozen=True, slots=True)
class ScoredHit:
    """A row found: where, its fused score, and the scores of both legs."""

    project: str
    id: str
    score: float
    scores: dict[str, float]


@dataclass(frozen=True, slots=True)
class VectorRow:
    """What the vector tier keeps beside a record; `embedding` as PostgreSQL reads it."""

    store: str
    id: str
    version: int
    source: str
    label: int
    words: str
    exact: tuple[str, ...]
    embedding: str


class Search:
    """Embeds and searches. The model is loaded at the first use."""

    def __init__(self, model_cache_dir: Path | None, valkey_url: str | None) -> None:
        self._embedder = Embedder(model_cache_dir or ModelSettings().model_cache_dir)
        self.model_id = self._embedder.model_id
        self._cache = VectorCache(valkey_url, self.model_id)

    async def embed_texts(self, texts: Sequence[str]) -> Vectors:
        """One unit vector a text."""
        return await self._embedder.embed(texts)

    async def embed(self, project: str, queries: Iterable[MemoryQuery]) -> dict[str, Any]:
        """The vectors of the texts that are searched for. Raises `Permanent` for a text nothing can be searched by."""
        texts = list({query.text for query in queries if isinstance(query, VectorSearch | HybridSearch)})
        for text in texts:
            prepare(text)
        known = {text: await self._cache.get(project, text) for text in texts}
        missing = [text for text, vector in known.items() if vector is None]
        if missing:
            for text, vector in zip(missing, await self._embedder.embed(missing), strict=True):
                known[text] = vector
                await self._cache.put(project, text, vector)
        return known

    async def run(
        self,
        connection: Any,
        project: str,
        query: VectorSearch | HybridSearch,
        embedded: dict[str, Any],
        clearance: int,
    ) -> tuple[list[ScoredHit], str]:
        """The best hits of one search and how they were found."""
        weight = query.vector_weight if isinstance(query, HybridSearch) else 1.0
        scope = Scope(project, (query.store,), self.model_id, clearance)
        k = query.k * _OVERFETCH if query.where else query.k
        found = await search(connection, scope, query.text, embedded[query.text], k, weight)
        hits = [
            ScoredHit(
                hit.project, hit.id, hit.score, {"lexical": hit.lexical, "dense": hit.cosine, "cosine": hit.cosine}
            )
            for hit in found.hits
        ]
        return hits, found.method

    def row(
        self, store: str, record_id: str, version: int, source: str, label: int, text: str, context: str, vector: Any
    ) -> VectorRow:
        """The row of one text: the lexical leg reads context and text, the dense one the text alone."""
        lexical = terms(f"{context}\n{text}" if context else text)
        return VectorRow(store, record_id, version, source, label, lexical.words, lexical.exact, str(vector.tolist()))
