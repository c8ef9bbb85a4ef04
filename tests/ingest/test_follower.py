"""A follower of all projects is not held up by one of them."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from counterpoint.memory.ingest.follower import Follower
from counterpoint.memory.record.database import Database
from counterpoint.proto.errors import Transient


class _Projects:
    """The projects of a database."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    async def projects(self) -> Sequence[str]:
        return self._names


class _Failing(Follower):
    """A follower that fails in one project; `followed` are the projects in the order of its work."""

    name = "failing"
    stores = frozenset({"documents"})
    next_sql = mark_sql = ""
    retry_s = 3600.0

    def __init__(self, names: Sequence[str], failing: str) -> None:
        super().__init__(cast(Database, _Projects(names)))
        self._failing = failing
        self.followed: list[str] = []
        self.reached = asyncio.Event()

    async def follow(self, project: str) -> int:
        self.followed.append(project)
        if project == self._failing:
            raise Transient("the provider is overloaded")
        self.reached.set()
        return 0

    async def _process(self, project: str, row: Any) -> None:
        raise NotImplementedError


async def test_a_project_that_fails_does_not_delay_the_others() -> None:
    follower = _Failing(("alpha", "beta"), failing="alpha")
    running = asyncio.create_task(follower.run())
    async with asyncio.timeout(30):
        await follower.reached.wait()
    running.cancel()
    assert follower.followed == ["alpha", "beta"]
