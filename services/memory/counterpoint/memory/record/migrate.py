"""Migrations: numbered SQL files applied once, in order, under an advisory lock; then the functions of this release."""

import asyncio
from typing import TYPE_CHECKING

import structlog

from counterpoint.bus.first_connection import NoAnswer, RefusedByServer, end_job
from counterpoint.bus.logs import configure
from counterpoint.memory.record import functions
from counterpoint.memory.record.installation import claim, refuse_other
from counterpoint.memory.record.owner_connection import connect_as_owner
from counterpoint.memory.record.owner_settings import OwnerSettings
from counterpoint.memory.record.release import contracts, migrations, refuse_contracted, refuse_skipped
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.errors import Permanent

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]
    Pool = asyncpg.Pool[asyncpg.Record]


log = structlog.get_logger()

_LOCK = 0x6D696772617465
_SQL = load_statements(__package__)


async def migrate(owner_url: str, installation: str | None = None) -> list[str]:
    """Bring the schema up to date as its owner; return the names of the applied migrations.

    Raises `RefusedByServer` or `NoAnswer` without a connection, `Permanent` if the database belongs to another
    `installation`, if a release was skipped that may not be, or if this one is too old for it; nothing is changed then.
    """
    connection = await connect_as_owner(owner_url)
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
        if installation is None:
            return await _apply(connection)
        await refuse_other(connection, installation)
        applied = await _apply(connection)
        await claim(connection, installation)
        return applied
    finally:
        await connection.close()


async def _apply(connection: "Connection") -> list[str]:
    await connection.execute(_SQL["create_migrations"])
    await connection.execute(_SQL["expand_migrations"])
    rows = await connection.fetch(_SQL["applied_migrations"])
    ours, known = migrations(), {row["name"] for row in rows}
    refuse_contracted(ours, {row["oldest"] for row in rows if row["oldest"]})
    refuse_skipped(ours, known)
    applied = []
    for name, sql in ours.items():
        if name in known:
            continue
        async with connection.transaction():
            await connection.execute(sql)
            await connection.execute(_SQL["add_migration"], name, contracts(sql))
        applied.append(name)
    async with connection.transaction():
        if functions.SCHEMA not in known:
            await _add_functions(connection)
            applied.append(functions.SCHEMA)
        await connection.execute(_SQL["touch_migration"], functions.SCHEMA)
        await connection.execute(_SQL["grant_migrations"])
    log.info("migrations.applied", names=applied)
    return applied


async def _add_functions(connection: "Connection") -> None:
    """Create this release's functions, and drop all but those of the last release, whose services may still run."""
    for older in await connection.fetch(_SQL["delete_old_functions"], functions.SCHEMA):
        await connection.execute(f"DROP SCHEMA {older['name']} CASCADE")
    await connection.execute(f"CREATE SCHEMA {functions.SCHEMA}")
    await connection.execute(f"GRANT USAGE ON SCHEMA {functions.SCHEMA} TO counterpoint_memory")
    # Functions that call others of this schema as the owner keep this path; temporary objects are found last.
    await connection.execute(f"SET LOCAL search_path = {functions.SEARCH_PATH}, pg_temp")
    await connection.execute(functions.SQL)


def main() -> None:
    """Migrate the database of the settings."""
    settings = OwnerSettings()
    configure("migrate", settings.log_level)
    try:
        asyncio.run(migrate(settings.url, settings.installation))
    except (Permanent, RefusedByServer, NoAnswer) as error:
        end_job(error)


if __name__ == "__main__":
    main()
