"""A value of each project, derived from the records of one store."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from cachetools import LRUCache

from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import CommitPlan

if TYPE_CHECKING:
    import asyncpg

PROJECTS = 10_000
"""Maximum number of cached projects."""
_RECORDS = "SELECT id, body FROM records WHERE project = $1 AND store = $2 AND body IS NOT NULL"
Value = TypeVar("Value")


class ProjectCache(ABC, Generic[Value]):
    """Values by project; that of a project is cached until a commit changes its records of `store`."""

    store: ClassVar[str]

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cached: LRUCache[str, Value] = LRUCache(PROJECTS)
        self._changes = 0

    @abstractmethod
    def derived(self, rows: "Sequence[asyncpg.Record]") -> Value:
        """Return the value of these records, `id` and `body` each."""

    async def of(self, project: str) -> Value:
        """Return the value of a project. Raises `Transient` if the database is away."""
        known = self._cached.get(project)
        if known is None:
            changes = self._changes
            async with self._database.reading(project) as connection:
                known = self.derived(await connection.fetch(_RECORDS, project, self.store))
            # A change during the lookup may be missing from what it returned.
            if changes == self._changes:
                self._cached[project] = known
        return known

    def changed(self, plan: CommitPlan) -> None:
        """Take note of a commit that was applied, or may have been."""
        if any(row.store == self.store for row in plan.writes):
            self._changes += 1
            self._cached.pop(plan.project, None)
