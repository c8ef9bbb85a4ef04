"""Postings: always what the vectors say, read by their key, and only as many as tell rows apart."""

import json
import math
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.local.postgres import PostgresUrls
from counterpoint.memory.embedding.model import DIMENSIONS
from counterpoint.memory.record.migrate import migrate
from counterpoint.memory.search import hybrid as searching
from counterpoint.memory.search.bm25 import NEGLIGIBLE, candidate_terms, idf
from counterpoint.memory.search.candidates import SearchScope
from counterpoint.memory.search.fusion import fixed
from counterpoint.memory.search.hybrid import search
from counterpoint.memory.search.terms import terms

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

SCOPE = SearchScope("orders", ("chunks",), "model-a", 2)
VECTOR = np.eye(1, DIMENSIONS, dtype=np.float32)[0]
WRITE = """
INSERT INTO vectors (project, store, id, version, source, label, model, lexemes, embedding)
SELECT $1, 'chunks', id, 1, 'source', $3, 'model-a', to_tsvector('english', words) || array_to_tsvector(exact),
    $4::real[]::vector
FROM unnest($2::text[], $5::text[]) AS new (id, words), LATERAL string_to_array($6, ' ') AS exact
ON CONFLICT (project, store, id) DO UPDATE SET lexemes = excluded.lexemes, label = excluded.label
"""
FROM_VECTORS = {
    "postings": "SELECT project, store, lexeme AS term, row, length(lexemes) AS length, label,"
    " coalesce(cardinality(positions), 1) AS tf FROM vectors, unnest(lexemes)",
    "lexicon": "SELECT project, store, lexeme AS term, label, count(*) AS rows FROM vectors, unnest(lexemes)"
    " GROUP BY 1, 2, 3, 4",
    "corpora": "SELECT project, store, label, count(*) AS rows, sum(length(lexemes))::bigint AS length FROM vectors"
    " GROUP BY 1, 2, 3",
}


async def write(memory: Connection, project: str, texts: dict[str, str], label: int = 0, exact: str = "a_1") -> None:
    await memory.execute("SELECT set_config('counterpoint.project', $1, false)", project)
    await memory.execute(WRITE, project, list(texts), label, VECTOR.tolist(), list(texts.values()), exact)


async def contents(owner: Connection, table: str) -> tuple[set[tuple[Any, ...]], set[tuple[Any, ...]]]:
    """Return the rows of a table, and the rows it should have."""
    wanted = await owner.fetch(FROM_VECTORS[table])
    columns = ", ".join(wanted[0].keys()) if wanted else "1"
    held = await owner.fetch(f"SELECT {columns} FROM {table}" + ("" if table == "postings" else " WHERE rows <> 0"))
    return {tuple(row) for row in held}, {tuple(row) for row in wanted}


async def test_postings_follow_writes_changes_and_deletions(owner: Connection, memory: Connection) -> None:
    async def check(rows: int) -> None:
        assert await owner.fetchval("SELECT count(*) FROM vectors") == rows
        for table in FROM_VECTORS:
            held, wanted = await contents(owner, table)
            assert held == wanted, table

    await write(memory, "orders", {"one": "cats and dogs", "two": "dogs dogs dogs"})
    await write(memory, "billing", {"one": "cats"}, label=2)
    await check(3)
    await write(memory, "orders", {"two": "birds and dogs", "three": "cats"}, label=1, exact="b.2 a_1")
    await check(4)
    await memory.execute("UPDATE vectors SET label = 3 WHERE project = 'orders' AND id = 'one'")
    await check(4)
    await memory.execute("DELETE FROM vectors WHERE project = 'orders' AND id IN ('one', 'three')")
    await check(2)
    await memory.execute("DELETE FROM vectors WHERE project = 'orders'")
    await check(1)


async def test_a_migration_fills_the_postings_of_existing_records(postgres: PostgresUrls) -> None:
    """By an owner that row-level security binds."""
    admin = await asyncpg.connect(postgres.admin)
    await admin.execute("CREATE ROLE grower LOGIN PASSWORD 'grower'")
    await admin.execute("CREATE DATABASE grown OWNER grower")
    await admin.close()
    parts = urlsplit(postgres.admin)
    url = urlunsplit(parts._replace(path="/grown"))
    admin = await asyncpg.connect(url)
    await admin.execute("CREATE EXTENSION vector")
    grower_url = urlunsplit(parts._replace(path="/grown", netloc=f"grower:grower@{parts.hostname}:{parts.port}"))
    grower = await asyncpg.connect(grower_url)
    await grower.execute("CREATE TABLE migrations (name text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())")
    await grower.execute("INSERT INTO migrations VALUES ('0001_house.sql')")
    await grower.execute(files("counterpoint.memory.record").joinpath("migrations/0001_house.sql").read_text())
    for project in ("orders", "shared", "billing"):
        await grower.execute("INSERT INTO projects (project) VALUES ($1)", project)
        await write(grower, project, {"one": "cats and dogs", "two": f"{project} has dogs"})
    await grower.close()
    assert (await migrate(grower_url))[0] == "0002_search.sql"
    try:
        for table in FROM_VECTORS:
            held, wanted = await contents(admin, table)
            assert held == wanted, table
            assert {row[0] for row in held} == {"orders", "shared", "billing"}
    finally:
        await admin.close()


@pytest.mark.parametrize("looked_at", [False, True], ids=["a young table", "after autovacuum"])
async def test_a_search_reads_the_postings_of_its_terms_alone(
    owner: Connection, memory: Connection, looked_at: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for project in ("orders", "billing"):
        texts = {f"c-{n}": f"every row is common but has word{n} and kind{n % 40}" for n in range(3_000)}
        await write(memory, project, texts, exact="")
    if looked_at:
        await owner.execute("ANALYZE vectors, postings, lexicon, corpora")
    await memory.execute("SELECT set_config('counterpoint.project', 'orders', false)")
    read: dict[str, float] = {}
    fetch = memory.fetch

    async def explained(sql: str, *values: Any) -> Any:
        nodes = [json.loads(await memory.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *values))[0]["Plan"]]
        while nodes:
            node = nodes.pop()
            nodes += node.get("Plans", [])
            if node.get("Relation Name") in ("postings", "lexicon"):
                rows = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
                assert node["Node Type"] != "Seq Scan"
                read[node["Relation Name"]] = read.get(node["Relation Name"], 0) + rows
        return await fetch(sql, *values)

    wrapped = _Spy(memory, explained)
    found = await search(wrapped, SCOPE, "common row with word77 of kind37", VECTOR, 10)  # type: ignore[arg-type]
    assert (found.hits[0].id, found.plan) == ("c-77", "exact")
    assert sum(hit.scores["lexical"] > 1 for hit in found.hits) == 10, "of the same kind"
    # `word77` and `kind37` bring one and 75 rows; `common` and `row`, in every row, are looked up for candidates only.
    assert read["postings"] <= 76 + 3 * 2 * 200
    monkeypatch.setattr(searching, "candidate_terms", frozenset)
    everything = await search(memory, SCOPE, "common row with word77 of kind37", VECTOR, 10)
    assert [(hit.id, round(hit.scores["lexical"], 9)) for hit in everything.hits] == [
        (hit.id, round(hit.scores["lexical"], 9)) for hit in found.hits
    ]


class _Spy:
    """A connection whose statements of many rows are explained."""

    def __init__(self, connection: Connection, fetch: Any) -> None:
        self.fetchrow, self.execute = connection.fetchrow, connection.execute
        self.fetch = fetch


async def test_a_phrase_is_looked_for_where_its_rarest_word_is(owner: Connection, memory: Connection) -> None:
    texts = {f"c-{n}": "the service is known by its name" for n in range(50)}
    texts |= {"said": "error: name or service not known", "parted": "known name, unknown service, not found, resolver"}
    await write(memory, "orders", texts)
    said = await search(memory, SCOPE, '"name or service not known" resolver', VECTOR, 3, fixed(0))
    loose = await search(memory, SCOPE, "name or service not known resolver", VECTOR, 60, fixed(0))
    lexical = {hit.id: hit.scores["lexical"] for hit in loose.hits}
    assert said.hits[0].id == "said"
    assert lexical["said"] < lexical["parted"], "without the quotes it is second"
    phrase = idf(len(texts), 1)
    length = len(terms(texts["said"]).words.split()) - 2 + 1
    mean = await owner.fetchval("SELECT sum(length) / sum(rows) FROM corpora WHERE project = 'orders'")
    worth = phrase * 2.2 / (1 + 1.2 * (0.25 + 0.75 * length / float(mean)))
    assert said.hits[0].scores["lexical"] - lexical["said"] == pytest.approx(worth)


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.floats(1e-6, 20), max_size=48))
def test_dropped_candidate_terms_have_negligible_weight(worth: dict[str, float]) -> None:
    brings = candidate_terms(worth)
    left = set(worth) - brings
    assert sum(worth[term] for term in left) <= NEGLIGIBLE * sum(worth.values()) + 1e-9
    assert all(worth[dropped] <= worth[kept] for dropped in left for kept in brings)
    assert bool(brings) == bool(worth)


@given(st.integers(1, 10**6), st.data())
def test_a_rarer_term_is_worth_more(rows: int, data: st.DataObject) -> None:
    holders = data.draw(st.integers(1, rows))
    assert 0 < idf(rows, holders) <= idf(rows, max(1, holders - 1)) < math.inf
