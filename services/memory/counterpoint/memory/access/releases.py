"""Releases as memory knows them: the fingerprints of values that a person has let pass, by project."""

from counterpoint.guard.fingerprints import Fingerprints
from counterpoint.memory.access.screening import Screen
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import CommitPlan

STORE = "releases"
_KNOWN = (
    "SELECT body ->> 'fingerprint' AS it FROM records WHERE project = $1 AND store = 'releases' AND body IS NOT NULL"
)


class Releases:
    """Projects to screens; what is known of a project is remembered until one of its releases changes."""

    def __init__(self, database: Database, fingerprints: Fingerprints) -> None:
        self._database = database
        self._fingerprints = fingerprints
        self._known: dict[str, Screen] = {}
        self._changes = 0

    async def screen(self, project: str) -> Screen:
        """The write filter of a project as its releases are now."""
        known = self._known.get(project)
        if known is None:
            changes = self._changes
            async with self._database.reading(project) as connection:
                rows = await connection.fetch(_KNOWN, project)
            known = Screen(self._fingerprints, frozenset(row["it"] for row in rows))
            # What changed while it was looked up may be what was found.
            if changes == self._changes:
                self._known[project] = known
        return known

    def changed(self, prepared: CommitPlan) -> None:
        """Called when a commit was applied, or may have been."""
        if any(row.store == STORE for row in prepared.writes):
            self._changes += 1
            self._known.pop(prepared.project, None)
