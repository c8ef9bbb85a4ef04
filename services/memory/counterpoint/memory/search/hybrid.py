"""Hybrid search: BM25 and cosine over the same candidates, fused by score."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import TYPE_CHECKING

import numpy as np

from counterpoint.memory.embedding.model import Vectors
from counterpoint.memory.record.projects import StoreKey
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.memory.search.bm25 import candidate_terms, idf
from counterpoint.memory.search.candidates import Candidate, Candidates, Floats, ParsedQuery, SearchScope
from counterpoint.memory.search.corpus_cache import CorpusCache, CorpusState
from counterpoint.memory.search.fusion import Features, Weights, adaptive, best, fixed, fuse
from counterpoint.memory.search.scan import index_of, indexed_as, scan_all, search_index
from counterpoint.memory.search.terms import Terms, terms
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import QueryPlan

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

MAX_QUERY_CHARS = 32_000
MAX_TERMS = 48
# Up to here every row is read, which no index beats in recall and few in time. A larger project gets an index of its
# own by the job `counterpoint.memory.search.index`.
EXACT_ROWS = 20_000
# More than requested, so that a row good in both legs but first in neither is among them.
CANDIDATES = 100
# The best candidates, to which the others are compared where the type of the candidates allows it.
BEST = 5
# Fewer rows than these are not a sample of the scores: missing ones count as rows without any of the terms.
FEW = 40
# Of a score. Further decimals depend on the order of summation in PostgreSQL: on the plan, and so on other rows of the
# table.
DIGITS = 9
# Of deviations, for means summed in another order.
_Z_DIGITS = 3

_SQL = load_statements(__package__)


@dataclass(frozen=True)
class HybridHit:
    """A row found. `score` is in [0, 1] within the result.

    `scores` explain it: `lexical` is its BM25 score and `cosine` its cosine to the query, `lexical_z` and `cosine_z`
    how many deviations these are above the mean of all rows in scope, `coverage` the share of the idf of the query's
    terms that it contains, `rarest` the idf of a term of one row alone; `by_words`, `by_meaning`, `by_name`,
    `by_fullness` and `by_exact_form` add up to `score`.
    """

    project: str
    store: str
    id: str
    score: float
    scores: dict[str, float]


@dataclass(frozen=True)
class SearchResult:
    """The hits, best first, and the plan: `NONE` if the query or the scope is empty.

    `terms` are those of the lexical leg; without any (a query of stop words) there are no hits, unless only the dense
    leg is used.
    """

    hits: tuple[HybridHit, ...]
    plan: QueryPlan
    terms: tuple[str, ...]


def parse_query(text: str) -> Terms:
    """Parse a query. Raises `Permanent` if it is longer than 32,000 characters."""
    if len(text) > MAX_QUERY_CHARS:
        problem = Problem(field="text", problem=f"has {len(text)} characters, the limit is {MAX_QUERY_CHARS}")
        raise Permanent(ErrorCode.QUERY_TOO_LONG, (problem,))
    return terms(text)


def require_word(text: str) -> None:
    """Raise `Permanent` `empty_query` for a text without a word to search for."""
    if _is_empty(parse_query(text)):
        raise Permanent(ErrorCode.EMPTY_QUERY, (Problem(field="text", problem="contains no word to search for"),))


def _is_empty(parsed: Terms) -> bool:
    return not parsed.words and not parsed.exact


async def search(
    connection: "Connection",
    scope: SearchScope,
    text: str,
    vector: Vectors,
    k: int,
    weights: Weights | None = None,
    exact_rows: int = EXACT_ROWS,
    ef_search: int | None = None,
    of_rows: Sequence[int] | None = None,
    corpus_cache: CorpusCache | None = None,
) -> SearchResult:
    """Return the `k` best rows in scope for `text`, whose embedding by the scope's model is `vector`, (dimensions,)
    float32.

    Without `weights` the types of the candidates decide them. The connection's `counterpoint.project` is set by the
    caller. A scope of more than `exact_rows` rows is searched by its project's index if there is one, with that
    `ef_search` (or the number of candidates), and scanned if the index returns too few. The result has as many hits as
    there are rows in scope, up to `k`. With `of_rows`, numbers of rows of `vectors`, only those are in scope, and all
    of them are scanned. Corpora in `corpus_cache` are not read again. Raises `Permanent` as `parse_query` does.
    """
    parsed = parse_query(text)
    if _is_empty(parsed):
        return SearchResult((), QueryPlan.NONE, ())
    query = await _analyse(connection, scope, parsed)
    dense_alone = weights == fixed(1)
    if not query.rows or not (query.lexical_terms or dense_alone):
        return SearchResult((), QueryPlan.NONE, query.lexical_terms)
    parsed_query = query.parsed(vector, max(CANDIDATES, 4 * k))
    plan = QueryPlan.EXACT
    found = Candidates()
    kind = indexed_as(len(vector))
    if of_rows is None and query.rows > exact_rows and query.has_index and kind is not None:
        found = await search_index(connection, scope, parsed_query, kind, ef_search or min(parsed_query.most, 1000))
    if found.nearest >= min(parsed_query.most, query.rows):
        plan = QueryPlan.INDEXED
    else:
        found = await scan_all(connection, scope, query.states, parsed_query, of_rows, corpus_cache)
    return SearchResult(_ranked(query, found, vector, weights, k), plan, query.lexical_terms)


@dataclass(frozen=True)
class _AnalysedQuery:
    """A query parsed by PostgreSQL, with the statistics of the rows in scope: their number and mean length in terms,
    and of each known term the number of rows that contain it and its hash."""

    words: Sequence[str]
    phrases: Sequence[tuple[str, list[str]]]
    names: Sequence[str]
    plain: frozenset[str]
    holders: Mapping[str, int]
    hashes: Mapping[str, int]
    rows: int
    mean_length: float
    has_index: bool
    states: Mapping[StoreKey, CorpusState]

    @property
    def lexical_terms(self) -> tuple[str, ...]:
        """Return the terms of the lexical leg."""
        return (*(phrase for phrase, _ in self.phrases), *self.words)

    @cached_property
    def idf_of_terms(self) -> dict[str, float]:
        """Return the idf of each word, also of those in no row."""
        return {term: idf(self.rows, self.holders.get(term, 0)) for term in self.words}

    def parsed(self, vector: Vectors, most: int) -> ParsedQuery:
        """Return the query for both legs, each of which brings `most` candidates."""
        return ParsedQuery(
            vector=vector,
            phrases=_with_rarest_word(self.phrases, self.holders),
            hashes=self.hashes,
            names=self.names,
            most=most,
            rows=self.rows,
            mean_length=self.mean_length,
            **_divided({term: value for term, value in self.idf_of_terms.items() if term in self.holders}),
        )


async def _analyse(connection: "Connection", scope: SearchScope, query_terms: Terms) -> _AnalysedQuery:
    # At most half of the terms are exact forms: a long stack trace must not displace its words.
    exact = list(query_terms.exact[: MAX_TERMS // 2])
    row = await connection.fetchrow(
        _SQL["analyse_query"],
        scope.project,
        list(scope.stores),
        scope.max_label,
        query_terms.words,
        exact,
        list(query_terms.phrases),
        MAX_TERMS,
        index_of(scope.project, scope.model),
    )
    assert row is not None
    phrase_words = [words.split(" ") for words in row["phrase_words"]]
    phrases = list(zip(row["phrases"], phrase_words, strict=True))[: MAX_TERMS // 4]
    return _AnalysedQuery(
        words=list(dict.fromkeys([*exact, *row["words"]]))[: MAX_TERMS - len(phrases)],
        phrases=phrases,
        names=query_terms.names,
        plain=frozenset(query_terms.words.split()),
        holders=dict(zip(row["terms"], row["holders"], strict=True)),
        hashes=dict(zip(row["terms"], row["hashes"], strict=True)),
        rows=row["rows"],
        mean_length=max(row["length"], 1) / max(row["rows"], 1),
        has_index=row["has_index"],
        states=_states(row["states"]),
    )


def _ranked(
    query: _AnalysedQuery, found: Candidates, vector: Vectors, weights: Weights | None, k: int
) -> tuple[HybridHit, ...]:
    """Return the `k` best candidates, equal ones by project, store and id, not by the time they were written; `weights`
    may include the similarity to the best of them."""
    if not found.each:
        return ()
    rarest = idf(query.rows, 1)
    cosines = found.likeness(vector)
    features = _features(found, cosines, query.plain, rarest)
    weights = weights or adaptive(each.type for each in found.each)
    if weights.feedback:
        first = best(fuse(features, weights).score, [each.row for each in found.each], BEST)
        features = features._replace(alike=_rounded(found.likeness(found.middle(first))))
    fused = fuse(features, weights)
    keys = [(each.project, each.store, each.id, each.row) for each in found.each]
    spread = _Spread.of(found, query.rows, fsum(query.idf_of_terms.values()), rarest)
    return tuple(
        spread.hit(found.each[n], cosines[n], *(float(part[n]) for part in fused)) for n in best(fused.score, keys, k)
    )


def _features(found: Candidates, cosines: Sequence[float], names: Set[str], rarest: float) -> Features:
    return Features(
        lexical=_rounded(each.lexical for each in found.each),
        dense=_rounded(cosines),
        named=np.array([not names.isdisjoint(each.names) for each in found.each], np.float64),
        chars=np.array([each.chars for each in found.each], np.float64),
        exact=_rounded(each.named / rarest for each in found.each),
    )


def _rounded(scores: Iterable[float]) -> Floats:
    return np.array([round(score, DIGITS) for score in scores])


@dataclass(frozen=True)
class _Spread:
    """The spread of the scores of all rows in scope, the sum of the idf of the query's terms, and the idf of a term of
    one row alone."""

    lexical: tuple[float, float]
    cosine: tuple[float, float]
    idf_of_terms: float
    rarest: float

    @staticmethod
    def of(found: Candidates, rows: int, idf_of_terms: float, rarest: float) -> "_Spread":
        many = max(rows, FEW)
        mean = found.lexical_sum / many
        deviation = max(found.lexical_squares / many - mean * mean, 0) ** 0.5
        return _Spread((mean, deviation), (found.cosine_mean, found.cosine_deviation), idf_of_terms, rarest)

    def hit(
        self,
        candidate: Candidate,
        cosine: float,
        score: float,
        words: float,
        meaning: float,
        named: float,
        fullness: float,
        exact: float,
    ) -> HybridHit:
        lexical = candidate.lexical
        scores = {
            "lexical": lexical,
            "dense": cosine,
            "cosine": cosine,
            "lexical_z": _z(lexical, *self.lexical),
            "cosine_z": _z(cosine, *self.cosine),
            "rarest": self.rarest,
            "coverage": candidate.covered / self.idf_of_terms if self.idf_of_terms else 0.0,
            "by_words": words,
            "by_meaning": meaning,
            "by_name": named,
            "by_fullness": fullness,
            "by_exact_form": exact,
        }
        rounded = {name: round(value, _Z_DIGITS if name.endswith("_z") else 6) for name, value in scores.items()}
        return HybridHit(candidate.project, candidate.store, candidate.id, score, rounded)


def _z(value: float, mean: float, deviation: float) -> float:
    return (value - mean) / deviation if deviation else 0.0


def _divided(idf_of_terms: dict[str, float]) -> dict[str, dict[str, float]]:
    """Divide terms into those that `bring` candidates and `other` ones, each with its idf."""
    brings = candidate_terms(idf_of_terms)
    return {
        "bring": {term: value for term, value in idf_of_terms.items() if term in brings},
        "other": {term: value for term, value in idf_of_terms.items() if term not in brings},
    }


def _with_rarest_word(phrases: Sequence[tuple[str, list[str]]], holders: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the phrases whose words all occur, each with the word that the fewest rows contain: among those the phrase
    is searched for."""
    return [
        (query, min(words, key=lambda word: holders[word]))
        for query, words in phrases
        if all(word in holders for word in words)
    ]


def _states(states: Sequence[Sequence[str]]) -> dict[StoreKey, CorpusState]:
    return {
        (project, store): CorpusState(changed, int(rows), int(length))
        for project, store, changed, rows, length in states
    }
