"""Linking: turns the read sets of new commits into edges of derivation, which outlive the read sets."""

from counterpoint.memory.provenance.influence import Influence
from counterpoint.memory.record.database import Database


async def link_sources(database: Database, influence: Influence) -> None:
    """Link the commits of every project since the last run. Raises `Transient`."""
    for project in await database.projects():
        await influence.link(project)
