"""The indexes of vectors, one a project that needs it, made beside all that goes on: `python -m
counterpoint.memory.index`.

Memory's login may not make them, so this is a job of the owner of the database. It may run at any time, and as often as
one likes.
"""

import asyncio
import os

import asyncpg
import structlog

from counterpoint.bus.logs import configure
from counterpoint.memory.retrieval.search import EXACT_ROWS, index_of

log = structlog.get_logger()

_LOCK = 0x766563746F72
_READY = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)"
_COUNT = "SELECT coalesce(sum(rows), 0)::bigint FROM corpora WHERE project = $1"
_MAKE = """
SELECT format('CREATE INDEX CONCURRENTLY %I ON vectors USING hnsw (embedding vector_cosine_ops) WHERE project = %L',
              $1::text, $2::text)
"""
# Several workers would need shared memory, of which a container has little.
_SETTINGS = {"maintenance_work_mem": "512MB", "max_parallel_maintenance_workers": "0"}


async def index_projects(owner_url: str, rows: int = EXACT_ROWS) -> list[str]:
    """Give every project with more than so many vectors an index of its own, and take it from one that has come down to
    half as many. Returns the projects whose index was made. When another process is at it, it is left to that."""
    connection = await asyncpg.connect(owner_url, timeout=10, server_settings=_SETTINGS)
    made = []
    try:
        if not await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):
            return []
        for row in await connection.fetch("SELECT project FROM projects ORDER BY project"):
            project, name = row["project"], index_of(row["project"])
            await connection.execute("SELECT set_config('counterpoint.project', $1, false)", project)
            count = await connection.fetchval(_COUNT, project)
            ready = await connection.fetchval(_READY, name)
            if ready is False or (ready and count < rows / 2):
                await connection.execute(f"DROP INDEX CONCURRENTLY {name}")
                ready = None
            if ready is None and count > rows:
                log.info("project.indexing", project=project, vectors=count)
                await connection.execute(await connection.fetchval(_MAKE, name, project))
                made.append(project)
    finally:
        await connection.close()
    return made


def main() -> None:
    """Make the indexes of the database that the environment names."""
    configure("index", os.environ.get("COUNTERPOINT_LOG_LEVEL", "info"))
    asyncio.run(index_projects(os.environ["COUNTERPOINT_POSTGRES_OWNER_URL"]))


if __name__ == "__main__":
    main()
