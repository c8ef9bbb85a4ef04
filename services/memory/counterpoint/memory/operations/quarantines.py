"""Take-back records: the take-backs and liftings of a project, in the store `quarantines`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from counterpoint.memory.record.database import Database
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.ids import derived_id
from counterpoint.proto.memory import Origin, TakeBack, TakenBack

STORE = "quarantines"

_SQL = load_statements(__package__)
_TASKS_NAMED = 500
_TAKE_BACKS_NAMED = 20
_ALWAYS = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TakeBackRecord:
    """Take-back that was executed: its id and version, its content, and its position in the order of its project."""

    id: str
    version: int
    done: TakenBack
    seq: int

    @property
    def in_force(self) -> bool:
        """Whether it is in force; False for one that belongs to another take-back."""
        return self.done.kind != "lift" and not self.done.lifted and self.done.of is None

    def lifted_body(self) -> dict[str, Any]:
        """Return its body after it was lifted."""
        return self.done.model_copy(update={"lifted": True}).model_dump(mode="json", exclude_none=True)

    def lifting(self) -> TakeBack:
        """Return the request that lifts it in another project."""
        return TakeBack(kind="lift", id=self.id, reason="was lifted in the shared project")


class TakeBackRecords:
    """Reads the take-backs of projects."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self, project: str, since: datetime = _ALWAYS) -> list[TakeBackRecord]:
        """Return the take-backs that were executed or changed since a time, in the order of the project."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_SQL["take_backs_since"], project, since)
        return [_record(row) for row in rows]

    async def get(self, project: str, take_back_id: str) -> TakeBackRecord | None:
        """Return one take-back, None if there is none."""
        async with self._database.reading(project) as connection:
            row = await connection.fetchrow(_SQL["take_back"], project, take_back_id)
        return _record(row) if row is not None else None


def result_of(
    take_back: TakeBack,
    origin: Origin,
    at: datetime,
    counts: tuple[Counter[str], Counter[str]],
    tasks: Sequence[str],
    *,
    shared: bool,
    of: str | None,
    others: tuple[str, ...],
) -> TakenBack:
    """Return the result of a take-back. `counts` are the records by store: taken out, and restored."""
    return TakenBack(
        **take_back.model_dump(include=set(TakeBack.model_fields)),
        by=origin.principal or "memory",
        at=at,
        out=counts[0],
        restored=counts[1],
        tasks=tuple(tasks[:_TASKS_NAMED]),
        tasks_count=len(tasks),
        shared=shared,
        of=of,
        others=others[:_TAKE_BACKS_NAMED],
    )


def origin_in(origin: Origin, project: str) -> Origin:
    """Return the origin of the part of a take-back in another project."""
    message_id = derived_id(origin.message_id, "take back", project)
    return origin.model_copy(update={"project": project, "message_id": message_id})


def _record(row: Any) -> TakeBackRecord:
    return TakeBackRecord(row["id"], row["version"], TakenBack.model_validate(row["body"]), row["seq"])
