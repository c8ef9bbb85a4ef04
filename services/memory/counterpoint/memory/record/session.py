"""Settings of a database session."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from counterpoint.memory.record.sql_files import load_statements

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

_SQL = load_statements(__package__)


async def apply_settings(connection: "Connection", settings: Mapping[str, str]) -> None:
    """Set settings for the rest of the session. A pooler refuses most of them in the start-up message."""
    await connection.execute(_SQL["set_settings"], list(settings), list(settings.values()))
