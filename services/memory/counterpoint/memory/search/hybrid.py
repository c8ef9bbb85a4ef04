"""Hybrid search: BM25 and cosine over the same candidates, fused by score."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from counterpoint.memory.embedding.model import Vectors
from counterpoint.memory.search.bm25 import bringing, idf
from counterpoint.memory.search.candidates import Candidate, Candidates, ParsedQuery, SearchScope
from counterpoint.memory.search.corpus_cache import CHANGED, HASH, CorpusCache, CorpusState
from counterpoint.memory.search.corpus_index import Place
from counterpoint.memory.search.fusion import CandidateFeatures, FusedScore, Weights, adaptive, fixed, fuse
from counterpoint.memory.search.scan import compared, index_of, indexed_as, walked
from counterpoint.memory.search.terms import Terms, terms
from counterpoint.proto.errors import ErrorCode, Permanent, Problem

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

MAX_QUERY_CHARS = 32_000
MAX_TERMS = 48
# Up to here every row is read, which no index beats in recall and few in time. A project with more gets an index of its
# own by the job `counterpoint.memory.search.index`.
EXACT_ROWS = 20_000
# More than are asked for, so that a row good in both legs but first in neither is among them.
CANDIDATES = 100
# The best candidates, to which the others are compared where that says something of them.
BEST = 5
# Fewer rows than these say nothing of how scores are spread: what is missing counts as rows without any of the words.
FEW = 40
# Of a score. What is behind them depends on the order in which PostgreSQL adds up: on the plan, and so on what else is
# in the table.
DIGITS = 9
# Of deviations, for means added up in another order.
_Z_DIGITS = 3

_ANALYSE = f"""
WITH words AS MATERIALIZED (
    SELECT lexeme, cardinality(positions) AS times, positions[1] AS place FROM unnest(to_tsvector('english', $4))
    ORDER BY times DESC, place LIMIT $7
),
phrases AS MATERIALIZED (
    SELECT query::text AS query, tsvector_to_array(to_tsvector('english', phrase)) AS words
    FROM (SELECT phrase, phraseto_tsquery('english', phrase) AS query FROM unnest($6::text[]) AS phrase)
    WHERE numnode(query) > 1
),
held AS MATERIALIZED (
    SELECT term, sum(rows)::bigint AS holders FROM lexicon
    WHERE project IN ($1, 'shared') AND store = ANY ($2::text[]) AND label <= $3 AND rows > 0
        AND term = ANY ($5 || ARRAY(SELECT lexeme FROM words UNION SELECT unnest(words) FROM phrases))
    GROUP BY term
)
SELECT
    -- For what follows in this transaction: where no table is scanned, a plan for the values only takes longer to make.
    set_config('plan_cache_mode', 'force_generic_plan', true) AS planned_once,
    EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass($8) AND indisvalid) AS walkable,
    ARRAY(SELECT lexeme FROM words ORDER BY times DESC, place) AS words,
    ARRAY(SELECT query FROM phrases) AS phrases,
    ARRAY(SELECT array_to_string(words, ' ') FROM phrases) AS phrase_words,
    ARRAY(SELECT term FROM held ORDER BY term) AS terms,
    ARRAY(SELECT holders FROM held ORDER BY term) AS holders,
    ARRAY(SELECT {HASH} FROM held ORDER BY term) AS hashes,
    coalesce(sum(rows), 0)::bigint AS rows,
    coalesce(sum(length), 0)::bigint AS length,
    ARRAY(
        SELECT ARRAY[project, store, {CHANGED}, sum(rows)::text, sum(length)::text] FROM corpora
        WHERE project IN ($1, 'shared') AND store = ANY ($2::text[]) GROUP BY project, store ORDER BY project, store
    ) AS states
FROM corpora
WHERE project IN ($1, 'shared') AND store = ANY ($2::text[]) AND label <= $3
"""


@dataclass(frozen=True)
class HybridHit:
    """A row found. `score` is in [0, 1] within the result.

    `scores` say why: `lexical` is its BM25 score and `cosine` its cosine to the query, `lexical_z` and `cosine_z` how
    many deviations these are above the mean of all rows in scope, `coverage` the share of what the query's words are
    worth together that it holds, `rarest` what a word of one row alone is worth; `by_words`, `by_meaning`, `by_name`,
    `by_fullness` and `by_exact_form` add up to `score`.
    """

    project: str
    store: str
    id: str
    score: float
    scores: dict[str, float]


@dataclass(frozen=True)
class SearchResult:
    """The hits, best first, and how they were found: `none` means that there was nothing to look for or in.

    `terms` are what the lexical leg looked for; without any (a query of stop words) nothing is found, unless the dense
    leg alone was asked.
    """

    hits: tuple[HybridHit, ...]
    method: Literal["exact", "indexed", "none"]
    terms: tuple[str, ...]


def parse_query(text: str) -> Terms:
    """Parse a query. Raises `Permanent` if it is empty or longer than 32,000 characters."""
    if len(text) > MAX_QUERY_CHARS:
        problem = Problem(field="text", problem=f"has {len(text)} characters, the limit is {MAX_QUERY_CHARS}")
        raise Permanent(ErrorCode.QUERY_TOO_LONG, (problem,))
    prepared = terms(text)
    if not prepared.words and not prepared.exact:
        raise Permanent(ErrorCode.EMPTY_QUERY, (Problem(field="text", problem="contains no word to search for"),))
    return prepared


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
    held: CorpusCache | None = None,
) -> SearchResult:
    """The `k` best rows in scope for `text`, whose embedding by the scope's model is `vector`, (dimensions,) float32.

    Without `weights` the types of the candidates decide them. The connection's `counterpoint.project` is set by the
    caller. A scope of more than `exact_rows` rows is searched by its project's index where it has one, with that
    `ef_search` (or as many as are wanted), and read whole where that gives up. As many hits come back as there are rows
    in scope, up to `k`. With `of_rows`, numbers of rows of `vectors`, no others exist, and all of them are read. What
    `held` has is not read again. Raises `Permanent` as `parse_query` does.
    """
    query = await _analysed(connection, scope, parse_query(text))
    meaning_alone = weights == fixed(1)
    if not query.rows or not (query.asked or meaning_alone):
        return SearchResult((), "none", query.asked)
    wanted = query.parsed(vector, max(CANDIDATES, 4 * k))
    method: Literal["exact", "indexed"] = "exact"
    found = Candidates()
    kind = indexed_as(len(vector))
    if of_rows is None and query.rows > exact_rows and query.walkable and kind is not None:
        found = await walked(connection, scope, wanted, kind, ef_search or min(wanted.most, 1000))
    if found.nearest >= min(wanted.most, query.rows):
        method = "indexed"
    else:
        found = await compared(connection, scope, query.states, wanted, of_rows, held)
    return SearchResult(_ranked(query, found, vector, weights, k), method, query.asked)


@dataclass(frozen=True)
class _Analysed:
    """A query as PostgreSQL parsed it, with the statistics of the rows in scope: their number and mean length in terms,
    and of each known term the rows that hold it and its hash."""

    words: Sequence[str]
    phrases: Sequence[tuple[str, list[str]]]
    names: Sequence[str]
    plain: frozenset[str]
    holders: Mapping[str, int]
    hashes: Mapping[str, int]
    rows: int
    mean_length: float
    walkable: bool
    states: Mapping[Place, CorpusState]

    @property
    def asked(self) -> tuple[str, ...]:
        """The terms of the lexical leg."""
        return (*(phrase for phrase, _ in self.phrases), *self.words)

    @cached_property
    def worth(self) -> dict[str, float]:
        """The idf of each word, 0 rows included."""
        return {term: idf(self.rows, self.holders.get(term, 0)) for term in self.words}

    def parsed(self, vector: Vectors, most: int) -> ParsedQuery:
        """Return the query for both legs, each of which brings `most` candidates."""
        return ParsedQuery(
            vector=vector,
            phrases=_guided(self.phrases, self.holders),
            hashes=self.hashes,
            names=self.names,
            most=most,
            rows=self.rows,
            mean_length=self.mean_length,
            **_weighed({term: value for term, value in self.worth.items() if term in self.holders}),
        )


async def _analysed(connection: "Connection", scope: SearchScope, prepared: Terms) -> _Analysed:
    # Half of the places at most for exact forms: a long stack trace must not leave its words out.
    exact = list(prepared.exact[: MAX_TERMS // 2])
    row = await connection.fetchrow(
        _ANALYSE,
        scope.project,
        list(scope.stores),
        scope.max_label,
        prepared.words,
        exact,
        list(prepared.phrases),
        MAX_TERMS,
        index_of(scope.project, scope.model),
    )
    assert row is not None
    spoken = [words.split(" ") for words in row["phrase_words"]]
    phrases = list(zip(row["phrases"], spoken, strict=True))[: MAX_TERMS // 4]
    return _Analysed(
        words=list(dict.fromkeys([*exact, *row["words"]]))[: MAX_TERMS - len(phrases)],
        phrases=phrases,
        names=prepared.names,
        plain=frozenset(prepared.words.split()),
        holders=dict(zip(row["terms"], row["holders"], strict=True)),
        hashes=dict(zip(row["terms"], row["hashes"], strict=True)),
        rows=row["rows"],
        mean_length=max(row["length"], 1) / max(row["rows"], 1),
        walkable=row["walkable"],
        states=_states(row["states"]),
    )


def _ranked(
    query: _Analysed, found: Candidates, vector: Vectors, weights: Weights | None, k: int
) -> tuple[HybridHit, ...]:
    """Return the `k` best candidates; `weights` may include the similarity to the best of them."""
    rarest = idf(query.rows, 1)
    cosines = found.likeness(vector)
    signs = {each.row: _signs(each, cosines.get(each.row, 0.0), query.plain, rarest) for each in found.each}
    weights = weights or adaptive(each.type for each in found.each)
    if weights.feedback and signs:
        best = [found.vectors[row] for row, _ in fuse(signs, weights)[:BEST] if row in found.vectors]
        middle = np.asarray(np.mean(best, axis=0, dtype=np.float64)) if best else np.zeros(len(vector))
        for row, likeness in found.likeness(middle).items():
            signs[row] = signs[row]._replace(alike=round(likeness, DIGITS))
    spread = _Spread.of(found, query.rows, sum(query.worth.values()), rarest)
    by_row = {each.row: each for each in found.each}
    ordered = _ordered(signs, by_row, weights)[:k]
    return tuple(spread.hit(by_row[row], cosines.get(row, 0.0), fused) for row, fused in ordered)


def _signs(candidate: Candidate, cosine: float, names: Set[str], rarest: float) -> CandidateFeatures:
    return CandidateFeatures(
        lexical=round(candidate.lexical, DIGITS),
        dense=round(cosine, DIGITS),
        named=not names.isdisjoint(candidate.names),
        chars=candidate.chars,
        exact=round(candidate.named / rarest, DIGITS),
    )


def _ordered(
    signs: Mapping[int, CandidateFeatures], by_row: Mapping[int, Candidate], weights: Weights
) -> list[tuple[int, FusedScore]]:
    """Fused and best first; equal ones by where and what they are, not by when they were written."""
    keys = {row: (of.project, of.store, of.id, row) for row, of in by_row.items()}
    return [(key[3], fused) for key, fused in fuse({keys[row]: each for row, each in signs.items()}, weights)]


@dataclass(frozen=True)
class _Spread:
    """The spread of the scores of all rows in scope, and the worth of the words of the query together, and of a word
    of one row alone."""

    lexical: tuple[float, float]
    cosine: tuple[float, float]
    worth: float
    rarest: float

    @staticmethod
    def of(found: Candidates, rows: int, worth: float, rarest: float) -> "_Spread":
        many = max(rows, FEW)
        mean = found.lexical_sum / many
        deviation = max(found.lexical_squares / many - mean * mean, 0) ** 0.5
        return _Spread((mean, deviation), (found.cosine_mean, found.cosine_deviation), worth, rarest)

    def hit(self, candidate: Candidate, cosine: float, fused: FusedScore) -> HybridHit:
        lexical = candidate.lexical
        scores = {
            "lexical": lexical,
            "dense": cosine,
            "cosine": cosine,
            "lexical_z": _z(lexical, *self.lexical),
            "cosine_z": _z(cosine, *self.cosine),
            "rarest": self.rarest,
            "coverage": candidate.covered / self.worth if self.worth else 0.0,
            "by_words": fused.words,
            "by_meaning": fused.meaning,
            "by_name": fused.named,
            "by_fullness": fused.fullness,
            "by_exact_form": fused.exact,
        }
        rounded = {name: round(value, _Z_DIGITS if name.endswith("_z") else 6) for name, value in scores.items()}
        return HybridHit(candidate.project, candidate.store, candidate.id, fused.score, rounded)


def _z(value: float, mean: float, deviation: float) -> float:
    return (value - mean) / deviation if deviation else 0.0


def _weighed(worth: dict[str, float]) -> dict[str, dict[str, float]]:
    """Terms that `bring` candidates with their worth, and the `other` ones with theirs."""
    brings = bringing(worth)
    return {
        "bring": {term: value for term, value in worth.items() if term in brings},
        "other": {term: value for term, value in worth.items() if term not in brings},
    }


def _guided(phrases: Sequence[tuple[str, list[str]]], holders: Mapping[str, int]) -> list[tuple[str, str]]:
    """Phrases whose words all are held, and of each that which the fewest rows hold: among those it is looked for."""
    return [
        (query, min(words, key=lambda word: holders[word]))
        for query, words in phrases
        if all(word in holders for word in words)
    ]


def _states(states: Sequence[Sequence[str]]) -> dict[Place, CorpusState]:
    return {
        (project, store): CorpusState(changed, int(rows), int(length))
        for project, store, changed, rows, length in states
    }
