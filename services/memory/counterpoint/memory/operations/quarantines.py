"""Wishes: the take-backs and liftings of a project, as the store `quarantines` has them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from counterpoint.memory.record.database import Database
from counterpoint.proto.memory import TakenBack

STORE = "quarantines"

_WISHES = """
SELECT id, version, body, seq FROM records
WHERE project = $1 AND store = 'quarantines' AND body IS NOT NULL AND at > $2 ORDER BY seq
"""
_WISH = """
SELECT id, version, body, seq FROM records
WHERE project = $1 AND store = 'quarantines' AND id = $2 AND body IS NOT NULL
"""
_EVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TakeBackRecord:
    """A wish that was done: its id and version, what it says, and its place in the order of its project."""

    id: str
    version: int
    done: TakenBack
    seq: int

    @property
    def stands(self) -> bool:
        """Whether what it says is wrong is so still; not for what only belongs to another wish."""
        return self.done.kind != "lift" and not self.done.lifted and self.done.of is None


class TakeBackRecords:
    """Reads the wishes of projects."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def projects(self) -> list[str]:
        """All projects."""
        async with self._database.connection() as connection:
            return [row["project"] for row in await connection.fetch("SELECT project FROM projects")]

    async def all(self, project: str, since: datetime = _EVER) -> list[TakeBackRecord]:
        """The wishes that were done or changed since a moment, in the order of the project."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_WISHES, project, since)
        return [_wish(row) for row in rows]

    async def get(self, project: str, wish_id: str) -> TakeBackRecord | None:
        """One of them."""
        async with self._database.reading(project) as connection:
            row = await connection.fetchrow(_WISH, project, wish_id)
        return _wish(row) if row is not None else None


def _wish(row: Any) -> TakeBackRecord:
    return TakeBackRecord(row["id"], row["version"], TakenBack.model_validate(row["body"]), row["seq"])
