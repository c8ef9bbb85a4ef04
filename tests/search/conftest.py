"""A PostgreSQL with pgvector for the retrieval tests, and the embedding model."""

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from counterpoint.local.postgres import PostgresUrls, run_postgres
from counterpoint.memory.embedding.files import ModelSettings
from counterpoint.memory.embedding.model import Embedder
from counterpoint.memory.record.migrate import migrate
from counterpoint.memory.search.index import index_projects


@pytest.fixture(scope="session")
async def postgres(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PostgresUrls]:
    """A PostgreSQL of this session's own, with the schema."""
    async with run_postgres(tmp_path_factory.mktemp("retrieval")) as server:
        await migrate(server.urls.owner)
        yield server.urls


@pytest.fixture
async def owner(postgres: PostgresUrls) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    """A superuser's connection; the tables are empty before and after."""
    connection = await asyncpg.connect(postgres.admin.removesuffix("/postgres") + "/counterpoint")
    yield connection
    await connection.execute("TRUNCATE vectors, meanings, models, postings, lexicon, corpora, records")
    await index_projects(postgres.owner)
    await connection.close()


@pytest.fixture
async def memory(postgres: PostgresUrls) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    """A connection of memory's login."""
    connection = await asyncpg.connect(postgres.memory)
    yield connection
    await connection.close()


@pytest.fixture(scope="session")
def embedder() -> Iterator[Embedder]:
    """The real model, from the user's cache or built into it."""
    embedder = Embedder(ModelSettings().model_cache_dir)
    yield embedder
    embedder.close()
