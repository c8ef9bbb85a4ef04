"""Stores held in RAM: the same rows are found as without, whatever was changed in between."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest
import structlog
import structlog.testing
from memory_service.house import PERSON, House
from search.test_hybrid_search import MODEL, Connection, store, unit, use

from counterpoint.local.postgres import PostgresUrls, run_postgres
from counterpoint.memory.embedding.model import Vectors
from counterpoint.memory.record.migrate import migrate
from counterpoint.memory.search.candidates import SearchScope
from counterpoint.memory.search.corpus_cache import SEARCHES, CorpusCache
from counterpoint.memory.search.corpus_index import bytes_of
from counterpoint.memory.search.fusion import Weights, fixed
from counterpoint.memory.search.hybrid import SearchResult, search
from counterpoint.memory.search.vectors import EmbeddedTexts, SearchEngine
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


class CountingConnection:
    """A connection that counts how often all rows are compared."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.compared = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def fetch(self, statement: str, *values: Any) -> Any:
        self.compared += "scope AS MATERIALIZED" in statement
        return await self._connection.fetch(statement, *values)


class ReadConnections:
    """Connections to read stores by, and how often one was. `before` is told of each."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.read = 0
        self.before: Callable[[Any], Awaitable[None]] | None = None

    @asynccontextmanager
    async def __call__(self, project: str) -> AsyncIterator[Any]:
        connection = await asyncpg.connect(self._url)
        try:
            await use(connection, project)
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                yield self._told(connection)
        finally:
            connection.terminate()

    def _told(self, connection: Any) -> Any:
        async def fetchrow(*values: Any) -> Any:
            self.read += 1
            if self.before is not None:
                await self.before(connection)
            return await connection.fetchrow(*values)

        return SimpleNamespace(fetchrow=fetchrow)


@pytest.fixture
def read_connections(postgres: PostgresUrls) -> ReadConnections:
    return ReadConnections(postgres.memory)


def scope(label: int = 2, project: str = "orders") -> SearchScope:
    return SearchScope(project, ("chunks",), MODEL, label)


async def search_corpus(
    memory: Any,
    held: CorpusCache | None,
    vector: Vectors,
    label: int = 2,
    weights: Weights | None = None,
    of_rows: Sequence[int] | None = None,
    project: str = "orders",
    text: str = TEXT,
) -> SearchResult:
    """A search, and what is read for the next one."""
    found = await search(memory, scope(label, project), text, vector, 20, weights, of_rows=of_rows, corpus_cache=held)
    if held is not None:
        await held.loaded()
    return found


def ranking(found: SearchResult) -> list[Any]:
    """Sums are added up in other orders in RAM and in the database; nothing of it is seen."""
    return [(hit.project, hit.id, hit.score, hit.scores) for hit in found.hits]


async def fill_store(owner: Connection, draw: random.Random, rows: int, project: str = "orders") -> None:
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
async def test_cached_search_equals_the_database_after_every_change(
    owner: Connection, memory: Connection, read_connections: ReadConnections, seed: int
) -> None:
    draw = random.Random(seed)
    await fill_store(owner, draw, 120)
    await fill_store(owner, draw, 30, project="shared")
    await use(memory, "orders")
    held, watched = CorpusCache(read_connections, searches=1), CountingConnection(memory)
    for turn in range(25):
        await changed(owner, draw, turn)
        rows = [row["row"] for row in await owner.fetch("SELECT row FROM vectors ORDER BY row")]
        of_rows = draw.choice((None, draw.sample(rows, len(rows) // 3)))
        weights = draw.choice((None, fixed(1), fixed(0.5)))
        vector, label, text = unit(draw.randrange(10_000)), draw.randrange(3), draw.choice(TEXTS)
        wanted = await search_corpus(memory, None, vector, label, weights, of_rows, text=text)
        assert wanted.hits or text == TEXTS[-1]
        # Both the project and what is shared may have to be read first.
        for _ in range(3):
            compared = watched.compared
            assert ranking(await search_corpus(watched, held, vector, label, weights, of_rows, text=text)) == ranking(
                wanted
            )
        assert watched.compared == compared, "all rows were compared by the database after all"
    assert read_connections.read > 10


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
    owner: Connection, memory: Connection, read_connections: ReadConnections
) -> None:
    await fill_store(owner, random.Random(7), 20)
    await use(memory, "orders")
    held, watched = CorpusCache(read_connections, searches=3), CountingConnection(memory)
    for n in range(6):
        await store(owner, {f"again-{n}": "cats"})
        for _ in range(2):
            await search_corpus(watched, held, unit(n))
    assert (read_connections.read, watched.compared) == (0, 12)
    for _ in range(3):
        await search_corpus(watched, held, unit(1))
    assert (read_connections.read, watched.compared) == (1, 13)


async def test_a_neighbours_vectors_are_never_read(
    owner: Connection, memory: Connection, read_connections: ReadConnections
) -> None:
    draw = random.Random(3)
    await fill_store(owner, draw, 10)
    await fill_store(owner, draw, 10, project="billing")
    held, watched = CorpusCache(read_connections, searches=1), CountingConnection(memory)
    for project in ("orders", "billing", "orders", "billing"):
        await use(memory, project)
        found = await search_corpus(watched, held, unit(5), project=project)
        assert {hit.project for hit in found.hits} == {project}
    assert watched.compared == 2
    # Who asks for another project's by name gets nothing, for row-level security is beneath.
    await use(memory, "orders")
    assert not (await search_corpus(memory, held, unit(5), project="billing")).hits
    assert not (await search_corpus(memory, CorpusCache(read_connections, searches=1), unit(5), project="billing")).hits
    assert read_connections.read == 2


async def test_no_more_is_held_than_may_be(
    owner: Connection, memory: Connection, read_connections: ReadConnections
) -> None:
    projects = ("orders", "billing", "stock")
    for project in projects:
        await fill_store(owner, random.Random(1), 10, project=project)
    await use(memory, "orders")
    alone = CorpusCache(read_connections, searches=1)
    await search_corpus(memory, alone, unit(1))
    (size,) = [corpus.bytes for corpus in alone._corpora.values()]
    held, read_connections.read = CorpusCache(read_connections, limit_bytes=2 * size, searches=1), 0
    for project in (*projects, "stock", "billing", "orders"):
        await use(memory, project)
        await search_corpus(memory, held, unit(1), project=project)
    assert read_connections.read == 4, "the first went for the third, and the third stayed"
    small = CorpusCache(read_connections, limit_bytes=bytes_of(10, 384, 0) - 1, searches=1)
    await search_corpus(memory, small, unit(1))
    assert read_connections.read == 4, "what can never be held is not read for it"


async def test_a_corpus_larger_than_the_cache_is_not_read(
    owner: Connection, memory: Connection, read_connections: ReadConnections
) -> None:
    """Nothing else goes for what cannot stay."""
    await fill_store(owner, random.Random(1), 10, project="billing")
    await store(owner, {f"{n}": " ".join(f"w{n}x{word}" for word in range(40)) for n in range(10)})
    held = CorpusCache(read_connections, limit_bytes=bytes_of(10, 384, 100), searches=1)
    for project in ("billing", "orders", "orders", "orders"):
        await use(memory, project)
        await search_corpus(memory, held, unit(1), project=project, text="w1x1 resolver")
    assert read_connections.read == 1
    assert [place for place, _ in held._corpora] == [("billing", "chunks")]


async def test_corpora_that_do_not_fit_together_are_not_read_by_each_search(
    owner: Connection, memory: Connection, read_connections: ReadConnections
) -> None:
    await fill_store(owner, random.Random(1), 20)
    await fill_store(owner, random.Random(2), 20, project="shared")
    await use(memory, "orders")
    alone = CorpusCache(read_connections, searches=1)
    for _ in range(2):
        await search_corpus(memory, alone, unit(1))
    sizes = [corpus.bytes for corpus in alone._corpora.values()]
    for limit, read in ((sum(sizes), 2), (sum(sizes) - 1, 0)):
        held, read_connections.read = CorpusCache(read_connections, limit_bytes=limit, searches=1), 0
        for _ in range(5):
            await search_corpus(memory, held, unit(1))
        assert read_connections.read == read


async def test_one_corpus_is_read_at_a_time_and_searches_do_not_wait(
    postgres: PostgresUrls, owner: Connection, memory: Connection, read_connections: ReadConnections
) -> None:
    await fill_store(owner, random.Random(1), 10)
    await fill_store(owner, random.Random(2), 10, project="billing")
    await use(memory, "orders")
    other = await asyncpg.connect(postgres.memory)
    await use(other, "billing")
    held, beside, begun, go_on = (
        CorpusCache(read_connections, searches=1),
        CountingConnection(other),
        asyncio.Event(),
        asyncio.Event(),
    )

    async def slow(connection: Any) -> None:
        begun.set()
        await go_on.wait()

    read_connections.before = slow
    assert (await search(memory, scope(), TEXT, unit(1), 20, corpus_cache=held)).hits
    await begun.wait()
    assert (await search(memory, scope(), TEXT, unit(1), 20, corpus_cache=held)).hits
    assert (await search(beside, scope(project="billing"), TEXT, unit(1), 20, corpus_cache=held)).hits
    assert (read_connections.read, beside.compared) == (1, 1)
    go_on.set()
    await held.loaded()
    await search_corpus(beside, held, unit(1), project="billing")
    await search_corpus(beside, held, unit(1), project="billing")
    assert (read_connections.read, beside.compared) == (2, 2)
    await other.close()


async def test_a_change_drops_the_cached_corpus(tmp_path: Path) -> None:
    async with run_postgres(tmp_path) as postgres:
        await migrate(postgres.urls.owner)
        house = House(postgres.urls)
        await house.open()
        try:
            project = f"p-{new_id()}"
            origin = house.delivery(await house.delegated(project, new_id()))
            body = {"attempt_id": "a", "tried": "restart", "error_message": "x"}
            await house.apply("developer", origin, writes=(Write(store="attempts", id="a", body=body),))
            for n in range(SEARCHES):
                query = VectorSearch(store="attempts", text=f"restart {n}")
                assert (await house.answer("router", house.standing(project, principal=PERSON), query)).items
            await house.held.loaded()
            held = house.held._corpora
            assert [place for place, _ in held] == [(project, "attempts")]
            other = house.delivery(await house.delegated(project, new_id()))
            await house.apply(
                "developer", other, writes=(Write(store="attempts", id="b", body=body | {"attempt_id": "b"}),)
            )
            assert not held
        finally:
            await house.close()


async def test_a_corpus_with_an_erasure_during_the_read_is_not_cached(
    owner: Connection, memory: Connection, read_connections: ReadConnections
) -> None:
    await fill_store(owner, random.Random(1), 12)
    await use(memory, "orders")
    held = CorpusCache(read_connections, searches=1)

    async def erased(connection: Any) -> None:
        await owner.execute("DELETE FROM vectors WHERE id = 'orders-1'")
        held.drop({("orders", "chunks")})

    read_connections.before = erased
    assert (await search_corpus(memory, held, unit(1))).hits
    assert not held._corpora
    read_connections.before = None
    await search_corpus(memory, held, unit(1))
    assert len(held._corpora) == 1
    held.clear()
    assert not held._corpora


async def test_a_search_that_began_before_an_erasure_has_nothing_read_that_was_erased(
    owner: Connection, memory: Connection, read_connections: ReadConnections
) -> None:
    await fill_store(owner, random.Random(1), 12)
    await use(memory, "orders")
    held, watched = CorpusCache(read_connections, searches=1), CountingConnection(memory)
    async with memory.transaction(isolation="repeatable_read", readonly=True):
        before = await search_corpus(memory, None, unit(1))
        await owner.execute("DELETE FROM vectors WHERE id = 'orders-1'")
        held.drop({("orders", "chunks")})
        assert ranking(await search_corpus(memory, held, unit(1))) == ranking(before)
    (corpus,) = held._corpora.values()
    assert "orders-1" not in corpus.ids
    assert "orders-1" not in {hit.id for hit in (await search_corpus(watched, held, unit(1))).hits}
    assert (read_connections.read, watched.compared) == (1, 0)


@pytest.mark.parametrize(
    ("instead", "said"),
    [("SELECT 1 / 0", "not_cached"), ("SELECT pg_sleep(60)", "not_cached"), (b"no statement", "load_failed")],
)
async def test_a_search_works_when_a_corpus_cannot_be_read(
    owner: Connection,
    memory: Connection,
    read_connections: ReadConnections,
    monkeypatch: pytest.MonkeyPatch,
    instead: Any,
    said: str,
) -> None:
    await fill_store(owner, random.Random(1), 12)
    await use(memory, "orders")
    monkeypatch.setattr("counterpoint.memory.search.corpus_cache._LOAD_TIMEOUT_S", 0.3)
    wanted, held = ranking(await search_corpus(memory, None, unit(1))), CorpusCache(read_connections, searches=1)

    async def failing(connection: Any) -> None:
        await connection.execute(instead)

    read_connections.before = failing
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            assert ranking(await search_corpus(memory, held, unit(1))) == wanted
    assert [each["event"] for each in logs] == [f"corpus.{said}"]
    assert read_connections.read == 1, "what could not be read is not read again by the next search"
    await store(owner, {"new": "resolver"})
    read_connections.before = None
    await search_corpus(memory, held, unit(1))
    assert len(held._corpora) == 1


async def test_a_read_in_progress_is_cancelled_on_close(
    owner: Connection, memory: Connection, read_connections: ReadConnections
) -> None:
    await fill_store(owner, random.Random(1), 12)
    await use(memory, "orders")
    held, begun = CorpusCache(read_connections, searches=1), asyncio.Event()

    async def for_ever(connection: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    read_connections.before = for_ever
    await search(memory, scope(), TEXT, unit(1), 20, corpus_cache=held)
    await begun.wait()
    await held.close()
    assert not held._corpora
    await CorpusCache(read_connections).close()


async def test_ties_are_broken_as_in_the_database(
    owner: Connection, memory: Connection, read_connections: ReadConnections
) -> None:
    """The same text many times, more often than there are candidates."""
    for n in range(130):
        await store(owner, {f"{n * 37 % 130:03}": "the resolver"})
    await owner.execute("UPDATE meanings SET version = 2 WHERE row % 3 = 0")
    await use(memory, "orders")
    held, watched = CorpusCache(read_connections, searches=1), CountingConnection(memory)
    for _ in range(2):
        found = await search_corpus(watched, held, unit(1), weights=fixed(1))
        assert ranking(found) == ranking(await search_corpus(memory, None, unit(1), weights=fixed(1)))
    assert watched.compared == 1


async def test_recall_samples_come_from_the_record(
    owner: Connection, memory: Connection, read_connections: ReadConnections
) -> None:
    await fill_store(owner, random.Random(1), 12)
    await use(memory, "orders")
    held, watched, query = (
        CorpusCache(read_connections, searches=1),
        CountingConnection(memory),
        VectorSearch(store="chunks", text=TEXT),
    )
    search_by, embedded = SearchEngine(None, None, corpus_cache=held), EmbeddedTexts(MODEL, {TEXT: unit(1)})
    for exact, compared in ((False, 1), (False, 1), (True, 2)):
        hits, method = await search_by.run(watched, "orders", query, embedded, 2, exact=exact)
        assert (len(hits), method, watched.compared) == (query.k, "exact", compared)
        await held.loaded()


async def test_rows_without_a_vector_are_found_by_their_words(
    owner: Connection, memory: Connection, read_connections: ReadConnections
) -> None:
    await fill_store(owner, random.Random(1), 12)
    await use(memory, "orders")
    watched = CountingConnection(memory)
    for which in ("row % 2 = 0", "true"):
        await owner.execute(f"UPDATE meanings SET embedding = NULL, refused = 'refused' WHERE {which}")
        held, watched.compared = CorpusCache(read_connections, searches=1), 0
        for _ in range(2):
            found = await search_corpus(watched, held, unit(4))
            assert ranking(found) == ranking(await search_corpus(memory, None, unit(4)))
        assert watched.compared == 1


async def test_a_change_after_a_store_was_read_is_not_mixed_in(
    owner: Connection, memory: Connection, read_connections: ReadConnections
) -> None:
    """A corpus read in another state than a search sees is not used by that search."""
    await fill_store(owner, random.Random(1), 12)
    await use(memory, "orders")
    held, watched = CorpusCache(read_connections, searches=1), CountingConnection(memory)

    async def meanwhile(connection: Any) -> None:
        read_connections.before = None
        await connection.fetchval("SELECT count(*) FROM vectors")
        await store(owner, {"meanwhile": "resolver"})

    read_connections.before = meanwhile
    await search_corpus(watched, held, unit(1))
    (corpus,) = held._corpora.values()
    assert "meanwhile" not in corpus.ids
    for compared in (2, 2):
        found = await search_corpus(watched, held, unit(1))
        assert ranking(found) == ranking(await search_corpus(memory, None, unit(1)))
        assert watched.compared == compared
