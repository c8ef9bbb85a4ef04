"""Migrations: applied once whoever runs them at the same time; the functions of the release before stay."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from counterpoint.local.postgres import PostgresServer, run_postgres
from counterpoint.memory.record import functions
from counterpoint.memory.record.migrate import migrate


@pytest.fixture
async def postgres(tmp_path: Path) -> AsyncIterator[PostgresServer]:
    async with run_postgres(tmp_path / "postgres") as running:
        yield running


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def test_migrations_run_at_the_same_time_are_applied_once(postgres: PostgresServer) -> None:
    applied = await asyncio.gather(*(migrate(postgres.urls.owner) for _ in range(4)))
    folder = Path(functions.__file__).with_name("migrations")
    names = sorted(path.name for path in folder.iterdir() if path.name[0].isdigit())
    assert sorted(applied, key=len) == [[], [], [], [*names, functions.SCHEMA]]


async def _released(postgres: PostgresServer, release: pytest.MonkeyPatch, arguments: str) -> str:
    """Migrate to a release whose function `due` takes these arguments; returns the search path of its services."""
    release.setattr(functions, "SQL", f"CREATE FUNCTION due({arguments}) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    release.setattr(functions, "SCHEMA", f"functions_{arguments.count('int')}")
    release.setattr(functions, "SEARCH_PATH", f"{functions.SCHEMA}, public")
    assert functions.SCHEMA in await migrate(postgres.urls.owner)
    return functions.SEARCH_PATH


async def test_the_functions_of_the_release_before_stay_for_its_services(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await _released(postgres, monkeypatch, "int")
    second = await _released(postgres, monkeypatch, "int, int")
    async with _connected(postgres.urls.memory) as memory:
        await memory.execute(f"SET search_path = {first}")
        assert await memory.fetchval("SELECT due(1)") == 1
        await memory.execute(f"SET search_path = {second}")
        assert await memory.fetchval("SELECT due(1, 2)") == 1
        third = await _released(postgres, monkeypatch, "int, int, int")
        assert await memory.fetchval("SELECT due(1, 2)") == 1
        await memory.execute(f"SET search_path = {third}")
        assert await memory.fetchval("SELECT due(1, 2, 3)") == 1
        await memory.execute(f"SET search_path = {first}")
        with pytest.raises(asyncpg.UndefinedFunctionError):
            await memory.fetchval("SELECT due(1)")
