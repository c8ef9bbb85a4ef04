"""Hybrid search: BM25 and cosine over the same candidates, fused by score (rows B8, C2)."""

import hashlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

from counterpoint.memory.retrieval.bm25 import bringing, idf
from counterpoint.memory.retrieval.embed import Vectors
from counterpoint.memory.retrieval.fuse import Fused, Signs, Weights, adaptive, fixed, fuse
from counterpoint.memory.retrieval.held import CHANGED, Held, Place, State
from counterpoint.memory.retrieval.terms import Terms, terms
from counterpoint.proto.errors import Permanent, Problem

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

MAX_QUERY_CHARS = 32_000
MAX_TERMS = 48
# Up to here every row is read, which no index beats in recall and few in time. A project with more gets an index of its
# own by the job `counterpoint.memory.index`.
EXACT_ROWS = 20_000
# More than are asked for, so that a row good in both legs but first in neither is among them.
CANDIDATES = 100
# An index holds vectors up to this length as they are, and up to twice that in half precision.
INDEXED_DIMENSIONS, HALVED_DIMENSIONS = 2000, 4000
# The best candidates, to which the others are compared where that says something of them.
BEST = 5
SAMPLE = 500
_CANDIDATES_AT = 11
# Fewer rows than these say nothing of how scores are spread: what is missing counts as rows without any of the words.
FEW = 40
# Of a score. What is behind them depends on the order in which PostgreSQL adds up: on the plan, and so on what else is
# in the table.
DIGITS = 9
# Of deviations, for means added up in another order.
_Z_DIGITS = 3

_EXACT = files(__package__).joinpath("search.sql").read_text()
_BEFORE, _SCOPE, _LEG = _EXACT.partition("-- Materialized, every row")
_, _SAID, _AFTER = _LEG.partition("said AS MATERIALIZED")
_WALK = """(
    SELECT row, embedding::{kind} <=> (SELECT embedding::{kind} FROM question) AS distance
    FROM meanings WHERE project = {project} AND store = ANY ($2::text[]) AND model = $3 AND label <= $4
    ORDER BY distance LIMIT $12)"""
# Each project by an index of its own, which holds no other's rows, and of one model, whose vectors are of one length.
_INDEXED = f"""{_BEFORE}nearest AS MATERIALIZED (
    SELECT row FROM (
        {_WALK.format(project="$1", kind="{kind}")}
        UNION ALL
        {_WALK.format(project="'shared' AND $1 <> 'shared'", kind="{kind}")}) AS of_both
    ORDER BY distance LIMIT $12
),
-- How cosines are spread is estimated from some rows of the project.
spread AS MATERIALIZED (
    SELECT -avg(distance) AS mean, stddev_pop(distance) AS deviation FROM (
        SELECT embedding <#> (SELECT embedding FROM question) AS distance
        FROM meanings WHERE project = $1 AND store = ANY ($2::text[]) AND model = $3 AND label <= $4
        LIMIT {SAMPLE}) AS sampled
),
{_SAID}{_AFTER}"""
_HELD = f"""{_BEFORE}nearest AS MATERIALIZED (
    SELECT unnest($16::bigint[]) AS row
),
spread AS MATERIALIZED (
    SELECT $17::float8 AS mean, $18::float8 AS deviation
),
{_SAID}{_AFTER}"""
_ALIKE = """
SELECT m.row, coalesce(avg(-(m.embedding <#> best.embedding)), 0) AS alike
FROM meanings m CROSS JOIN meanings best
WHERE m.row = ANY ($1::bigint[]) AND m.project IN ($3, 'shared') AND m.model = $4
    AND best.row = ANY ($2::bigint[]) AND best.project IN ($3, 'shared') AND best.model = $4
GROUP BY m.row
"""


def _of_rows(statement: str, parameter: int) -> str:
    """The statement for which only the rows exist whose numbers are a parameter."""
    condition = f"AND row IN (SELECT unnest(${parameter}::bigint[]))"
    for place in (
        "AND embedding IS NOT NULL",
        "AND term = guide AND label <= $4",
        "AND term = given.term AND label <= $4",
    ):
        statement = statement.replace(place, f"{place} {condition}")
    return statement


_FILTERED, _HELD_FILTERED = _of_rows(_EXACT, 16), _of_rows(_HELD, 19)
_PLANNED = "SELECT set_config('plan_cache_mode', 'force_custom_plan', true)"
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
    coalesce(sum(rows), 0)::bigint AS rows,
    coalesce(sum(length), 0)::bigint AS length,
    ARRAY(
        SELECT ARRAY[project, store, {CHANGED}, sum(rows)::text] FROM corpora
        WHERE project IN ($1, 'shared') AND store = ANY ($2::text[]) GROUP BY project, store ORDER BY project, store
    ) AS states
FROM corpora
WHERE project IN ($1, 'shared') AND store = ANY ($2::text[]) AND label <= $3
"""


@dataclass(frozen=True)
class Scope:
    """What a search may see: a project and the shared one, some stores, vectors of one model, labels up to one."""

    project: str
    stores: tuple[str, ...]
    model: str
    max_label: int


@dataclass(frozen=True)
class Hit:
    """A row found. `score` is in [0, 1] within the result.

    `scores` say why: `lexical` is its BM25 score and `cosine` its cosine to the query, `lexical_z` and `cosine_z` how
    many deviations these are above the mean of all rows in scope, `coverage` the share of what the query's words are
    worth together that it holds; `by_words`, `by_meaning`, `by_name`, `by_fullness` and
    `by_exact_form` add up to `score`.
    """

    project: str
    store: str
    id: str
    score: float
    scores: dict[str, float]


@dataclass(frozen=True)
class Searched:
    """The hits, best first, and how they were found: `none` means that there was nothing to look for or in.

    `terms` are what the lexical leg looked for; without any (a query of stop words) nothing is found, unless the dense
    leg alone was asked.
    """

    hits: tuple[Hit, ...]
    method: Literal["exact", "indexed", "none"]
    terms: tuple[str, ...]


def index_of(project: str, model: str) -> str:
    """The name of the index of a project's vectors of a model, where it has one."""
    return f"meanings_of_{hashlib.sha256(f'{project} {model}'.encode()).hexdigest()[:32]}"


def indexed_as(dimensions: int) -> str | None:
    """The type that vectors of this length are indexed as; None for those that are too long for any."""
    if dimensions > HALVED_DIMENSIONS:
        return None
    return f"vector({dimensions})" if dimensions <= INDEXED_DIMENSIONS else f"halfvec({dimensions})"


def prepare(text: str) -> Terms:
    """What a query looks for; raises `Permanent` where it is empty or longer than 32,000 characters."""
    if len(text) > MAX_QUERY_CHARS:
        problem = Problem(
            field="text", problem=f"{len(text)} characters, at most {MAX_QUERY_CHARS} can be searched for"
        )
        raise Permanent("query_too_long", (problem,))
    prepared = terms(text)
    if not prepared.words and not prepared.exact:
        raise Permanent("empty_query", (Problem(field="text", problem="holds no word to look for"),))
    return prepared


async def search(
    connection: "Connection",
    scope: Scope,
    text: str,
    vector: Vectors,
    k: int,
    weights: Weights | None = None,
    exact_rows: int = EXACT_ROWS,
    ef_search: int | None = None,
    of_rows: Sequence[int] | None = None,
    held: Held | None = None,
) -> Searched:
    """The `k` best rows in scope for `text`, whose embedding by the scope's model is `vector`, (dimensions,) float32.

    Without `weights` the types of the candidates decide them. The connection's `counterpoint.project` is set by the
    caller. A scope of more than `exact_rows` rows is searched by its project's index where it has one, with that
    `ef_search` (or as many as are wanted), and read whole where that gives up. As many hits come back as there are rows
    in scope, up to `k`. With `of_rows`, numbers of rows of `vectors`, no others exist, and all of them are read. What
    `held` has is not read again. Raises `Permanent` as `prepare` does.
    """
    prepared = prepare(text)
    candidates = max(CANDIDATES, 4 * k)
    stores = (scope.project, list(scope.stores), scope.max_label)
    # Half of the places at most for exact forms: a long stack trace must not leave its words out.
    exact = list(prepared.exact[: MAX_TERMS // 2])
    analysed = await connection.fetchrow(
        _ANALYSE,
        *stores,
        prepared.words,
        exact,
        list(prepared.phrases),
        MAX_TERMS,
        index_of(scope.project, scope.model),
    )
    assert analysed is not None
    spoken = [words.split(" ") for words in analysed["phrase_words"]]
    phrases = list(zip(analysed["phrases"], spoken, strict=True))[: MAX_TERMS // 4]
    wanted = list(dict.fromkeys([*exact, *analysed["words"]]))[: MAX_TERMS - len(phrases)]
    asked = (*(query for query, _ in phrases), *wanted)
    rows = analysed["rows"]
    meaning_alone = weights == fixed(1)
    if not rows or not (asked or meaning_alone):
        return Searched((), "none", asked)
    holders = dict(zip(analysed["terms"], analysed["holders"], strict=True))
    worth = {term: idf(rows, holders.get(term, 0)) for term in wanted}
    parameters = (
        scope.project, list(scope.stores), scope.model, scope.max_label, vector.tolist(),
        *_weighed({term: value for term, value in worth.items() if term in holders}),
        *_guided([(query, words) for query, words in phrases if all(word in holders for word in words)], holders),
        candidates, rows, max(analysed["length"], 1) / rows, list(prepared.names),
    )  # fmt: skip
    method: Literal["exact", "indexed"] = "exact"
    found: Sequence[asyncpg.Record] = ()
    kind = indexed_as(len(vector))
    if of_rows is None and rows > exact_rows and analysed["walkable"] and kind is not None:
        found = await _indexed(connection, kind, ef_search or min(candidates, 1000), parameters)
    if found and found[0]["nearest"] >= min(candidates, rows):
        method = "indexed"
    else:
        found = await _exact(connection, scope, _states(analysed["states"]), vector, parameters, of_rows, held)
    names = frozenset(prepared.words.split())
    rarest = idf(rows, 1)
    signs = {row["row"]: _signs(row, names, rarest) for row in found}
    weights = weights or adaptive(row["type"] for row in found)
    if weights.feedback and found:
        best = [row for row, _ in fuse(signs, weights)[:BEST]]
        alike = await connection.fetch(_ALIKE, list(signs), best, scope.project, scope.model)
        for row in alike:
            signs[row["row"]] = signs[row["row"]]._replace(alike=round(float(row["alike"]), DIGITS))
    spread = _Spread.of(found, rows, sum(worth.values()))
    by_row = {row["row"]: row for row in found}
    hits = tuple(spread.hit(by_row[row], fused) for row, fused in _ordered(signs, by_row, weights)[:k])
    return Searched(hits, method, asked)


def _signs(row: "asyncpg.Record", names: Set[str], rarest: float) -> Signs:
    return Signs(
        lexical=round(float(row["lexical"]), DIGITS),
        dense=round(float(row["cosine"]), DIGITS),
        named=not names.isdisjoint(row["names"]),
        chars=row["chars"],
        exact=round(float(row["named"]) / rarest, DIGITS),
    )


def _ordered(
    signs: Mapping[int, Signs], by_row: "Mapping[int, asyncpg.Record]", weights: Weights
) -> list[tuple[int, Fused]]:
    """Fused and best first; equal ones by where and what they are, not by when they were written."""
    keys = {row: (of["project"], of["store"], of["id"], row) for row, of in by_row.items()}
    return [(key[3], fused) for key, fused in fuse({keys[row]: each for row, each in signs.items()}, weights)]


@dataclass(frozen=True)
class _Spread:
    """How the scores of all rows in scope are spread, and what the words of the query are worth together."""

    lexical: tuple[float, float]
    cosine: tuple[float, float]
    worth: float

    @staticmethod
    def of(found: "Sequence[asyncpg.Record]", rows: int, worth: float) -> "_Spread":
        if not found:
            return _Spread((0, 0), (0, 0), worth)
        first = found[0]
        many = max(rows, FEW)
        mean = float(first["lexical_sum"] or 0) / many
        deviation = max(float(first["lexical_squares"] or 0) / many - mean * mean, 0) ** 0.5
        cosine = (float(first["cosine_mean"] or 0), float(first["cosine_deviation"] or 0))
        return _Spread((mean, deviation), cosine, worth)

    def hit(self, row: "asyncpg.Record", fused: Fused) -> Hit:
        lexical, cosine = float(row["lexical"]), float(row["cosine"])
        scores = {
            "lexical": lexical,
            "dense": cosine,
            "cosine": cosine,
            "lexical_z": _z(lexical, *self.lexical),
            "cosine_z": _z(cosine, *self.cosine),
            "coverage": float(row["covered"]) / self.worth if self.worth else 0.0,
            "by_words": fused.words,
            "by_meaning": fused.meaning,
            "by_name": fused.named,
            "by_fullness": fused.fullness,
            "by_exact_form": fused.exact,
        }
        rounded = {name: round(value, _Z_DIGITS if name.endswith("_z") else 6) for name, value in scores.items()}
        return Hit(row["project"], row["store"], row["id"], fused.score, rounded)


def _z(value: float, mean: float, deviation: float) -> float:
    return (value - mean) / deviation if deviation else 0.0


def _weighed(worth: dict[str, float]) -> tuple[list[str], list[float], list[str], list[float]]:
    """Terms that bring candidates with their worth, and the others with theirs."""
    brings = bringing(worth)
    bring = {term: value for term, value in worth.items() if term in brings}
    other = {term: value for term, value in worth.items() if term not in brings}
    return list(bring), list(bring.values()), list(other), list(other.values())


def _guided(phrases: Sequence[tuple[str, list[str]]], holders: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Phrases, and of each the word that the fewest rows hold: among those rows it is looked for."""
    return [query for query, _ in phrases], [min(words, key=lambda word: holders[word]) for _, words in phrases]


def _states(states: Sequence[Sequence[str]]) -> dict[Place, State]:
    return {(project, store): State(changed, int(rows)) for project, store, changed, rows in states}


async def _exact(
    connection: "Connection",
    scope: Scope,
    states: Mapping[Place, State],
    vector: Vectors,
    parameters: Sequence[Any],
    of_rows: Sequence[int] | None,
    held: Held | None,
) -> "Sequence[asyncpg.Record]":
    """All rows are compared: in RAM where they are held, else by the database."""
    nearest = None
    if held is not None:
        most = parameters[_CANDIDATES_AT]
        nearest = await held.nearest(connection, states, scope.model, scope.max_label, vector, most, of_rows)
    filtered = () if of_rows is None else (list(of_rows),)
    if nearest is None:
        await connection.execute(_PLANNED)
        return await connection.fetch(_FILTERED if filtered else _EXACT, *parameters, *filtered)
    known = (nearest.rows, nearest.mean, nearest.deviation)
    return await connection.fetch(_HELD_FILTERED if filtered else _HELD, *parameters, *known, *filtered)


async def _indexed(
    connection: "Connection", kind: str, ef_search: int, parameters: Sequence[object]
) -> "list[asyncpg.Record]":
    """The index walks on until it has enough rows of the scope; by default it stops at the nearest of all projects."""
    async with connection.transaction():
        await connection.execute(
            "SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', $1, true),"
            " set_config('plan_cache_mode', 'force_custom_plan', true)",
            str(ef_search),
        )
        return await connection.fetch(_INDEXED.replace("{kind}", kind), *parameters)
