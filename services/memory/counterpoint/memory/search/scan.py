"""Candidates from the database (`search.sql`), or from RAM if the store is cached."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoint.memory.record.projects import StoreKey
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.memory.search.candidates import Candidate, Candidates, ParsedQuery, SearchScope
from counterpoint.memory.search.corpus_cache import CorpusCache, CorpusState
from counterpoint.memory.search.corpus_index import find

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

# An index takes vectors of up to this length as they are, and of up to twice that in half precision.
INDEXED_DIMENSIONS, HALVED_DIMENSIONS = 2000, 4000

_SQL = load_statements(__package__)


def _statement(nearest: str, only: str = "") -> str:
    """Return the statement of the candidates, the nearest of them by this part."""
    phrase_rows = _SQL["phrase_rows"].format(only=only)
    return _SQL["candidates"].format(nearest=nearest, phrase_rows=phrase_rows, only=only)


_ONLY = _SQL["only_these_rows"]
_ALL_ROWS = _statement(_SQL["nearest_by_scan"].format(only=""))
_SOME_ROWS = _statement(_SQL["nearest_by_scan"].format(only=_ONLY), _ONLY)
_PHRASE_ROWS = _SQL["phrase_rows"].format(only="")


def index_of(project: str, model: str) -> str:
    """Return the name of the index of a project's vectors of a model."""
    return f"meanings_of_{hashlib.sha256(f'{project} {model}'.encode()).hexdigest()[:32]}"


def indexed_as(dimensions: int) -> str | None:
    """Return the type by which vectors of this length are indexed; None for those that are too long for any."""
    if dimensions > HALVED_DIMENSIONS:
        return None
    return f"vector({dimensions})" if dimensions <= INDEXED_DIMENSIONS else f"halfvec({dimensions})"


def _parameters(scope: SearchScope, query: ParsedQuery) -> tuple[Any, ...]:
    """Return the parameters of the statement `candidates`."""
    return (
        *_scoped(scope, query), scope.model, query.vector.tolist(),
        list(query.bring), list(query.bring.values()), list(query.other), list(query.other.values()),
        query.most, query.rows, query.mean_length, list(query.names),
    )  # fmt: skip


def _scoped(scope: SearchScope, query: ParsedQuery) -> tuple[Any, ...]:
    phrases, guides = [phrase for phrase, _ in query.phrases], [guide for _, guide in query.phrases]
    return scope.project, list(scope.stores), scope.max_label, phrases, guides


async def scan_all(
    connection: "Connection",
    scope: SearchScope,
    states: Mapping[StoreKey, CorpusState],
    query: ParsedQuery,
    of_rows: Sequence[int] | None,
    corpus_cache: CorpusCache | None,
) -> Candidates:
    """Compare all rows: in RAM if the stores are cached, else by the database."""
    corpora = None
    if corpus_cache is not None:
        corpora = corpus_cache.corpora(states, scope.model, len(query.vector))
    if corpora is not None:
        phrase_rows: list[list[int]] = [[] for _ in query.phrases]
        for row in await connection.fetch(_PHRASE_ROWS, *_scoped(scope, query)) if phrase_rows else ():
            phrase_rows[row["n"] - 1].append(row["row"])
        return find(corpora, query, scope.max_label, phrase_rows, of_rows)
    await connection.execute("SELECT set_config('plan_cache_mode', 'force_custom_plan', true)")
    filtered = () if of_rows is None else (list(of_rows),)
    found = await connection.fetch(_SOME_ROWS if filtered else _ALL_ROWS, *_parameters(scope, query), *filtered)
    return _candidates(found, len(query.vector))


async def search_index(
    connection: "Connection", scope: SearchScope, query: ParsedQuery, kind: str, ef_search: int
) -> Candidates:
    """Search by the index."""
    async with connection.transaction():
        await connection.execute(_SQL["set_index_scan"], str(ef_search))
        statement = _statement(_SQL["nearest_by_index"].format(kind=kind))
        found = await connection.fetch(statement, *_parameters(scope, query))
        return _candidates(found, len(query.vector))


def _candidates(found: "Sequence[asyncpg.Record]", dimensions: int) -> Candidates:
    """Parse the rows of the statement `candidates`, whose last columns are the same in all rows."""
    if not found:
        return Candidates()
    columns = len(Candidate._fields)
    nearest, *of_all = tuple(found[0])[columns + 1 :]
    words, squares, mean, deviation = (each or 0.0 for each in of_all)
    each = [Candidate(*tuple(row)[:columns]) for row in found]
    with_vector = np.array([row["vector"] is not None for row in found])
    vectors = np.zeros((len(found), dimensions))
    for n, row in enumerate(found):
        if with_vector[n]:
            vectors[n] = np.frombuffer(row["vector"], ">f4")
    return Candidates(each, nearest, words, squares, mean, deviation, vectors, with_vector)
