"""The vector tier: texts are embedded before a transaction starts, rows searched and written inside it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.memory.cache import VectorCache
from counterpoint.memory.lists import matching
from counterpoint.memory.retrieval.embed import Embedder, EmbeddingModel, Vectors, Whose
from counterpoint.memory.retrieval.fuse import Weights, fixed
from counterpoint.memory.retrieval.model import ModelSettings
from counterpoint.memory.retrieval.search import CANDIDATES, EXACT_ROWS, Scope, prepare, search
from counterpoint.memory.retrieval.terms import Terms, weighed
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
    type: str
    names: tuple[str, ...]
    chars: int


@dataclass(frozen=True, slots=True)
class Text:
    """A record's text as it is searched: `text` by meaning and by words, `context` and `around` by words alone.

    `around` is what stands beside it, then what stands one step further, each counting less than the one before, and
    all less than the text. `names` are words for whom it is by.
    """

    source: str
    text: str
    context: str = ""
    around: tuple[str, ...] = ()
    type: str = ""
    names: tuple[str, ...] = ()

    @property
    def lexical(self) -> Terms:
        """What the lexical leg reads."""
        steps = len(self.around)
        beside = ((text, steps - n) for n, text in enumerate(self.around))
        return weighed([(self.text, steps + 1), *beside, (self.context, 1)])


class Search:
    """Embeds and searches. The model is loaded at the first use. `exact_rows` and `ef_search` are those of `search`.

    `outside`: texts are embedded by another `embedder` than the one in the house.
    """

    def __init__(
        self,
        model_cache_dir: Path | None,
        far: Valkey | None,
        *,
        exact_rows: int = EXACT_ROWS,
        ef_search: int | None = None,
        embedder: EmbeddingModel | None = None,
    ) -> None:
        self._exact_rows = exact_rows
        self._ef_search = ef_search
        self.outside = embedder is not None
        self._embedder: EmbeddingModel = embedder or Embedder(model_cache_dir or ModelSettings().model_cache_dir)
        self.model_id = self._embedder.model_id
        self._cache = VectorCache(far, self.model_id)

    async def embed_texts(self, texts: Sequence[str], whose: Whose | None = None) -> Vectors:
        """One unit vector a text."""
        return await self._embedder.embed(texts, whose)

    async def embed(self, project: str, queries: Iterable[MemoryQuery], label: int = 0) -> dict[str, Any]:
        """The vectors of the texts that are searched for. Raises `Permanent` for a text nothing can be searched by."""
        wanted = {text for query in queries if isinstance(query, VectorSearch | HybridSearch) for text in texts(query)}
        for text in wanted:
            prepare(text)
        known = {text: await self._cache.get(project, text) for text in wanted}
        missing = [text for text, vector in known.items() if vector is None]
        if missing:
            for text, vector in zip(missing, await self._embedder.embed(missing, Whose(project, label)), strict=True):
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
        """The best hits of one search and how they were found; `exact`: every row is looked at, however many.

        Of several texts a record has the best of its scores, and the signs that it has for the first: of what only
        another one brought nobody says how well it fits that.
        """
        scope = Scope(project, (query.store,), self.model_id, clearance)
        most = _ALL_ROWS if exact else self._exact_rows
        of_rows = None
        if query.filters:
            sql, values = matching(query.store, query, project)
            of_rows = [row["row"] for row in await connection.fetch(sql, *values)]
        first, *others = texts(query)
        wide = max(query.k, CANDIDATES) if others else query.k
        best: dict[tuple[str, str], ScoredHit] = {}
        method = "none"
        for text in (first, *others):
            found = await search(
                connection, scope, text, embedded[text], wide, _weights(query), most, self._ef_search, of_rows
            )
            method = method if found.method == "none" else found.method
            for hit in found.hits:
                known = best.get((hit.project, hit.id))
                score = hit.score if known is None else max(hit.score, known.score)
                signs = known.scores if known else hit.scores if text == first else {}
                best[hit.project, hit.id] = ScoredHit(hit.project, hit.id, score, signs)
        return sorted(best.values(), key=lambda hit: (-hit.score, hit.project, hit.id))[: query.k], method

    def row(self, store: str, record_id: str, version: int, label: int, text: Text, vector: Any) -> VectorRow:
        """The row of one text and its vector."""
        lexical = text.lexical
        return VectorRow(
            store, record_id, version, text.source, label, lexical.words, lexical.exact, str(vector.tolist()),
            text.type, text.names, len(text.text),
        )  # fmt: skip


def texts(query: VectorSearch | HybridSearch) -> tuple[str, ...]:
    """All that a search looks for."""
    return query.texts if isinstance(query, HybridSearch) else (query.text,)


def _weights(query: VectorSearch | HybridSearch) -> Weights | None:
    if isinstance(query, VectorSearch):
        return fixed(1)
    return None if query.vector_weight is None else fixed(query.vector_weight)
