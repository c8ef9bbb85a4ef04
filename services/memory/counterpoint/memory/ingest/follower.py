"""Followers of the record: background processing of committed records.

The position of a follower in each project is kept in the record, so that no record is left out after a crash.
Processing a record twice must have the same result.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import structlog

from counterpoint.memory.record.database import Database, retry_while_transient
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.errors import Conflict, Denied, Permanent, Transient

log = structlog.get_logger()

_PAUSE_S = 0.5
_SQL = load_statements(__package__)


class Follower(ABC):
    """One follower of all projects.

    It follows the records of `stores`, `at_once` at a time; `reached` is the column of its position. A project in which
    it failed rests for `retry_s` seconds, while the others are followed.
    """

    name: ClassVar[str]
    stores: ClassVar[frozenset[str]]
    reached: ClassVar[str]
    at_once: ClassVar[int] = 50
    retry_s: ClassVar[float] = 5.0

    def __init__(self, database: Database) -> None:
        self._database = database
        self._projects: dict[str, None] = {}
        self._resting: set[str] = set()
        self._wake = asyncio.Event()

    def applied(self, steps: Iterable[CommitPlan]) -> None:
        """Take note of applied commits."""
        for step in steps:
            if step.project not in self._resting and any(row.store in self.stores for row in step.writes):
                self._schedule(step.project)

    def _schedule(self, project: str) -> None:
        self._resting.discard(project)
        self._projects[project] = None
        self._wake.set()

    async def run(self) -> None:
        """Follow all projects in turn until cancelled, each from its stored position."""
        self._projects |= dict.fromkeys(await retry_while_transient(self._database.projects))
        self._wake.set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._projects:
                project = next(iter(self._projects))
                del self._projects[project]
                try:
                    if await self.follow(project):
                        self._projects[project] = None
                except (Transient, Conflict) as away:
                    log.warning(f"{self.name}.waiting", project=project, reason=str(away))
                    self._projects.pop(project, None)
                    self._resting.add(project)
                    asyncio.get_running_loop().call_later(self.retry_s, self._schedule, project)
                await asyncio.sleep(_PAUSE_S)

    async def follow(self, project: str) -> int:
        """Process the next records of a project; return their number. Raises `Transient` or `Conflict`."""
        async with self._database.reading(project) as connection:
            statement = _SQL["next_changed"].format(reached=self.reached)
            rows = await connection.fetch(statement, project, self.at_once, sorted(self.stores))
        for row in rows:
            try:
                await self._process(project, row)
            except (Permanent, Denied) as error:
                log.warning(f"{self.name}.refused", project=project, store=row["store"], reason=str(error))
        if rows:
            async with self._database.connection() as connection:
                statement = _SQL["mark_reached"].format(reached=self.reached)
                await connection.execute(statement, project, rows[-1]["place"])
        return len(rows)

    @abstractmethod
    async def _process(self, project: str, row: Any) -> None:
        """Process one record. Raises `Permanent` or `Denied` for one that is skipped."""
