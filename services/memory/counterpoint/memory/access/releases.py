"""Releases: the fingerprints of values that a person has let pass, by project."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from counterpoint.guard.fingerprints import Fingerprints
from counterpoint.memory.access.project_cache import ProjectCache
from counterpoint.memory.access.screening import Screen
from counterpoint.memory.record.database import Database

if TYPE_CHECKING:
    import asyncpg


class Releases(ProjectCache[Screen]):
    """The write filter of each project, with its current releases."""

    store = "releases"

    def __init__(self, database: Database, fingerprints: Fingerprints) -> None:
        super().__init__(database)
        self._fingerprints = fingerprints

    def derived(self, rows: "Sequence[asyncpg.Record]") -> Screen:
        """Return the write filter."""
        return Screen(self._fingerprints, frozenset(row["body"]["fingerprint"] for row in rows))
