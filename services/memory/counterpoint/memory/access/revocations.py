"""Revocations: the tokens that are invalid before their expiry, by project."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from counterpoint.memory.access.project_cache import ProjectCache

if TYPE_CHECKING:
    import asyncpg


class Revocations(ProjectCache[frozenset[str]]):
    """The ids of the revoked tokens of each project."""

    store = "revocations"

    def derived(self, rows: "Sequence[asyncpg.Record]") -> frozenset[str]:
        """Return the ids."""
        return frozenset(row["id"] for row in rows)
