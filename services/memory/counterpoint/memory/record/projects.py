"""Projects of the record: their names, and the one whose rows a connection sees."""

from typing import TYPE_CHECKING

from counterpoint.memory.record.sql_files import load_statements

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

StoreKey = tuple[str, str]
"""Project and store."""

_SQL = load_statements(__package__)


async def all_projects(connection: "Connection") -> list[str]:
    """Return the names of all projects, sorted."""
    return [row["project"] for row in await connection.fetch(_SQL["all_projects"])]


async def set_project(connection: "Connection", project: str, *, in_transaction: bool) -> None:
    """Let a connection see the rows of this project and of no other, until its transaction or its session ends."""
    await connection.execute(_SQL["set_project"], project, in_transaction)
