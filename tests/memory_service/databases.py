"""Fresh databases with the schema, copied from a template: cheaper than a server for each test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import asyncpg

from counterpoint.local.postgres import PostgresUrls, run_postgres
from counterpoint.memory.record.migrate import migrate


@asynccontextmanager
async def template_server(folder: Path) -> AsyncIterator[PostgresUrls]:
    """Run a server whose database has the schema and no rows."""
    async with run_postgres(folder / "postgres") as postgres:
        await migrate(postgres.urls.owner)
        yield postgres.urls


async def fresh_database(server: PostgresUrls) -> PostgresUrls:
    """Copy the template; return the URLs of the copy."""
    name = f"copy_{uuid4().hex}"
    connection = await asyncpg.connect(server.admin)
    try:
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE counterpoint OWNER counterpoint_owner")
        await connection.execute(f"GRANT CONNECT ON DATABASE {name} TO counterpoint_memory, counterpoint_inspect")
    finally:
        await connection.close()
    copied = {role: f"{url.rpartition('/')[0]}/{name}" for role, url in server.model_dump().items() if role != "admin"}
    return server.model_copy(update=copied)
