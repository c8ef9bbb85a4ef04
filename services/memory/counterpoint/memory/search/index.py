"""Vector indexes: one of each model in use for each large project, built without blocking: `python -m
counterpoint.memory.search.index`.

Memory's login may not create indexes, so this job runs as the owner of the database. It may run at any time and any
number of times.
"""

import asyncio

import asyncpg
import structlog

from counterpoint.bus.first_connection import NoAnswer, RefusedByServer, end_job
from counterpoint.bus.logs import configure
from counterpoint.memory.record.owner_connection import connect_as_owner
from counterpoint.memory.record.owner_settings import OwnerSettings
from counterpoint.memory.record.projects import all_projects, set_project
from counterpoint.memory.record.session import apply_settings
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.memory.search.hybrid import EXACT_ROWS
from counterpoint.memory.search.scan import index_of, indexed_as

log = structlog.get_logger()

_LOCK = 0x766563746F72
_SQL = load_statements(__package__)
# Several workers would need shared memory, of which a container has little.
_SETTINGS = {"maintenance_work_mem": "512MB", "max_parallel_maintenance_workers": "0"}


async def index_projects(owner_url: str, rows: int = EXACT_ROWS) -> list[str]:
    """Create an index for every project with more than `rows` vectors of a model, drop that of a project with fewer
    than half as many, and drop those of models no longer in use.

    Return the projects for which one was created. Does nothing while another process runs it.
    """
    connection = await connect_as_owner(owner_url)
    made = []
    try:
        await apply_settings(connection, _SETTINGS)
        if not await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):
            return []
        used = [(row["model"], row["dimensions"]) for row in await connection.fetch(_SQL["models_in_use"])]
        projects = await all_projects(connection)
        known = {index_of(project, model) for project in projects for model, _ in used}
        for row in await connection.fetch(_SQL["vector_indexes"]):
            if row["relname"] not in known:
                await connection.execute(f"DROP INDEX CONCURRENTLY {row['relname']}")
        for project in projects:
            await set_project(connection, project, in_transaction=False)
            for model, dimensions in used:
                if await _index(connection, project, model, dimensions, rows):
                    made.append(project)
    finally:
        await connection.close()
    return list(dict.fromkeys(made))


async def _index(
    connection: "asyncpg.Connection[asyncpg.Record]", project: str, model: str, dimensions: int, rows: int
) -> bool:
    """Create or drop one index; return whether it was created."""
    name, kind = index_of(project, model), indexed_as(dimensions)
    count = await connection.fetchval(_SQL["count_vectors"], project, model)
    ready = await connection.fetchval(_SQL["is_index_valid"], name)
    if ready is False or (ready and count < rows / 2):
        await connection.execute(f"DROP INDEX CONCURRENTLY {name}")
        ready = None
    if ready is not None or count <= rows or kind is None:
        return False
    log.info("project.indexing", project=project, model=model, vectors=count)
    await connection.execute(await connection.fetchval(_SQL["create_index_statement"], name, kind, project, model))
    return True


def main() -> None:
    """Index the database of the settings."""
    settings = OwnerSettings()
    configure("index", settings.log_level)
    try:
        asyncio.run(index_projects(settings.url))
    except (RefusedByServer, NoAnswer) as error:
        end_job(error)


if __name__ == "__main__":
    main()
