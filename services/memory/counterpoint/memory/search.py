"""The vector tier: texts are embedded before a transaction starts, rows searched and written inside it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.memory.cache import VectorCache
from counterpoint.memory.lists import matching
from counterpoint.memory.retrieval.embed import Embedder, Vectors
from counterpoint.memory.retrieval.model import ModelSettings
from counterpoint.memory.retrieval.search import EXACT_ROWS, Scope, prepare, search
from counterpoint.memory.retrieval.terms import terms
from counterpoint.memory.valkey import Valkey
from counterpoint.proto.memory import HybridSearch, MemoryQuery, VectorSearch

_ALL_ROWS = 2**62


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
    """Embeds and searches. The model is loaded at the first use. `exact_rows` and `ef_search` are those of `search`."""

    def __init__(
        self,
        model_cache_dir: Path | None,
        far: Valkey | None,
        *,
        exact_rows: int = EXACT_ROWS,
        ef_search: int | None = None,
    ) -> None:
        self._exact_rows = exact_rows
        self._ef_search = ef_search
        self._embedder = Embedder(model_cache_dir or ModelSettings().model_cache_dir)
        self.model_id = self._embedder.model_id
        self._cache = VectorCache(far, self.model_id)

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
                self._cache.put(project, text, vector)
        return known

    async def run(
        self,
        connection: Any,
        project: str,
        query: VectorSearch | HybridSearch,
        embedded: dict[str, Any],
        clearance: int,
        *,
        exact: bool = False,
    ) -> tuple[list[ScoredHit], str]:
        """The best hits of one search and how they were found; `exact`: every row is looked at, however many."""
        weight = query.vector_weight if isinstance(query, HybridSearch) else 1.0
        scope = Scope(project, (query.store,), self.model_id, clearance)
        most = _ALL_ROWS if exact else self._exact_rows
        of_rows = None
        if query.where:
            sql, values = matching(query.store, query.where, project)
            of_rows = [row["row"] for row in await connection.fetch(sql, *values)]
        found = await search(
            connection, scope, query.text, embedded[query.text], query.k, weight, most, self._ef_search, of_rows
        )
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
