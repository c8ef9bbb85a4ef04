"""The installation that a database belongs to."""

from typing import TYPE_CHECKING

from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.errors import ErrorCode, Permanent, Problem

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

OTHER = "the database belongs to another installation"
REMEDY = "use the data folder (secrets.json) of that installation, or another database"
_SQL = load_statements(__package__)


async def owner_of(connection: "Connection") -> str | None:
    """Return the id of the installation that the database belongs to, None for a new or older one."""
    if not await connection.fetchval(_SQL["has_installation"]):
        return None
    found: str | None = await connection.fetchval(_SQL["installation"])
    return found


async def refuse_other(connection: "Connection", installation: str) -> None:
    """Raise `Permanent` if the database belongs to another installation."""
    if await owner_of(connection) not in (None, installation):
        raise Permanent(ErrorCode.ENGINE_UNFIT, (Problem(field="postgres", problem=f"{OTHER}: {REMEDY}"),))


async def claim(connection: "Connection", installation: str) -> None:
    """Record the installation in a database without one."""
    await connection.execute(_SQL["claim_installation"], installation)
