"""Projections: changes of the record, applied to a tier in the background and in the order of the record.

A commit only marks its project as changed. The changes are read from the record by position, from the position of the
tier on; that of a restored record is `changed`. So nothing is lost by a restart, an engine that was away, or a deleted
folder.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from counterpoint.memory.commit.pipeline import EmbeddingPipeline
from counterpoint.memory.projection.tier import RecordChange, SearchingTier, Tier, TierPosition
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import SYSTEM, CommitPlan
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.errors import Away, CounterpointError, ErrorCode, Permanent, Problem
from counterpoint.proto.upcast import upcast

log = structlog.get_logger()

BATCH = 500
_RETRY_S = 1.0
GATHER_S = 0.1
"""Delay between two steps, in seconds, unless a query waits: a step costs as much for one record as for many."""
_SQL = load_statements(__package__)
_CHANGES = _SQL["changes_after"].format(batch=BATCH)


def _silent(records: int) -> None:
    """Report no progress."""


@dataclass(slots=True)
class RebuildState:
    """Progress of a rebuild: `records` of the `of` that existed at its beginning."""

    project: str
    state: str = "running"
    records: int = 0
    of: int = 0
    problem: str | None = None


class Projection:
    """A tier and its updates from the record."""

    def __init__(
        self,
        tier: Tier,
        stores: Sequence[str],
        database: Database,
        embeddings: EmbeddingPipeline | None = None,
        *,
        gather_s: float = GATHER_S,
    ) -> None:
        self.tier = tier
        self.stores = tuple(stores)
        self._database = database
        self._embeddings = embeddings
        self._gather_s = gather_s
        self._model = tier.model if isinstance(tier, SearchingTier) else None
        self._wanted: dict[str, int] = {}
        self._reached: dict[str, int] = {}
        self._failed: dict[str, int] = {}
        self._resting: set[str] = set()
        self._gathering: set[str] = set()
        self._asked: dict[str, None] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._wake = asyncio.Event()
        self._moved = asyncio.Condition()
        self._rebuilding: dict[str, RebuildState] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def applied(self, steps: Iterable[CommitPlan]) -> None:
        """Take note of applied commits."""
        for step in steps:
            if any(row.store in self.stores for row in step.writes):
                self.mark(step.project)

    def mark(self, project: str) -> None:
        """Mark a project as changed, or its position as unknown."""
        self._wanted[project] = self._wanted.get(project, 0) + 1
        self._wake.set()

    async def run(self) -> None:
        """Update all projects for ever."""
        await self._learn()
        while True:
            self._wake.clear()
            project = self._due()
            if project is None:
                await self._wake.wait()
                continue
            try:
                await self._follow(project)
                self._failed.pop(project, None)
                self._gathering.add(project)
                asyncio.get_running_loop().call_later(self._gather_s, self._gathered, project)
            except CounterpointError as error:
                self._again(project, error)
            async with self._moved:
                self._moved.notify_all()

    async def caught_up(self, project: str, patience_s: float) -> bool:
        """Wait until every commit acknowledged before now is in the tier; return False after a timeout. Does not wait
        if the last update failed."""
        wanted = self._wanted.get(project)
        if wanted is None:
            self.mark(project)
            wanted = self._wanted[project]
        if self._reached.get(project, 0) >= wanted:
            return True
        self._asked[project] = None
        self._wake.set()
        try:
            async with asyncio.timeout(patience_s), self._moved:
                await self._moved.wait_for(
                    lambda: self._reached.get(project, 0) >= wanted or self._failed.get(project, 0) > 1
                )
        except TimeoutError:
            return False
        finally:
            self._asked.pop(project, None)
        return self._reached.get(project, 0) >= wanted

    def rebuild(self, project: str) -> RebuildState:
        """Rebuild a project as a draft, and swap it in. Raises `Permanent` `conflict`."""
        running = self._rebuilding.get(project)
        if running is not None and running.state == "running":
            problem = f"{self.tier.name} of {project} is being rebuilt: {running.records} of {running.of} records"
            raise Permanent(ErrorCode.CONFLICT, (Problem(field="rebuild", problem=problem),))
        progress = self._rebuilding[project] = RebuildState(project)
        task = asyncio.create_task(self._rebuild(progress))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return progress

    def rebuilding(self, project: str) -> RebuildState | None:
        """Return the last rebuild of a project since the start of this process."""
        return self._rebuilding.get(project)

    async def close(self) -> None:
        """Stop the rebuilds, and close the tier."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.tier.close()

    def _again(self, project: str, error: CounterpointError) -> None:
        """Retry a project after an error: at once, because a missing tier is rebuilt, and then every second."""
        failed = self._failed[project] = self._failed.get(project, 0) + 1
        if failed == 1:
            log.warning("projection.behind", tier=self.tier.name, project=project, reason=str(error))
        else:
            self._resting.add(project)
            asyncio.get_running_loop().call_later(_RETRY_S, self._rested, project)

    def _gathered(self, project: str) -> None:
        self._gathering.discard(project)
        self._wake.set()

    def _rested(self, project: str) -> None:
        self._resting.discard(project)
        self._wake.set()

    def _due(self) -> str | None:
        """Return a project that is not up to date; first those that a query waits for."""
        for project in (*self._asked, *(each for each in self._wanted if each not in self._gathering)):
            if self._wanted[project] > self._reached.get(project, 0) and project not in self._resting:
                return project
        return None

    async def _learn(self) -> None:
        while True:
            try:
                projects = await self._database.projects()
                break
            except Away:
                await asyncio.sleep(_RETRY_S)
        for project in projects:
            if project != SYSTEM:
                self.mark(project)

    async def _follow(self, project: str) -> None:
        async with self._locks.setdefault(project, asyncio.Lock()):
            wanted = self._wanted[project]
            life, last = await self._life(project)
            place = await self.tier.place(project)
            if place is not None and (place.life != life or place.seq > last):
                log.warning("projection.foreign", tier=self.tier.name, project=project)
                await self.tier.drop(project)
                place = None
            await self._advance(project, place or TierPosition(life, 0), settled=place is not None)
            self._reached[project] = wanted

    async def _advance(
        self,
        project: str,
        place: TierPosition,
        *,
        settled: bool,
        draft: bool = False,
        tell: Callable[[int], None] = _silent,
    ) -> TierPosition:
        """Apply all changes after a position; return the new one."""
        while True:
            changes, reached = await self._changes(project, place.seq)
            if changes or not settled:
                place = TierPosition(place.life, reached)
                await self.tier.apply(project, changes, place, draft=draft)
                settled = True
                tell(len(changes))
            if len(changes) < BATCH:
                return place

    async def _rebuild(self, progress: RebuildState) -> None:
        project = progress.project

        def tell(records: int) -> None:
            progress.records += records

        try:
            async with self._database.reading(project) as connection:
                progress.of = await connection.fetchval(_SQL["count_records"], project, list(self.stores))
            life, _ = await self._life(project)
            await self.tier.drop(project, draft=True)
            place = await self._advance(project, TierPosition(life, 0), settled=False, draft=True, tell=tell)
            # The rest under the lock of the project, and then the swap.
            async with self._locks.setdefault(project, asyncio.Lock()):
                await self._advance(project, place, settled=True, draft=True, tell=tell)
                await self.tier.swap(project)
            progress.state = "done"
            log.info("projection.rebuilt", tier=self.tier.name, project=project, records=progress.records)
        except (CounterpointError, OSError) as error:
            progress.state, progress.problem = "failed", str(error)
            log.warning("projection.rebuild_failed", tier=self.tier.name, project=project, reason=str(error))
        finally:
            if progress.state == "running":
                progress.state = "failed"

    async def _life(self, project: str) -> tuple[str, int]:
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_SQL["project_identity"], project)
        # A project without a commit has nothing to apply.
        return (row["created_at"].isoformat(), row["last_seq"]) if row else ("", 0)

    async def _changes(self, project: str, after: int) -> tuple[list[RecordChange], int]:
        """Return the next changes after a position, and the position of the last of them."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_CHANGES, project, list(self.stores), after)
        changes, reached = [change_of(project, row) for row in rows], rows[-1]["place"] if rows else after
        if self._embeddings is not None:
            changes = await with_vectors(self._embeddings, project, changes, self._model)
        return changes, reached


def change_of(project: str, row: Any) -> RecordChange:
    """Return a row of `records` as a change."""
    body = row["body"]
    return RecordChange(
        project=project,
        store=row["store"],
        id=row["id"],
        version=row["version"],
        seq=row["seq"],
        author=row["author"],
        label=row["label"],
        task_id=row["task_id"],
        integrity=row["integrity"],
        body=None if body is None else upcast(row["store"], row["schema_version"], body)[1],
    )


async def with_vectors(
    embeddings: EmbeddingPipeline, project: str, changes: Sequence[RecordChange], model: str | None
) -> list[RecordChange]:
    """Return the changes, those with a body with their vector by a model."""
    texts = [embeddings.text(change.store, change.body) for change in changes if change.body is not None]
    label = max((change.label for change in changes), default=0)
    found, _ = await embeddings.of(project, texts, label, model=model)
    vectors = iter(found)
    return [each if each.body is None else dataclasses.replace(each, vector=next(vectors)) for each in changes]
