"""Candidates as the database finds them (`search.sql`), or from RAM where a store is held."""

import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoint.memory.search.candidates import Candidate, Candidates, ParsedQuery, SearchScope
from counterpoint.memory.search.corpus_cache import CorpusCache, CorpusState
from counterpoint.memory.search.corpus_index import Place, find

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

# An index holds vectors up to this length as they are, and up to twice that in half precision.
INDEXED_DIMENSIONS, HALVED_DIMENSIONS = 2000, 4000
SAMPLE = 500

_EXACT = files(__package__).joinpath("search.sql").read_text()
_BEFORE, _SCOPE, _LEG = _EXACT.partition("-- Materialized, every row")
_, _SAID, _AFTER = _LEG.partition("said AS MATERIALIZED")
_SPOKEN = _AFTER.partition("(")[2].partition("\n),")[0]
_WALK = """(
    SELECT row, embedding::{kind} <=> (SELECT embedding::{kind} FROM question) AS distance
    FROM meanings WHERE project = {project} AND store = ANY ($2::text[]) AND model = $6 AND label <= $3
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
        FROM meanings WHERE project = $1 AND store = ANY ($2::text[]) AND model = $6 AND label <= $3
        LIMIT {SAMPLE}) AS sampled
),
{_SAID}{_AFTER}"""


def _of_rows(statement: str) -> str:
    """The statement for which only the rows exist whose numbers are a parameter."""
    condition = "AND row IN (SELECT unnest($16::bigint[]))"
    for place in (
        "AND embedding IS NOT NULL",
        "AND term = guide AND label <= $3",
        "AND term = given.term AND label <= $3",
    ):
        statement = statement.replace(place, f"{place} {condition}")
    return statement


_FILTERED = _of_rows(_EXACT)
_PLANNED = "SELECT set_config('plan_cache_mode', 'force_custom_plan', true)"


def index_of(project: str, model: str) -> str:
    """The name of the index of a project's vectors of a model, where it has one."""
    return f"meanings_of_{hashlib.sha256(f'{project} {model}'.encode()).hexdigest()[:32]}"


def indexed_as(dimensions: int) -> str | None:
    """The type that vectors of this length are indexed as; None for those that are too long for any."""
    if dimensions > HALVED_DIMENSIONS:
        return None
    return f"vector({dimensions})" if dimensions <= INDEXED_DIMENSIONS else f"halfvec({dimensions})"


def _parameters(scope: SearchScope, wanted: ParsedQuery) -> tuple[Any, ...]:
    """Those of `search.sql`."""
    return (
        *_scoped(scope, wanted), scope.model, wanted.vector.tolist(),
        list(wanted.bring), list(wanted.bring.values()), list(wanted.other), list(wanted.other.values()),
        wanted.most, wanted.rows, wanted.mean_length, list(wanted.names),
    )  # fmt: skip


def _scoped(scope: SearchScope, wanted: ParsedQuery) -> tuple[Any, ...]:
    phrases, guides = [query for query, _ in wanted.phrases], [guide for _, guide in wanted.phrases]
    return scope.project, list(scope.stores), scope.max_label, phrases, guides


async def compared(
    connection: "Connection",
    scope: SearchScope,
    states: Mapping[Place, CorpusState],
    wanted: ParsedQuery,
    of_rows: Sequence[int] | None,
    held: CorpusCache | None,
) -> Candidates:
    """All rows are compared: in RAM where they are held, else by the database."""
    corpora = None
    if held is not None:
        corpora = held.corpora(states, scope.model, len(wanted.vector))
    if corpora is not None:
        spoken: list[list[int]] = [[] for _ in wanted.phrases]
        for row in await connection.fetch(_SPOKEN, *_scoped(scope, wanted)) if spoken else ():
            spoken[row["n"] - 1].append(row["row"])
        return find(corpora, wanted, scope.max_label, spoken, of_rows)
    await connection.execute(_PLANNED)
    filtered = () if of_rows is None else (list(of_rows),)
    found = await connection.fetch(_FILTERED if filtered else _EXACT, *_parameters(scope, wanted), *filtered)
    return _candidates(found)


async def walked(
    connection: "Connection", scope: SearchScope, wanted: ParsedQuery, kind: str, ef_search: int
) -> Candidates:
    """The index walks on until it has enough rows of the scope; by default it stops at the nearest of all projects."""
    async with connection.transaction():
        await connection.execute(
            "SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', $1, true),"
            " set_config('plan_cache_mode', 'force_custom_plan', true)",
            str(ef_search),
        )
        return _candidates(await connection.fetch(_INDEXED.replace("{kind}", kind), *_parameters(scope, wanted)))


def _candidates(found: "Sequence[asyncpg.Record]") -> Candidates:
    """Parse a row of `search.sql`, whose last columns are the same in all rows."""
    if not found:
        return Candidates()
    columns = len(Candidate._fields)
    nearest, *of_all = tuple(found[0])[columns + 1 :]
    words, squares, mean, deviation = (each or 0.0 for each in of_all)
    each = [Candidate(*tuple(row)[:columns]) for row in found]
    vectors = {row["row"]: np.frombuffer(row["vector"], ">f4") for row in found if row["vector"] is not None}
    return Candidates(each, nearest, words, squares, mean, deviation, vectors)
