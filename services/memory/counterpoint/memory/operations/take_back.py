"""Take-back: a wrong record and everything derived from it is removed from reads, or replaced by earlier versions.

Nothing is lost. A removed record is a deleted one: its versions stay in the history, and a lifting restores them.
Concurrent work is covered too: a run that read a removed record is repeated, and the results of a message that carried
one are removed afterwards.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import structlog

from counterpoint.client import retry_on_conflict
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.commit.committer import Committer
from counterpoint.memory.commit.pipeline import EmbeddingPipeline
from counterpoint.memory.commit.planner import plan_commit
from counterpoint.memory.operations.changes import RecordRollback, VersionHistory
from counterpoint.memory.operations.extent import Extent
from counterpoint.memory.operations.large_acts import LargeActs
from counterpoint.memory.operations.preview import planned, preview
from counterpoint.memory.operations.quarantines import STORE, TakeBackRecord, TakeBackRecords, origin_in, result_of
from counterpoint.memory.provenance.influence import Influence, Version
from counterpoint.memory.provenance.read_sets import ReadSet
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.memory.record.stamps import Provenance
from counterpoint.proto.errors import Conflict, Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.ids import derived_id, new_id
from counterpoint.proto.memory import Commit, CommitReply, Origin, Ref, TakeBack, TakeBackPreview, Write
from counterpoint.proto.subjects import SHARED_PROJECT

T = TypeVar("T")

log = structlog.get_logger()

_ATTEMPTS = 5
_UNCONFIRMED_S = 90.0
"""Age after which a commit without a reply can no longer be applied, in seconds: longer than the statement timeout and
the wait for it."""


class TakeBacks:
    """Executes take-backs, one at a time per project, and knows the versions that were taken back lately."""

    def __init__(
        self,
        database: Database,
        policy: Policy,
        committer: Committer,
        vectors: EmbeddingPipeline,
        influence: Influence,
        large_acts: LargeActs,
    ) -> None:
        self._database = database
        self._policy = policy
        self._committer = committer
        self._vectors = vectors
        self._influence = influence
        self._large_acts = large_acts
        self._changes = VersionHistory(database, policy)
        self._records = TakeBackRecords(database)
        self._extent = Extent(influence, self._changes, self._records)
        self._wrong: dict[str, dict[str, frozenset[Version]]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._unconfirmed: dict[tuple[str, str], float] = {}

    async def remember(self, since: datetime) -> None:
        """Load the take-backs since a time. To be called before requests are answered."""
        for project in await self._database.projects():
            for take_back in await self._records.all(project, since):
                if take_back.in_force:
                    self._wrong_in(project)[take_back.id] = await self._extent.of_record(project, take_back)

    async def finish(self, since: datetime) -> None:
        """Finish the take-backs since a time that the last process left incomplete. To be called when commits can be
        applied."""
        for project in await self._database.projects():
            for take_back in await self._records.all(project, since):
                await self._finish_or_log(project, take_back)

    async def settle(self) -> None:
        """Look up the outcome of take-backs whose commit had no reply. Raises `Transient`."""
        for (project, take_back_id), since in list(self._unconfirmed.items()):
            async with self._locks[project]:
                take_back = await self._records.get(project, take_back_id)
                if take_back is None and time.monotonic() - since < _UNCONFIRMED_S:
                    continue
                if take_back is None or not take_back.in_force:
                    self._wrong_in(project).pop(take_back_id, None)
                if take_back is not None:
                    await self._finish_or_log(project, take_back)
                self._unconfirmed.pop((project, take_back_id), None)

    async def _finish_or_log(self, project: str, take_back: TakeBackRecord) -> None:
        try:
            await self._finish(project, take_back)
        except (Permanent, Conflict) as error:
            log.error("takeback.unfinished", project=project, quarantine_id=take_back.id, reason=str(error))

    async def _finish(self, project: str, take_back: TakeBackRecord) -> None:
        if take_back.in_force:
            await retry_on_conflict(partial(self._complete, project, take_back), _ATTEMPTS)
        if project == SHARED_PROJECT and take_back.done.of is None and take_back.done.kind != "lift":
            origin = Origin(message_id=derived_id(take_back.id, "finish"), project=project, principal=take_back.done.by)
            if take_back.done.lifted:
                await self._lift_in_other_projects(origin, derived_id(take_back.id, "lift"), take_back.lifting())
            else:
                await self._in_other_projects(origin, take_back.id, take_back.done, take_back.seq)

    def wrong(self, project: str, read: ReadSet) -> Ref | None:
        """Return an item of a read set that was taken back lately, None if there is none.

        A record that is not learned, such as a task, stays and can be read; records derived from it are removed
        afterwards.
        """
        learned_refs = [ref for ref in read.scores if self._changes.learned(ref.store)]
        own = (ref for ref in learned_refs if ref not in read.shared)
        shared = (ref for ref in learned_refs if ref in read.shared)
        return self._first(project, own) or self._first(SHARED_PROJECT, shared)

    def carried(self, project: str, refs: Iterable[Ref]) -> bool:
        """Whether any of these items was taken back, in the project or the shared one: a message does not say which it
        carried."""
        return bool(self._causes(project, tuple(refs)))

    def _causes(self, project: str, refs: Sequence[Ref]) -> list[tuple[str, str]]:
        """Return the take-backs, by project and id, that cover items carried by a message."""
        keys = {(ref.store, ref.id, ref.version) for ref in refs}
        return [
            (home, take_back_id)
            for home in dict.fromkeys((project, SHARED_PROJECT))
            for take_back_id, wrong in self._wrong.get(home, {}).items()
            if not wrong.isdisjoint(keys)
        ]

    def _first(self, project: str, refs: Iterable[Ref]) -> Ref | None:
        known = self._wrong.get(project)
        if not known:
            return None
        return next((r for r in refs if any((r.store, r.id, r.version) in each for each in known.values())), None)

    async def apply(self, origin: Origin, take_back_id: str, take_back: TakeBack) -> CommitReply:
        """Take back or lift, and record the result in the store `quarantines`. Raises `Permanent` `not_found`, or
        `conflict` if it was lifted already, `AwaitsApproval`, and every error of a commit."""
        async with self._locks[origin.project]:
            reply = await retry_on_conflict(partial(self._take_back, origin, take_back_id, take_back), _ATTEMPTS)
            if origin.project == SHARED_PROJECT:
                if take_back.kind == "lift":
                    await self._lift_in_other_projects(origin, take_back_id, take_back)
                else:
                    await self._in_other_projects(origin, take_back_id, take_back)
            return reply

    async def preview(self, project: str, take_back: TakeBack) -> TakeBackPreview:
        """Return the result that a quarantine or rollback would have now. Raises `Permanent` as `apply` does."""
        return await preview(self._extent, self._changes, self._database, project, take_back)

    async def follow(self, origin: Origin, applied: CommitPlan) -> None:
        """Remove the writes of a concurrent commit that are derived from items taken back."""
        if not any(row.body is not None and self._changes.learned(row.store) for row in applied.writes):
            return
        project = applied.project
        async with self._locks[project]:
            for home, take_back_id in self._causes(project, tuple(applied.provenance.refs)):
                try:
                    await retry_on_conflict(partial(self._catch_up, origin, home, take_back_id), _ATTEMPTS)
                except Conflict:
                    log.warning("takeback.conflict", project=project, commit_id=applied.commit_id)

    async def _catch_up(self, origin: Origin, home: str, take_back_id: str) -> None:
        """Take back in a project what was committed since a take-back in force."""
        take_back = await self._records.get(origin.project, take_back_id)
        if take_back is not None:
            if take_back.in_force:
                await self._complete(origin.project, take_back)
        elif (
            home != origin.project
            and (first := await self._records.get(home, take_back_id)) is not None
            and first.in_force
        ):
            await self._in_project(origin, take_back_id, first.done, first.seq)

    async def _take_back(
        self, origin: Origin, take_back_id: str, take_back: TakeBack, *, shared: bool = False, before: int | None = None
    ) -> CommitReply:
        """Take back in one project; `shared` if the item is one of the shared project. Versions after the position
        `before` in the shared project are not wrong."""
        project = origin.project
        if take_back.kind == "lift":
            return await self._lift(origin, take_back_id, take_back)
        take_back = await self._extent.versioned(SHARED_PROJECT if shared else project, take_back)
        roots = await self._extent.roots(project, take_back, shared=shared, before=before)
        position = await self._influence.latest(project)
        wrong, tasks = await self._extent.of(project, roots, shared=shared)
        # From here on commits derived from these versions are refused: reads before the deletion would be wrong.
        former = self._wrong_in(project).get(take_back_id)
        self._wrong_in(project)[take_back_id] = wrong
        try:
            changes = await self._changes.of(project, wrong, restores=take_back.restores)
            permit: tuple[Write, ...] = ()
            if not shared:
                act = await planned(self._extent, self._database, project, take_back, roots, changes)
                permit = await self._large_acts.permit(origin, act)
            reply = await self._commit(origin, take_back_id, take_back, changes, tasks, permit, shared=shared)
        except (Conflict, Denied, Permanent):
            self._wrong_in(project).pop(take_back_id)
            if former is not None:
                self._wrong_in(project)[take_back_id] = former
            raise
        except BaseException:
            # It may have been applied, or may still be. Until that is known, the versions count as wrong.
            self._unconfirmed[project, take_back_id] = time.monotonic()
            raise
        self._unconfirmed.pop((project, take_back_id), None)
        if await self._influence.latest(project) != position:
            await self._stragglers(origin, take_back_id, take_back, roots, shared=shared)
        return reply

    async def _in_other_projects(
        self, origin: Origin, take_back_id: str, take_back: TakeBack, before: int | None = None
    ) -> None:
        """Take back in all other projects what is derived from a shared item, if not done yet."""
        for project in await self._database.projects():
            if project != SHARED_PROJECT and await self._records.get(project, take_back_id) is None:
                await self._in_project(origin_in(origin, project), take_back_id, take_back, before)

    async def _in_project(self, origin: Origin, take_back_id: str, take_back: TakeBack, before: int | None) -> None:
        """Take back what a project derived from a shared item, if anything."""
        roots = await self._extent.roots(SHARED_PROJECT, take_back, before=before)
        radius = await self._influence.of(origin.project, roots, shared=True, limit=1)
        if radius.touched:
            await retry_on_conflict(
                partial(self._take_back, origin, take_back_id, take_back, shared=True, before=before), _ATTEMPTS
            )

    async def _lift_in_other_projects(self, origin: Origin, take_back_id: str, take_back: TakeBack) -> None:
        """Lift a take-back of the shared project in all others, if not done yet."""
        for project in await self._database.projects():
            known = await self._records.get(project, take_back.id)
            if project != SHARED_PROJECT and known is not None and known.in_force:
                await retry_on_conflict(
                    partial(self._lift, origin_in(origin, project), take_back_id, take_back), _ATTEMPTS
                )

    async def _stragglers(
        self, origin: Origin, take_back_id: str, take_back: TakeBack, roots: frozenset[Version], *, shared: bool
    ) -> None:
        """Take back what was committed during the take-back."""
        wrong, tasks = await self._extent.of(origin.project, roots, shared=shared)
        if wrong <= self._wrong_in(origin.project)[take_back_id]:
            return
        self._wrong_in(origin.project)[take_back_id] |= wrong
        changes = await self._changes.of(origin.project, wrong, restores=take_back.restores)
        if changes:
            late_id = derived_id(take_back_id, "late")
            await self._commit(origin, late_id, take_back, changes, tasks, (), shared=shared, of=take_back_id)

    async def _complete(self, project: str, take_back: TakeBackRecord) -> None:
        """Take back what was committed during a take-back, and was not covered before the process ended."""
        wrong = await self._extent.of_record(project, take_back)
        self._wrong_in(project)[take_back.id] = wrong
        changes = await self._changes.of(project, wrong, restores=take_back.done.restores)
        if changes:
            # Later take-backs may decide otherwise about some of these records.
            standing = await self._extent.standing(project, await self._records.all(project))
            changes = await self._changes.replayed(project, {(each.store, each.id) for each in changes}, standing)
        if changes:
            origin = Origin(message_id=new_id(), project=project, principal=take_back.done.by)
            await self._commit(
                origin, new_id(), take_back.done, changes, (), (), shared=take_back.done.shared, of=take_back.id
            )

    async def _lift(self, origin: Origin, take_back_id: str, take_back: TakeBack) -> CommitReply:
        """Restore the state of the records without a quarantine or a rollback."""
        project = origin.project
        records = await self._records.all(project)
        known = next((each for each in records if each.id == take_back.id and each.done.kind != "lift"), None)
        if known is None:
            problem = Problem(field="item", problem=f"{take_back.id} is not a quarantine or rollback of this project")
            raise Permanent(ErrorCode.NOT_FOUND, (problem,))
        if known.done.lifted:
            raise Permanent(ErrorCode.CONFLICT, (Problem(field="item", problem=f"{take_back.id} was already lifted"),))
        parts = [each for each in records if take_back.id in (each.id, each.done.of)]
        standing = await self._extent.standing(project, records, take_back.id)
        wrong = await self._extent.of_record(project, known, take_back.id)
        keys = await self._changes.affected(project, [each.id for each in parts])
        keys |= {(store, record) for store, record, _ in wrong}
        about = [each for each in standing if any((store, record) in keys for store, record, _ in each.wrong)]
        # Records derived from a restored one may now be derived from one that another take-back declares wrong.
        keys |= {(store, record) for each in about for store, record, _ in each.wrong}
        changes = await self._changes.replayed(project, keys, standing)
        lifted = (each for each in parts if not each.done.lifted)
        writes = tuple(Write(store=STORE, id=each.id, body=each.lifted_body(), expect=each.version) for each in lifted)
        others = tuple(each.id for each in about)
        reply = await self._commit(origin, take_back_id, take_back, changes, (), writes, others=others)
        self._wrong_in(project).pop(take_back.id, None)
        return reply

    async def _commit(
        self,
        origin: Origin,
        take_back_id: str,
        take_back: TakeBack,
        changes: Sequence[RecordRollback],
        tasks: Sequence[str],
        writes: tuple[Write, ...],
        *,
        shared: bool = False,
        of: str | None = None,
        others: tuple[str, ...] = (),
    ) -> CommitReply:
        """Make one commit on behalf of the person who took back or lifted."""
        now = datetime.now(UTC)
        restored = await self._changes.restoring_writes(origin.project, changes)
        outs = [each for each in changes if each.before is None]
        counts = Counter(each.store for each in outs), Counter(row.store for row in restored)
        done = result_of(take_back, origin, now, counts, tasks, shared=shared, of=of, others=others)
        record = Write(store=STORE, id=take_back_id, body=done.model_dump(mode="json", exclude_none=True))
        deleted = (Write(store=each.store, id=each.id, body=None, expect=each.present) for each in outs)
        prepared = plan_commit(
            self._policy,
            diode.taking_back(self._policy, origin.project, origin.message_id, now),
            origin,
            Commit(step=f"take back {take_back_id}", writes=(record, *writes, *deleted)),
            now=now,
            caused_by=Provenance(),
            memories=ReadSet(),
            task_version=None,
            restored=restored,
        )
        reply, _ = await self._vectors.applied(self._committer, prepared)
        log.warning("takeback.done", project=origin.project, kind=take_back.kind, out=len(outs), restored=len(restored))
        return reply

    def _wrong_in(self, project: str) -> dict[str, frozenset[Version]]:
        return self._wrong.setdefault(project, {})
