"""Migrations: applied once whoever runs them at the same time; the functions of the release before stay."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from counterpoint.local.postgres import PostgresServer, run_postgres
from counterpoint.memory.record import functions, release
from counterpoint.memory.record.migrate import migrate
from counterpoint.memory.record.release import check_release
from counterpoint.proto.errors import Permanent, Transient


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


AT_TIMES = """
INSERT INTO records (project, store, id, version, seq, author, label, integrity, body, commit_id, at)
VALUES ('orders', 'plans', 'p-1', 2, 7, 'manager', 1, 2, '{}', '00000000-0000-0000-0000-000000000002', '2026-01-02Z');
INSERT INTO history (project, store, id, version, seq, author, label, integrity, body, commit_id, at)
VALUES ('orders', 'plans', 'p-1', 1, 4, 'manager', 1, 2, '{}', '00000000-0000-0000-0000-000000000001', '2026-01-01Z');
INSERT INTO audit (project, id, kind, body, salt, at) VALUES
    ('orders', '00000000-0000-0000-0000-000000000001', 'commit', '{}', '', '2026-01-01Z'),
    ('orders', '00000000-0000-0000-0000-000000000003', 'refusal', '{}', '', '2026-01-01T12:00Z'),
    ('orders', '00000000-0000-0000-0000-000000000002', 'commit', '{}', '', '2026-01-02Z');
"""
"""Two versions of a record, and the leaves of an early release, without positions of the project."""


async def test_positions_at_times_are_those_of_leaves_of_early_releases_too(postgres: PostgresServer) -> None:
    folder = Path(functions.__file__).with_name("migrations")
    older = sorted(path for path in folder.iterdir() if path.name[0].isdigit() and path.name < "0024")
    async with _connected(postgres.urls.owner) as owner:
        await owner.execute("CREATE TABLE migrations (name text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())")
        for path in older:
            await owner.execute(path.read_text())
            await owner.execute("INSERT INTO migrations (name) VALUES ($1)", path.name)
        await owner.execute("INSERT INTO projects (project) VALUES ('orders')")
        await owner.execute("SELECT set_config('counterpoint.project', 'orders', false)")
        await owner.execute(AT_TIMES)
    assert "0024_stored_once.sql" in await migrate(postgres.urls.owner)
    async with _connected(postgres.urls.memory) as memory:
        await memory.execute(f"SET search_path = {functions.SEARCH_PATH}")
        await memory.execute("SELECT set_config('counterpoint.project', 'orders', false)")
        wanted = {"2025-12-31Z": None, "2026-01-01Z": 4, "2026-01-01T18:00Z": 4, "2026-01-03Z": 7}
        for at, seq in wanted.items():
            found = await memory.fetchval("SELECT position_at_time('orders', $1::text::timestamptz)", at)
            assert found == seq, at
        await memory.execute("SELECT set_config('counterpoint.project', 'billing', false)")
        assert await memory.fetchval("SELECT position_at_time('orders', now())") is None


async def test_two_installations_that_start_at_once_do_not_share_a_database(postgres: PostgresServer) -> None:
    owner = postgres.urls.owner
    started = await asyncio.gather(migrate(owner, "one"), migrate(owner, "two"), return_exceptions=True)
    (refused,) = (each for each in started if isinstance(each, Permanent))
    assert "another installation" in str(refused)
    async with _connected(owner) as connection:
        first = await connection.fetchval("SELECT id FROM installation")
    assert await migrate(owner, first) == []


NEXT, CONTRACTION = "9998_next.sql", "9999_contraction.sql"
FUTURE = {NEXT: "CREATE TABLE successor ()", CONTRACTION: f"-- contracts: {NEXT}\nDROP TABLE predecessor"}


def _of_release(patch: pytest.MonkeyPatch, names: list[str]) -> dict[str, str]:
    """Make this code a release with some of the future migrations."""
    ours = {**THIS_RELEASE, "0099_predecessor.sql": "CREATE TABLE predecessor ()"}
    ours |= {name: FUTURE[name] for name in names}
    for module in ("migrate", "release"):
        patch.setattr(f"counterpoint.memory.record.{module}.migrations", lambda: ours)
    return ours


THIS_RELEASE = release.migrations()


async def _check(postgres: PostgresServer) -> None:
    async with _connected(postgres.urls.memory) as memory:
        await check_release(memory)


async def test_a_release_that_removes_something_cannot_be_reached_by_skipping_the_one_before(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _of_release(monkeypatch, [])
    await migrate(postgres.urls.owner)
    _of_release(monkeypatch, [NEXT, CONTRACTION])
    with pytest.raises(Permanent, match=f"a release was skipped: .* before {NEXT}, and {CONTRACTION} removes"):
        await migrate(postgres.urls.owner)
    async with _connected(postgres.urls.owner) as owner:
        assert await owner.fetchval("SELECT to_regclass('successor')") is None, "nothing is changed"
    _of_release(monkeypatch, [NEXT])
    assert await migrate(postgres.urls.owner) == [NEXT]
    await _check(postgres)
    _of_release(monkeypatch, [NEXT, CONTRACTION])
    assert await migrate(postgres.urls.owner) == [CONTRACTION]
    await _check(postgres)


async def test_services_run_on_a_later_release_until_it_removes_a_column_that_they_use(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _of_release(monkeypatch, [NEXT])
    await migrate(postgres.urls.owner)
    _of_release(monkeypatch, [])
    await _check(postgres)
    assert await migrate(postgres.urls.owner) == [], "a rollback after expansion migrates nothing"
    _of_release(monkeypatch, [NEXT, CONTRACTION])
    await migrate(postgres.urls.owner)
    _of_release(monkeypatch, [])
    for refused in (migrate(postgres.urls.owner), _check(postgres)):
        with pytest.raises(Permanent, match=f"start a release with {NEXT}"):
            await refused


async def test_a_new_database_skips_no_release(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    _of_release(monkeypatch, [NEXT, CONTRACTION])
    assert CONTRACTION in await migrate(postgres.urls.owner)
    await _check(postgres)


async def test_services_wait_for_the_migrations_of_their_release(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Transient, match=r"the database lacks 0001_house.sql, .*run the job `migrate`"):
        await _check(postgres)
    await migrate(postgres.urls.owner)
    _of_release(monkeypatch, [NEXT])
    with pytest.raises(Transient, match=f"lacks 0099_predecessor.sql, {NEXT}"):
        await _check(postgres)


def test_each_contraction_names_a_migration_of_an_earlier_release() -> None:
    names = list(THIS_RELEASE)
    for name, sql in THIS_RELEASE.items():
        needed = release.contracts(sql)
        assert needed is None or names.index(needed) < names.index(name)
