"""Revocations as memory knows them: the tokens that count no more before their time is over, by project."""

from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import CommitPlan

STORE = "revocations"
_KNOWN = "SELECT id FROM records WHERE project = $1 AND store = 'revocations' AND body IS NOT NULL"


class Revocations:
    """Projects to revocation ids; what is known of a project is remembered until one more is revoked there."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, frozenset[str]] = {}
        self._changes = 0

    async def of(self, project: str) -> frozenset[str]:
        """The revocation ids of a project as they are now. Raises `Transient` when the database is away."""
        known = self._known.get(project)
        if known is None:
            changes = self._changes
            async with self._database.reading(project) as connection:
                known = frozenset(row["id"] for row in await connection.fetch(_KNOWN, project))
            # A token may have been revoked while the others were looked up.
            if changes == self._changes:
                self._known[project] = known
        return known

    def changed(self, prepared: CommitPlan) -> None:
        """Called when a commit was applied, or may have been."""
        if any(row.store == STORE for row in prepared.writes):
            self._changes += 1
            self._known.pop(prepared.project, None)
