"""Bodies of leaves in the database, whatever their form."""

from typing import Any

from counterpoint.memory.audit.packed_leaf import leaf_text


async def leaf_bodies(connection: Any, condition: str = "true", *values: Any) -> list[str]:
    """The bodies of these leaves in the order in which they came, without those that were erased."""
    rows = await connection.fetch(f"SELECT body, packed FROM audit WHERE {condition} ORDER BY arrival", *values)
    bodies = (leaf_text(row["body"], row["packed"]) for row in rows)
    return [body for body in bodies if body is not None]


async def store_leaves_as_text(connection: Any, condition: str = "true") -> None:
    """Give these leaves the form that earlier releases gave them, in which SQL can change a body."""
    rows = await connection.fetch(f"SELECT arrival, packed FROM audit WHERE packed IS NOT NULL AND {condition}")
    await connection.executemany(
        "UPDATE audit SET body = $2, packed = NULL WHERE arrival = $1",
        [(row["arrival"], leaf_text(None, row["packed"])) for row in rows],
    )
