"""Revocations: the tokens that are invalid before their expiry, by project."""

from cachetools import LRUCache

from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import CommitPlan

STORE = "revocations"
_PROJECTS = 10_000
"""Maximum number of cached projects."""
_OF_PROJECT = "SELECT id FROM records WHERE project = $1 AND store = 'revocations' AND body IS NOT NULL"


class Revocations:
    """Ids of revoked tokens by project; those of a project are cached until one more is revoked there."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cached: LRUCache[str, frozenset[str]] = LRUCache(_PROJECTS)
        self._changes = 0

    async def of(self, project: str) -> frozenset[str]:
        """Return the ids of the revoked tokens of a project. Raises `Transient` if the database is away."""
        known = self._cached.get(project)
        if known is None:
            changes = self._changes
            async with self._database.reading(project) as connection:
                known = frozenset(row["id"] for row in await connection.fetch(_OF_PROJECT, project))
            # A token may have been revoked during the lookup.
            if changes == self._changes:
                self._cached[project] = known
        return known

    def changed(self, plan: CommitPlan) -> None:
        """Take note of a commit that was applied, or may have been."""
        if any(row.store == STORE for row in plan.writes):
            self._changes += 1
            self._cached.pop(plan.project, None)
