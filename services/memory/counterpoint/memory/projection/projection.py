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
PAUSE_S = 0.1
"""Delay between two steps, in seconds, unless a query waits: a step costs as much for one record as for many."""
_SQL = load_statements(__package__)
_CHANGES = _SQL["changes_after"].format(batch=BATCH)


def _no_progress(records: int) -> None:
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
        pause_s: float = PAUSE_S,
    ) -> None:
        self.tier = tier
        self.stores = tuple(stores)
        self._database = database
        self._embeddings = embeddings
        self._pause_s = pause_s
        self._model = tier.model if isinstance(tier, SearchingTier) else None
        self._requested: dict[str, int] = {}
        self._reached: dict[str, int] = {}
        self._failed: dict[str, int] = {}
        self._backing_off: set[str] = set()
        self._pausing: set[str] = set()
        self._awaited: dict[str, None] = {}
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
        self._requested[project] = self._requested.get(project, 0) + 1
        self._wake.set()

    async def run(self) -> None:
        """Update all projects until cancelled."""
        await self._mark_all()
        while True:
            self._wake.clear()
            project = self._due()
            if project is None:
                await self._wake.wait()
                continue
            try:
                await self._update(project)
                self._failed.pop(project, None)
                self._pausing.add(project)
                asyncio.get_running_loop().call_later(self._pause_s, self._end_pause, project)
            except CounterpointError as error:
                self._back_off(project, error)
            async with self._moved:
                self._moved.notify_all()

    async def caught_up(self, project: str, timeout_s: float) -> bool:
        """Wait until every commit acknowledged before now is in the tier; return False after a timeout. Does not wait
        if the last update failed."""
        requested = self._requested.get(project)
        if requested is None:
            self.mark(project)
            requested = self._requested[project]
        if self._reached.get(project, 0) >= requested:
            return True
        self._awaited[project] = None
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_s), self._moved:
                await self._moved.wait_for(
                    lambda: self._reached.get(project, 0) >= requested or self._failed.get(project, 0) > 1
                )
        except TimeoutError:
            return False
        finally:
            self._awaited.pop(project, None)
        return self._reached.get(project, 0) >= requested

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

    def _back_off(self, project: str, error: CounterpointError) -> None:
        """Retry a project after an error: at once, because a missing tier is rebuilt, and then every second."""
        failed = self._failed[project] = self._failed.get(project, 0) + 1
        if failed == 1:
            log.warning("projection.behind", tier=self.tier.name, project=project, reason=str(error))
        else:
            self._backing_off.add(project)
            asyncio.get_running_loop().call_later(_RETRY_S, self._end_back_off, project)

    def _end_pause(self, project: str) -> None:
        self._pausing.discard(project)
        self._wake.set()

    def _end_back_off(self, project: str) -> None:
        self._backing_off.discard(project)
        self._wake.set()

    def _due(self) -> str | None:
        """Return a project that is not up to date; first those that a query waits for."""
        for project in (*self._awaited, *(each for each in self._requested if each not in self._pausing)):
            if self._requested[project] > self._reached.get(project, 0) and project not in self._backing_off:
                return project
        return None

    async def _mark_all(self) -> None:
        while True:
            try:
                projects = await self._database.projects()
                break
            except Away:
                await asyncio.sleep(_RETRY_S)
        for project in projects:
            if project != SYSTEM:
                self.mark(project)

    async def _update(self, project: str) -> None:
        async with self._locks.setdefault(project, asyncio.Lock()):
            requested = self._requested[project]
            life, last = await self._identity(project)
            position = await self.tier.position(project)
            if position is not None and (position.life != life or position.seq > last):
                log.warning("projection.other_database", tier=self.tier.name, project=project)
                await self.tier.drop(project)
                position = None
            await self._advance(project, position or TierPosition(life, 0), stored=position is not None)
            self._reached[project] = requested

    async def _advance(
        self,
        project: str,
        position: TierPosition,
        *,
        stored: bool,
        draft: bool = False,
        report: Callable[[int], None] = _no_progress,
    ) -> TierPosition:
        """Apply all changes after a position; return the new one."""
        while True:
            changes, reached = await self._changes(project, position.seq)
            if changes or not stored:
                position = TierPosition(position.life, reached)
                await self.tier.apply(project, changes, position, draft=draft)
                stored = True
                report(len(changes))
            if len(changes) < BATCH:
                return position

    async def _rebuild(self, progress: RebuildState) -> None:
        project = progress.project

        def report(records: int) -> None:
            progress.records += records

        try:
            async with self._database.reading(project) as connection:
                progress.of = await connection.fetchval(_SQL["count_records"], project, list(self.stores))
            life, _ = await self._identity(project)
            await self.tier.drop(project, draft=True)
            position = await self._advance(project, TierPosition(life, 0), stored=False, draft=True, report=report)
            # The rest under the lock of the project, and then the swap.
            async with self._locks.setdefault(project, asyncio.Lock()):
                await self._advance(project, position, stored=True, draft=True, report=report)
                await self.tier.swap(project)
            progress.state = "done"
            log.info("projection.rebuilt", tier=self.tier.name, project=project, records=progress.records)
        except (CounterpointError, OSError) as error:
            progress.state, progress.problem = "failed", str(error)
            log.warning("projection.rebuild_failed", tier=self.tier.name, project=project, reason=str(error))
        finally:
            if progress.state == "running":
                progress.state = "failed"

    async def _identity(self, project: str) -> tuple[str, int]:
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
