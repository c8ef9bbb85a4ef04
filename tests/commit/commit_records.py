"""Writes of commits, and the rows that they leave."""

from typing import Any

from memory_service.house import House
from memory_service.leaves import leaf_bodies

from counterpoint.proto.memory import Write


def submission(record: str, expect: int = 0, **body: Any) -> Write:
    """A record that the router owns."""
    return Write(store="submissions", id=record, body=body, expect=expect)


async def leaves(house: House, project: str) -> list[str]:
    async with house.superuser() as connection:
        return await leaf_bodies(connection, "project = $1", project)


async def rows(house: House, table: str, project: str) -> list[dict[str, Any]]:
    """A table's rows of a project, as they are."""
    async with house.superuser() as connection:
        return [dict(row) for row in await connection.fetch(f"SELECT * FROM {table} WHERE project = $1", project)]
