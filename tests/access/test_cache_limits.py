"""Caches by project and by principal have a limit: names are free to choose for a principal of all projects."""

import pytest
from memory_service.house import House

from counterpoint.guard.fingerprints import Fingerprints
from counterpoint.memory.access import principals, project_cache
from counterpoint.memory.access.releases import Releases
from counterpoint.memory.access.revocations import Revocations

PROJECTS = ("one", "two", "three", "four")
LIMIT = 3


async def test_the_oldest_project_makes_room_and_is_read_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((principals, "_CACHED"), (project_cache, "PROJECTS")):
        monkeypatch.setattr(module, name, LIMIT)
    known = principals.Principals(house.database)
    released = Releases(house.database, Fingerprints(house.keys))
    revoked = Revocations(house.database)
    for project in PROJECTS:
        await known._delegations("ann", project)
        await released.of(project)
        await revoked.of(project)
    for cache in (known._delegated, released._cached, revoked._cached):
        assert len(cache) == LIMIT
    first = await revoked.of(PROJECTS[0])
    assert first == frozenset()
    assert PROJECTS[0] in revoked._cached
