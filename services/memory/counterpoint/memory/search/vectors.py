"""Vector tier: texts are embedded before a transaction starts, rows are searched and written inside it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.memory.cache.valkey import Valkey
from counterpoint.memory.embedding.files import ModelSettings
from counterpoint.memory.embedding.model import Embedder, EmbeddingModel, TextContext, Vectors
from counterpoint.memory.embedding.vector_cache import VectorCache
from counterpoint.memory.record.plan import CommitPlan, PlannedVector
from counterpoint.memory.record.statements import matching
from counterpoint.memory.search.candidates import SearchScope
from counterpoint.memory.search.corpus_cache import CorpusCache
from counterpoint.memory.search.fusion import Weights, fixed
from counterpoint.memory.search.hybrid import CANDIDATES, EXACT_ROWS, parse_query, search
from counterpoint.memory.search.rerank import Reranker
from counterpoint.memory.search.terms import Terms, weighed
from counterpoint.proto.errors import Transient
from counterpoint.proto.memory import HybridSearch, MemoryQuery, QueryPlan, VectorSearch

_ALL_ROWS = 2**62


@dataclass(frozen=True, slots=True)
class ScoredHit:
    """A hit: its record, its fused score, and the scores of both legs."""

    project: str
    id: str
    score: float
    scores: dict[str, float]


@dataclass(frozen=True, slots=True)
class SearchText:
    """Searchable text of a record: `text` by vector and by words, `context` and `around` by words alone.

    `around` are the neighbouring texts, nearest first, each with a lower weight than the one before, and all with a
    lower weight than the text. `names` are words of its speaker.
    """

    source: str
    text: str
    context: str = ""
    around: tuple[str, ...] = ()
    type: str = ""
    names: tuple[str, ...] = ()

    @property
    def lexical(self) -> Terms:
        """Terms for the lexical index, weighted by part."""
        steps = len(self.around)
        around_weights = ((text, steps - n) for n, text in enumerate(self.around))
        return weighed([(self.text, steps + 1), *around_weights, (self.context, 1)])


class EmbeddedTexts(dict[str, Vectors]):
    """The vectors of texts, all of one `model`."""

    def __init__(self, model: str, vectors: Mapping[str, Vectors]) -> None:
        super().__init__(vectors)
        self.model = model


class ModelGone(Transient):
    """The vectors of the model are no longer kept."""


class SearchEngine:
    """Embeds and searches. A model is loaded at its first use. `exact_rows` and `ef_search` are those of `search`.

    `active` is the model of searches, `other` one whose vectors are kept beside; `changes` counts the changes of both.
    `reranker` reorders the best passages, if there is one.
    """

    def __init__(
        self,
        model_cache_dir: Path | None,
        valkey: Valkey | None,
        *,
        exact_rows: int = EXACT_ROWS,
        ef_search: int | None = None,
        embedder: EmbeddingModel | None = None,
        corpus_cache: CorpusCache | None = None,
        reranker: Reranker | None = None,
    ) -> None:
        self.reranker = reranker
        self._exact_rows = exact_rows
        self._ef_search = ef_search
        self._valkey = valkey
        self.active: EmbeddingModel = embedder or Embedder(model_cache_dir or ModelSettings().model_cache_dir)
        self.other: EmbeddingModel | None = None
        self.changes = 0
        self._caches: dict[str, VectorCache] = {}
        self._corpus_cache = corpus_cache

    @property
    def model_id(self) -> str:
        """Return the id of the model of searches."""
        return self.active.model_id

    @property
    def is_remote(self) -> bool:
        """Whether a remote model receives the texts of queries."""
        return self.active.is_remote

    @property
    def models(self) -> tuple[EmbeddingModel, ...]:
        """Return the models whose vectors are kept, the active one first."""
        return (self.active,) if self.other is None else (self.active, self.other)

    def use(self, active: EmbeddingModel, other: EmbeddingModel | None) -> None:
        """Use these models from now on."""
        self.active, self.other = active, other
        self.changes += 1
        self._caches.clear()
        if self._corpus_cache is not None:
            self._corpus_cache.clear()

    def applied(self, steps: "Iterable[CommitPlan]") -> None:
        """Take note of applied commits."""
        if self._corpus_cache is not None:
            self._corpus_cache.drop({(step.project, row.store) for step in steps for row in step.writes})

    def holds(self, model_id: str) -> bool:
        """Whether the vectors of a model are kept."""
        return any(model.model_id == model_id for model in self.models)

    def model(self, model_id: str) -> EmbeddingModel:
        """Return a model whose vectors are kept. Raises `ModelGone`."""
        for model in self.models:
            if model.model_id == model_id:
                return model
        raise ModelGone(f"{model_id} is not in use", retry_after_s=0.1)

    async def embed_texts(
        self, texts: Sequence[str], context: TextContext | None = None, model_id: str | None = None
    ) -> Vectors:
        """Return one unit vector per text, by the active model or another one that is kept. Raises `ModelGone`."""
        return await self.model(model_id or self.model_id).embed(texts, context)

    async def embed(self, project: str, queries: Iterable[MemoryQuery], label: int | None = None) -> EmbeddedTexts:
        """Return the vectors of the queries' texts, by the active model.

        Raises `Permanent` for a text that is too long, and `ModelGone` if a remote model would receive a text
        whose `label` was not looked up.
        """
        query_texts = {
            text for query in queries if isinstance(query, VectorSearch | HybridSearch) for text in texts(query)
        }
        for text in query_texts:
            parse_query(text)
        model = self.active
        cache = self._cache(model)
        found = {text: await cache.get(project, text) for text in query_texts}
        known = {text: vector for text, vector in found.items() if vector is not None}
        missing = [text for text in query_texts if text not in known]
        if missing:
            if label is None and model.is_remote:
                raise ModelGone("an external model is now active", retry_after_s=0.1)
            vectors = await model.embed(missing, TextContext(project, label or 0))
            for text, vector in zip(missing, vectors, strict=True):
                known[text] = vector
                cache.put(project, text, vector)
        return EmbeddedTexts(model.model_id, known)

    def _cache(self, model: EmbeddingModel) -> VectorCache:
        """Return the cache of a model's vectors. Those of the built-in model are not in Valkey: nearly no text of a
        task recurs, and to embed one again takes milliseconds."""
        known = self._caches.get(model.model_id)
        if known is None:
            valkey = None if isinstance(model, Embedder) else self._valkey
            known = self._caches[model.model_id] = VectorCache(valkey, model.model_id)
        return known

    async def run(
        self,
        connection: Any,
        project: str,
        query: VectorSearch | HybridSearch,
        embedded: EmbeddedTexts,
        clearance: int,
        *,
        exact: bool = False,
    ) -> tuple[list[ScoredHit], QueryPlan]:
        """Return the best hits of one search and its plan; `exact`: every row is scanned, however many, in the record
        and not in RAM.

        A record has its best score of several texts, and the detailed scores for the first text: those for another text
        would not explain its score for the first.
        """
        scope = SearchScope(project, (query.store,), embedded.model, clearance)
        most = _ALL_ROWS if exact else self._exact_rows
        of_rows = None
        if query.filters:
            sql, values = matching(query.store, query, project)
            of_rows = [row["row"] for row in await connection.fetch(sql, *values)]
        first, *other_texts = texts(query)
        most_hits = max(query.k, CANDIDATES) if other_texts else query.k
        best: dict[tuple[str, str], ScoredHit] = {}
        plan = QueryPlan.NONE
        for text in (first, *other_texts):
            found = await search(
                connection,
                scope,
                text,
                embedded[text],
                most_hits,
                _weights(query),
                most,
                self._ef_search,
                of_rows,
                None if exact else self._corpus_cache,
            )
            plan = plan if found.plan == QueryPlan.NONE else found.plan
            for hit in found.hits:
                known = best.get((hit.project, hit.id))
                score = hit.score if known is None else max(hit.score, known.score)
                signs = known.scores if known else hit.scores if text == first else {}
                best[hit.project, hit.id] = ScoredHit(hit.project, hit.id, score, signs)
        return sorted(best.values(), key=lambda hit: (-hit.score, hit.project, hit.id))[: query.k], plan

    def row(
        self, store: str, record_id: str, version: int, label: int, text: SearchText, vectors: Mapping[str, Any]
    ) -> PlannedVector:
        """Return the row of one text and its vectors by model."""
        lexical = text.lexical
        return PlannedVector(
            store, record_id, version, text.source, label, lexical.words, lexical.exact,
            {model: str(vector.tolist()) for model, vector in vectors.items()}, text.type, text.names, len(text.text),
        )  # fmt: skip


def texts(query: VectorSearch | HybridSearch) -> tuple[str, ...]:
    """Return all texts of a search."""
    return query.texts if isinstance(query, HybridSearch) else (query.text,)


def _weights(query: VectorSearch | HybridSearch) -> Weights | None:
    if isinstance(query, VectorSearch):
        return fixed(1)
    return None if query.vector_weight is None else fixed(query.vector_weight)
