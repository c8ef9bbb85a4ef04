"""Retention: deletes rows of the log and of the inbox, and incomplete uploads, after a time."""

from datetime import UTC, datetime, timedelta

from counterpoint.memory.record.database import Database
from counterpoint.memory.record.sql_files import load_statements

RETENTION_EVERY_S = 3600.0
"""Interval of retention and of the ageing of stores, in seconds."""

_EXPIRED = ("delete_expired_messages", "delete_expired_inbox", "delete_expired_uploads")
_SQL = load_statements(__package__)


async def delete_expired(database: Database, retention: timedelta) -> None:
    """Delete what is older than the retention in every project. Raises `Transient`."""
    before = datetime.now(UTC) - retention
    for project in await database.projects():
        async with database.writing(project) as connection:
            for name in _EXPIRED:
                await connection.execute(_SQL[name], before)
