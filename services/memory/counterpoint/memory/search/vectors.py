"""The vector tier: texts are embedded before a transaction starts, rows searched and written inside it."""

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
class SearchText:
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
        """Terms for the lexical index, weighted by part."""
        steps = len(self.around)
        beside = ((text, steps - n) for n, text in enumerate(self.around))
        return weighed([(self.text, steps + 1), *beside, (self.context, 1)])


class EmbeddedTexts(dict[str, Vectors]):
    """The vectors of texts, all by one `model`."""

    def __init__(self, model: str, vectors: Mapping[str, Vectors]) -> None:
        super().__init__(vectors)
        self.model = model


class ModelGone(Transient):
    """A model was asked for whose vectors are not kept any more."""


class SearchEngine:
    """Embeds and searches. A model is loaded at the first use. `exact_rows` and `ef_search` are those of `search`.

    `active` is the model that is searched by, `other` one whose vectors are kept beside; `changes` counts how often
    they have been others. `reranker` orders the best passages anew, where there is one.
    """

    def __init__(
        self,
        model_cache_dir: Path | None,
        far: Valkey | None,
        *,
        exact_rows: int = EXACT_ROWS,
        ef_search: int | None = None,
        embedder: EmbeddingModel | None = None,
        held: CorpusCache | None = None,
        reranker: Reranker | None = None,
    ) -> None:
        self.reranker = reranker
        self._exact_rows = exact_rows
        self._ef_search = ef_search
        self._far = far
        self.active: EmbeddingModel = embedder or Embedder(model_cache_dir or ModelSettings().model_cache_dir)
        self.other: EmbeddingModel | None = None
        self.changes = 0
        self._caches: dict[str, VectorCache] = {}
        self._held = held

    @property
    def model_id(self) -> str:
        """The model that is searched by."""
        return self.active.model_id

    @property
    def outside(self) -> bool:
        """Whether somebody outside is told what is searched for."""
        return self.active.outside

    @property
    def models(self) -> tuple[EmbeddingModel, ...]:
        """Those whose vectors are kept, the active one first."""
        return (self.active,) if self.other is None else (self.active, self.other)

    def use(self, active: EmbeddingModel, other: EmbeddingModel | None) -> None:
        """From now on these."""
        self.active, self.other = active, other
        self.changes += 1
        self._caches.clear()
        if self._held is not None:
            self._held.clear()

    def applied(self, steps: "Iterable[CommitPlan]") -> None:
        """Steps were applied."""
        if self._held is not None:
            self._held.drop({(step.project, row.store) for step in steps for row in step.writes})

    def holds(self, model_id: str) -> bool:
        """Whether the vectors of a model are kept."""
        return any(model.model_id == model_id for model in self.models)

    def model(self, model_id: str) -> EmbeddingModel:
        """A model whose vectors are kept. Raises `ModelGone`."""
        for model in self.models:
            if model.model_id == model_id:
                return model
        raise ModelGone(f"{model_id} is not in use", retry_after_s=0.1)

    async def embed_texts(
        self, texts: Sequence[str], whose: TextContext | None = None, model_id: str | None = None
    ) -> Vectors:
        """One unit vector a text, by the active model or another one that is kept. Raises `ModelGone`."""
        return await self.model(model_id or self.model_id).embed(texts, whose)

    async def embed(self, project: str, queries: Iterable[MemoryQuery], label: int | None = None) -> EmbeddedTexts:
        """The vectors of the texts that are searched for, by the active model.

        Raises `Permanent` for a text nothing can be searched by, and `ModelGone` where a model outside would be told a
        text whose `label` nobody has looked up.
        """
        wanted = {text for query in queries if isinstance(query, VectorSearch | HybridSearch) for text in texts(query)}
        for text in wanted:
            parse_query(text)
        model = self.active
        cache = self._caches.setdefault(model.model_id, VectorCache(self._far, model.model_id))
        found = {text: await cache.get(project, text) for text in wanted}
        known = {text: vector for text, vector in found.items() if vector is not None}
        missing = [text for text in wanted if text not in known]
        if missing:
            if label is None and model.outside:
                raise ModelGone("an external model is now active", retry_after_s=0.1)
            made = await model.embed(missing, TextContext(project, label or 0))
            for text, vector in zip(missing, made, strict=True):
                known[text] = vector
                cache.put(project, text, vector)
        return EmbeddedTexts(model.model_id, known)

    async def run(
        self,
        connection: Any,
        project: str,
        query: VectorSearch | HybridSearch,
        embedded: EmbeddedTexts,
        clearance: int,
        *,
        exact: bool = False,
    ) -> tuple[list[ScoredHit], str]:
        """The best hits of one search and how they were found; `exact`: every row is looked at, however many,
        in the record and not in RAM.

        Of several texts a record has the best of its scores, and the signs that it has for the first: of what only
        another one brought nobody says how well it fits that.
        """
        scope = SearchScope(project, (query.store,), embedded.model, clearance)
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
                connection,
                scope,
                text,
                embedded[text],
                wide,
                _weights(query),
                most,
                self._ef_search,
                of_rows,
                None if exact else self._held,
            )
            method = method if found.method == "none" else found.method
            for hit in found.hits:
                known = best.get((hit.project, hit.id))
                score = hit.score if known is None else max(hit.score, known.score)
                signs = known.scores if known else hit.scores if text == first else {}
                best[hit.project, hit.id] = ScoredHit(hit.project, hit.id, score, signs)
        return sorted(best.values(), key=lambda hit: (-hit.score, hit.project, hit.id))[: query.k], method

    def row(
        self, store: str, record_id: str, version: int, label: int, text: SearchText, vectors: Mapping[str, Any]
    ) -> PlannedVector:
        """The row of one text and its vectors by model."""
        lexical = text.lexical
        return PlannedVector(
            store, record_id, version, text.source, label, lexical.words, lexical.exact,
            {model: str(vector.tolist()) for model, vector in vectors.items()}, text.type, text.names, len(text.text),
        )  # fmt: skip


def texts(query: VectorSearch | HybridSearch) -> tuple[str, ...]:
    """All that a search looks for."""
    return query.texts if isinstance(query, HybridSearch) else (query.text,)


def _weights(query: VectorSearch | HybridSearch) -> Weights | None:
    if isinstance(query, VectorSearch):
        return fixed(1)
    return None if query.vector_weight is None else fixed(query.vector_weight)
