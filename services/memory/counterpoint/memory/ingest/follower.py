"""Followers of the record: each looks through what was committed, in the background, when nothing else waits.

How far one has come in each project is kept in the record, so that nothing is left out after a crash; what is looked at
twice has to come to the same.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import structlog

from counterpoint.memory.record.database import Database, patiently
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.proto.errors import Conflict, Denied, Permanent, Transient

log = structlog.get_logger()

_PAUSE_S = 0.5


class Follower(ABC):
    """One follower of all projects.

    `next_sql` (project, number) finds the next records, `mark_sql` (project, place) keeps how far it has come, after
    `at_once` records. Changes of `stores` are news. When it has to wait it rests for `again_s`.
    """

    name: ClassVar[str]
    stores: ClassVar[frozenset[str]]
    next_sql: ClassVar[str]
    mark_sql: ClassVar[str]
    at_once: ClassVar[int] = 50
    again_s: ClassVar[float] = 5.0

    def __init__(self, database: Database) -> None:
        self._database = database
        self._projects: dict[str, None] = {}
        self._news = asyncio.Event()

    def applied(self, steps: Iterable[CommitPlan]) -> None:
        """Called with every commit: there may be something to look through."""
        for step in steps:
            if any(row.store in self.stores for row in step.writes):
                self._projects[step.project] = None
                self._news.set()

    async def run(self) -> None:
        """For ever; first what was left over at the last end. Projects take turns."""
        self._projects |= dict.fromkeys(await patiently(self._database.projects))
        self._news.set()
        while True:
            await self._news.wait()
            self._news.clear()
            while self._projects:
                project = next(iter(self._projects))
                del self._projects[project]
                try:
                    if await self.follow(project):
                        self._projects[project] = None
                except (Transient, Conflict) as away:
                    log.warning(f"{self.name}.waiting", project=project, reason=str(away))
                    self._projects[project] = None
                    await asyncio.sleep(self.again_s)
                await asyncio.sleep(_PAUSE_S)

    async def follow(self, project: str) -> int:
        """Look through what is next in a project; how much it was. Raises `Transient` or `Conflict`."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(self.next_sql, project, self.at_once)
        for row in rows:
            try:
                await self._look(project, row)
            except (Permanent, Denied) as error:
                log.warning(f"{self.name}.refused", project=project, store=row["store"], reason=str(error))
        if rows:
            async with self._database.connection() as connection:
                await connection.execute(self.mark_sql, project, rows[-1]["place"])
        return len(rows)

    @abstractmethod
    async def _look(self, project: str, row: Any) -> None:
        """Look at one record. Raises `Permanent` or `Denied` for one that is passed over."""
