"""Releases: the fingerprints of values that a person has let pass, by project."""

from cachetools import LRUCache

from counterpoint.guard.fingerprints import Fingerprints
from counterpoint.memory.access.screening import Screen
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import CommitPlan

STORE = "releases"
_PROJECTS = 10_000
"""Maximum number of cached projects."""
_OF_PROJECT = (
    "SELECT body ->> 'fingerprint' AS it FROM records WHERE project = $1 AND store = 'releases' AND body IS NOT NULL"
)


class Releases:
    """Screens by project; the releases of a project are cached until one of them changes."""

    def __init__(self, database: Database, fingerprints: Fingerprints) -> None:
        self._database = database
        self._fingerprints = fingerprints
        self._cached: LRUCache[str, Screen] = LRUCache(_PROJECTS)
        self._changes = 0

    async def screen(self, project: str) -> Screen:
        """Return the write filter of a project with its current releases. Raises `Transient`."""
        known = self._cached.get(project)
        if known is None:
            changes = self._changes
            async with self._database.reading(project) as connection:
                rows = await connection.fetch(_OF_PROJECT, project)
            known = Screen(self._fingerprints, frozenset(row["it"] for row in rows))
            # A change during the lookup may be what the lookup returned.
            if changes == self._changes:
                self._cached[project] = known
        return known

    def changed(self, plan: CommitPlan) -> None:
        """Take note of a commit that was applied, or may have been."""
        if any(row.store == STORE for row in plan.writes):
            self._changes += 1
            self._cached.pop(plan.project, None)
