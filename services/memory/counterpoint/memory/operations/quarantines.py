"""Wishes: the take-backs and liftings of a project, as the store `quarantines` has them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from counterpoint.memory.record.database import Database
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.memory import TakenBack

STORE = "quarantines"

_SQL = load_statements(__package__)
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

    async def all(self, project: str, since: datetime = _EVER) -> list[TakeBackRecord]:
        """The wishes that were done or changed since a moment, in the order of the project."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_SQL["take_backs_since"], project, since)
        return [_wish(row) for row in rows]

    async def get(self, project: str, wish_id: str) -> TakeBackRecord | None:
        """One of them."""
        async with self._database.reading(project) as connection:
            row = await connection.fetchrow(_SQL["take_back"], project, wish_id)
        return _wish(row) if row is not None else None


def _wish(row: Any) -> TakeBackRecord:
    return TakeBackRecord(row["id"], row["version"], TakenBack.model_validate(row["body"]), row["seq"])
