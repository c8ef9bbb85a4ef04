"""Stores held in RAM: the same rows are found as without, whatever was changed in between (rows B8, C2)."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import pytest
from diode.memory_house import PERSON, House
from retrieval.test_search import MODEL, Connection, store, unit, use

from counterpoint.local.postgres import PostgresUrls, run_postgres
from counterpoint.memory.migrate import migrate
from counterpoint.memory.retrieval.candidates import Scope
from counterpoint.memory.retrieval.corpus import bytes_of
from counterpoint.memory.retrieval.embed import Vectors
from counterpoint.memory.retrieval.fuse import Weights, fixed
from counterpoint.memory.retrieval.held import SEARCHES, Held
from counterpoint.memory.retrieval.search import Searched, search
from counterpoint.memory.search import Embedded, Search
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import VectorSearch, Write

WORDS = ("resolver", "firewall", "orders", "cats", "provider", "disk", "token", "lease", "clean_orders", "ORA-12170")
TEXT = "the resolver and the orders of cats"
TEXTS = (
    TEXT,
    'who said "orders cats" or "firewall disk", and clean_orders?',
    "ann on ORA-12170 and the lease",
    "nothing known",
)
TYPES = ("python", "markdown", "conversation", "")
READ = "vector_send"


class Watched:
    """A connection that counts how often a store is read for RAM, and how often all rows are compared."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.read = self.compared = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def fetchrow(self, statement: str, *values: Any) -> Any:
        self.read += READ in statement
        return await self._connection.fetchrow(statement, *values)

    async def fetch(self, statement: str, *values: Any) -> Any:
        self.compared += "scope AS MATERIALIZED" in statement
        return await self._connection.fetch(statement, *values)


def scope(label: int = 2, project: str = "orders") -> Scope:
    return Scope(project, ("chunks",), MODEL, label)


async def looked(
    memory: Any,
    held: Held | None,
    vector: Vectors,
    label: int = 2,
    weights: Weights | None = None,
    of_rows: Sequence[int] | None = None,
    project: str = "orders",
    text: str = TEXT,
) -> Searched:
    return await search(memory, scope(label, project), text, vector, 20, weights, of_rows=of_rows, held=held)


def shown(found: Searched) -> list[Any]:
    """Scores add up vectors in other orders in RAM and in the database."""
    return [
        (
            hit.project,
            hit.id,
            pytest.approx(hit.score, abs=1e-5),
            {
                name: pytest.approx(value, abs=2e-3 if name.endswith("_z") else 1e-5)
                for name, value in hit.scores.items()
            },
        )
        for hit in found.hits
    ]


async def filled(owner: Connection, draw: random.Random, rows: int, project: str = "orders") -> None:
    for n in range(rows):
        text = " ".join(draw.choices(WORDS, k=6))
        await store(owner, {f"{project}-{n}": text}, project=project, label=draw.randrange(3))
        await owner.execute(
            "UPDATE vectors SET type = $3, names = $4, chars = $5 WHERE project = $1 AND id = $2",
            project,
            f"{project}-{n}",
            draw.choice(TYPES),
            draw.choice((["ann"], ["bob", "orders"], [])),
            draw.randrange(400),
        )
        await owner.execute(
            "UPDATE meanings SET embedding = $1::real[]::vector"
            " WHERE row = (SELECT row FROM vectors WHERE project = $2 AND id = $3)",
            unit(draw.randrange(10_000)).tolist(),
            project,
            f"{project}-{n}",
        )


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_held_is_what_the_database_says_after_every_change(
    owner: Connection, memory: Connection, seed: int
) -> None:
    draw = random.Random(seed)
    await filled(owner, draw, 120)
    await filled(owner, draw, 30, project="shared")
    await use(memory, "orders")
    held = Held(searches=1)
    watched = Watched(memory)
    for turn in range(25):
        await changed(owner, draw, turn)
        rows = [row["row"] for row in await owner.fetch("SELECT row FROM vectors ORDER BY row")]
        of_rows = draw.choice((None, draw.sample(rows, len(rows) // 3)))
        weights = draw.choice((None, fixed(1), fixed(0.5)))
        vector, label, text = unit(draw.randrange(10_000)), draw.randrange(3), draw.choice(TEXTS)
        for _ in range(2):
            found = await looked(watched, held, vector, label, weights, of_rows, text=text)
            assert found.hits or text == TEXTS[-1]
            assert shown(found) == shown(await looked(memory, None, vector, label, weights, of_rows, text=text))
    assert watched.compared == 0, "all rows were compared by the database after all"
    assert watched.read > 10


async def changed(owner: Connection, draw: random.Random, turn: int) -> None:
    """One of the ways in which what a search finds can change."""
    project = draw.choice(("orders", "orders", "shared"))
    match draw.randrange(6):
        case 0:
            await store(owner, {f"new-{turn}": "resolver orders"}, project=project, label=draw.randrange(3))
        case 1:
            await owner.execute(
                "DELETE FROM vectors WHERE row = (SELECT row FROM vectors WHERE project = $1 ORDER BY id LIMIT 1)",
                project,
            )
        case 2:
            await owner.execute(
                "UPDATE vectors SET lexemes = to_tsvector('english', 'cats'), label = $3,"
                " model = $4, embedding = $2::real[]::vector"
                " WHERE row = (SELECT row FROM vectors WHERE project = $1 ORDER BY id DESC LIMIT 1)",
                project,
                unit(turn).tolist(),
                draw.randrange(3),
                MODEL,
            )
        case 3:
            # What was not known of a row by the model that is searched by is filled in.
            row = await owner.fetchval("DELETE FROM meanings WHERE row = (SELECT min(row) FROM meanings) RETURNING row")
            await owner.execute("UPDATE vectors SET chars = chars + 1 WHERE row = $1", row)
            await owner.execute(
                "INSERT INTO meanings (row, model, project, store, version, label, embedding)"
                " SELECT row, $2, project, store, version, label, $3::real[]::vector FROM vectors WHERE row = $1"
                " ON CONFLICT DO NOTHING",
                row,
                MODEL,
                unit(turn).tolist(),
            )
        case 4:
            # The model was not asked about it yet.
            await owner.execute(
                "INSERT INTO vectors (project, store, id, version, source, label, lexemes, chars)"
                " VALUES ($1, 'chunks', $2, 1, 'source', $3, to_tsvector('english', 'orders cats'), 40)",
                project,
                f"unasked-{turn}",
                draw.randrange(3),
            )
        case 5:
            # A neighbour's writing is no change of ours.
            await store(owner, {f"theirs-{turn}": "resolver orders cats"}, project="billing")


async def test_a_store_that_is_changed_between_searches_is_not_read_for_ram(
    owner: Connection, memory: Connection
) -> None:
    await filled(owner, random.Random(7), 20)
    await use(memory, "orders")
    held, watched = Held(searches=3), Watched(memory)
    for n in range(6):
        await store(owner, {f"again-{n}": "cats"})
        for _ in range(2):
            await looked(watched, held, unit(n))
    assert (watched.read, watched.compared) == (0, 12)
    for _ in range(3):
        await looked(watched, held, unit(1))
    assert (watched.read, watched.compared) == (1, 12)


async def test_a_neighbours_vectors_are_never_read(owner: Connection, memory: Connection) -> None:
    draw = random.Random(3)
    await filled(owner, draw, 10)
    await filled(owner, draw, 10, project="billing")
    held = Held(searches=1)
    for project in ("orders", "billing", "orders"):
        await use(memory, project)
        found = await looked(memory, held, unit(5), project=project)
        assert {hit.project for hit in found.hits} == {project}
    # Who asks for another project's by name gets nothing, for row-level security is beneath.
    await use(memory, "orders")
    assert not (await looked(memory, Held(searches=1), unit(5), project="billing")).hits


async def test_no_more_is_held_than_may_be(owner: Connection, memory: Connection) -> None:
    projects = ("orders", "billing", "stock")
    for project in projects:
        await filled(owner, random.Random(1), 10, project=project)
    await use(memory, "orders")
    alone = Held(searches=1)
    await looked(memory, alone, unit(1))
    (size,) = [corpus.bytes for corpus in alone._held.values()]
    held = Held(limit_bytes=2 * size, searches=1)
    watched = Watched(memory)
    for project in (*projects, "stock", "billing", "orders"):
        await use(memory, project)
        await looked(watched, held, unit(1), project=project)
    assert watched.read == 4, "the first went for the third, and the third stayed"
    small = Held(limit_bytes=bytes_of(10, 384, 0) - 1, searches=1)
    await looked(watched, small, unit(1))
    assert watched.read == 4, "what can never be held is not read for it"


async def test_what_turns_out_too_large_is_not_read_by_every_search(owner: Connection, memory: Connection) -> None:
    """The words of a store are counted too, and nothing else goes for what cannot stay."""
    await filled(owner, random.Random(1), 10, project="billing")
    await store(owner, {f"{n}": " ".join(f"w{n}x{word}" for word in range(40)) for n in range(10)})
    held, watched = Held(limit_bytes=bytes_of(10, 384, 400, 300), searches=1), Watched(memory)
    for project in ("billing", "orders", "orders", "orders"):
        await use(memory, project)
        await looked(watched, held, unit(1), project=project, text="w1x1 resolver")
    assert watched.read == 1
    assert [place for place, _ in held._held] == [("billing", "chunks")]


async def test_what_cannot_be_held_together_is_not_read_by_every_search(owner: Connection, memory: Connection) -> None:
    await filled(owner, random.Random(1), 20)
    await filled(owner, random.Random(2), 20, project="shared")
    await use(memory, "orders")
    alone = Held(searches=1)
    await looked(memory, alone, unit(1))
    sizes = [corpus.bytes for corpus in alone._held.values()]
    for limit, read in ((sum(sizes), 2), (sum(sizes) - 1, 1), (max(sizes), 0)):
        held, watched = Held(limit_bytes=limit, searches=1), Watched(memory)
        for _ in range(5):
            await looked(watched, held, unit(1))
        assert watched.read == read


async def test_one_store_is_read_at_a_time(postgres: PostgresUrls, owner: Connection, memory: Connection) -> None:
    await filled(owner, random.Random(1), 10)
    await filled(owner, random.Random(2), 10, project="billing")
    await use(memory, "orders")
    other = await asyncpg.connect(postgres.memory)
    await use(other, "billing")
    held, beside = Held(searches=1), Watched(other)

    class Meanwhile(Watched):
        async def fetchrow(self, statement: str, *values: Any) -> Any:
            if READ in statement:
                assert (await looked(beside, held, unit(1), project="billing")).hits
            return await super().fetchrow(statement, *values)

    await looked(Meanwhile(memory), held, unit(1))
    assert beside.read == 0
    assert beside.compared == 1
    await looked(beside, held, unit(1), project="billing")
    assert beside.read == 1
    await other.close()


async def test_what_was_changed_is_not_held_until_somebody_searches(tmp_path: Path) -> None:
    async with run_postgres(tmp_path) as postgres:
        await migrate(postgres.urls.owner)
        house = House(postgres.urls)
        await house.open()
        try:
            project = f"p-{new_id()}"
            origin = house.handed(await house.delegated(project, new_id()))
            body = {"attempt_id": "a", "tried": "restart", "error_message": "x", "outcome": "worked"}
            await house.done("developer", origin, writes=(Write(store="attempts", id="a", body=body),))
            for n in range(SEARCHES):
                query = VectorSearch(store="attempts", text=f"restart {n}")
                assert (await house.found("router", house.standing(project, principal=PERSON), query)).items
            held = house.search._held._held
            assert [place for place, _ in held] == [(project, "attempts")]
            other = house.handed(await house.delegated(project, new_id()))
            await house.done(
                "developer", other, writes=(Write(store="attempts", id="b", body=body | {"attempt_id": "b"}),)
            )
            assert not held
        finally:
            await house.close()


async def test_what_is_erased_while_it_is_read_is_not_held_after(owner: Connection, memory: Connection) -> None:
    await filled(owner, random.Random(1), 12)
    await use(memory, "orders")
    held = Held(searches=1)

    class Erased(Watched):
        async def fetchrow(self, statement: str, *values: Any) -> Any:
            row = await super().fetchrow(statement, *values)
            if READ in statement:
                held.drop({("orders", "chunks")})
            return row

    assert (await looked(Erased(memory), held, unit(1))).hits
    assert not held._held
    await looked(memory, held, unit(1))
    assert len(held._held) == 1
    held.clear()
    assert not held._held


async def test_what_was_erased_is_not_read_by_a_search_that_began_before(owner: Connection, memory: Connection) -> None:
    await filled(owner, random.Random(1), 12)
    await use(memory, "orders")
    held = Held(searches=2)
    await looked(memory, held, unit(1))

    class Late(Watched):
        async def fetchrow(self, statement: str, *values: Any) -> Any:
            row = await super().fetchrow(statement, *values)
            if READ not in statement:
                await owner.execute("DELETE FROM vectors WHERE id = 'orders-1'")
                held.drop({("orders", "chunks")})
            return row

    async with memory.transaction(isolation="repeatable_read", readonly=True):
        assert (await looked(Late(memory), held, unit(1))).hits
    assert not held._held


@pytest.mark.parametrize("instead", ["SELECT 1 / 0, $1::text, $2::text, $3::text", "SELECT pg_sleep(60), $1, $2, $3"])
async def test_a_search_does_without_what_cannot_be_read(
    owner: Connection, memory: Connection, monkeypatch: pytest.MonkeyPatch, instead: str
) -> None:
    await filled(owner, random.Random(1), 12)
    await use(memory, "orders")
    monkeypatch.setattr("counterpoint.memory.retrieval.held._PATIENCE_S", 0.3, raising=False)
    wanted = shown(await looked(memory, None, unit(1)))

    class Failing(Watched):
        async def fetchrow(self, statement: str, *values: Any) -> Any:
            self.read += READ in statement
            return await memory.fetchrow(instead if READ in statement else statement, *values)

    watched, held = Failing(memory), Held(searches=1)
    for _ in range(3):
        async with memory.transaction(isolation="repeatable_read", readonly=True):
            assert shown(await looked(watched, held, unit(1))) == wanted
    assert watched.read == 1, "what could not be read is not read again by the next search"
    await store(owner, {"new": "resolver"})
    await looked(memory, held, unit(1))
    assert len(held._held) == 1


async def test_of_equal_rows_the_same_are_found(owner: Connection, memory: Connection) -> None:
    """The same text many times, more often than there are candidates."""
    for n in range(130):
        await store(owner, {f"{n * 37 % 130:03}": "the resolver"})
    await owner.execute("UPDATE meanings SET version = 2 WHERE row % 3 = 0")
    await use(memory, "orders")
    held = await looked(memory, Held(searches=1), unit(1), weights=fixed(1))
    assert shown(held) == shown(await looked(memory, None, unit(1), weights=fixed(1)))


async def test_what_recall_is_measured_by_is_looked_up_in_the_record(
    owner: Connection, memory: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(owner, random.Random(1), 12)
    await use(memory, "orders")
    search_by, watched, query = Search(None, None), Watched(memory), VectorSearch(store="chunks", text=TEXT)
    monkeypatch.setattr(search_by, "_held", Held(searches=1))
    for exact in (False, True):
        embedded = Embedded(MODEL, {TEXT: unit(1)})
        hits, method = await search_by.run(watched, "orders", query, embedded, 2, exact=exact)
        assert (len(hits), method, watched.read, watched.compared) == (query.k, "exact", 1, int(exact))


async def test_a_search_that_is_given_up_while_it_reads_leaves_reading_to_others(
    owner: Connection, memory: Connection
) -> None:
    await filled(owner, random.Random(1), 12)
    await use(memory, "orders")
    held, reading = Held(searches=1), asyncio.Event()

    class Slow(Watched):
        async def fetchrow(self, statement: str, *values: Any) -> Any:
            if READ in statement:
                reading.set()
                await self._connection.fetchrow("SELECT pg_sleep(60)")
            return await super().fetchrow(statement, *values)

    given_up = asyncio.create_task(looked(Slow(memory), held, unit(1)))
    await reading.wait()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert not held._held
    await store(owner, {"new": "resolver"})
    assert (await looked(memory, held, unit(1))).hits
    assert len(held._held) == 1


async def test_rows_without_a_vector_are_found_by_their_words(owner: Connection, memory: Connection) -> None:
    await filled(owner, random.Random(1), 12)
    await owner.execute("UPDATE meanings SET embedding = NULL, refused = 'refused' WHERE row % 2 = 0")
    await use(memory, "orders")
    vector = unit(4)
    assert shown(await looked(memory, Held(searches=1), vector)) == shown(await looked(memory, None, vector))
    await owner.execute("UPDATE meanings SET embedding = NULL, refused = 'refused'")
    assert shown(await looked(memory, Held(searches=1), vector)) == shown(await looked(memory, None, vector))


async def test_a_change_while_vectors_are_read_is_not_mixed_in(
    postgres: PostgresUrls, owner: Connection, memory: Connection
) -> None:
    """What is read for RAM in another state than the search sees is not taken for it."""
    await filled(owner, random.Random(1), 12)
    await use(memory, "orders")
    other = await asyncpg.connect(postgres.admin.removesuffix("/postgres") + "/counterpoint")

    class Meanwhile(Watched):
        async def fetchrow(self, statement: str, *values: Any) -> Any:
            if READ in statement:
                await store(other, {"meanwhile": "resolver"})
            return await super().fetchrow(statement, *values)

    watched = Meanwhile(memory)
    held = Held(searches=1)
    found = await looked(watched, held, unit(1))
    assert (watched.read, watched.compared) == (1, 1)
    assert np.isfinite([hit.score for hit in found.hits]).all()
    await other.close()
