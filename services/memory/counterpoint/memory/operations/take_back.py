"""Taking back: a wrong record and all that was learned from it leaves every read, or gives way to what stood before.

Nothing is lost by it: a record that is taken out is one that was deleted, its versions stay in the history, and the
same way leads back. What was under way meanwhile finds no hold: who has read what was taken out begins again, and what
a message carried into a later commit is taken out with it.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import structlog

from counterpoint.client import retry_on_conflict
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.commit.committer import Committer
from counterpoint.memory.commit.pipeline import EmbeddingPipeline
from counterpoint.memory.commit.planner import plan_commit
from counterpoint.memory.operations.changes import RecordRollback, VersionHistory
from counterpoint.memory.operations.extent import Extent
from counterpoint.memory.operations.quarantines import STORE, TakeBackRecord, TakeBackRecords
from counterpoint.memory.provenance.influence import Influence, Version
from counterpoint.memory.provenance.read_sets import ReadSet
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.memory.record.stamps import Provenance
from counterpoint.proto.errors import Conflict, Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.ids import derived_id, new_id
from counterpoint.proto.memory import Commit, CommitReply, Origin, Ref, TakeBack, TakenBack, Write
from counterpoint.proto.subjects import SHARED_PROJECT

T = TypeVar("T")

log = structlog.get_logger()

_ATTEMPTS = 5
_TASKS_NAMED = 500
_WISHES_NAMED = 20
_UNHEARD_S = 90.0
"""Age after which a commit without an answer cannot be applied any more, in seconds: longer than a statement may
take and than a commit waits for one."""


class TakeBacks:
    """Does what persons wish, a project's wishes one after another, and knows what was wrong lately."""

    def __init__(
        self, database: Database, policy: Policy, committer: Committer, vectors: EmbeddingPipeline, influence: Influence
    ) -> None:
        self._policy = policy
        self._committer = committer
        self._vectors = vectors
        self._influence = influence
        self._changes = VersionHistory(database, policy)
        self._wishes = TakeBackRecords(database)
        self._extent = Extent(influence, self._changes, self._wishes)
        self._wrong: dict[str, dict[str, frozenset[Version]]] = {}
        self._alone: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._unsure: dict[tuple[str, str], float] = {}

    async def remember(self, since: datetime) -> None:
        """Know again what was taken back after a moment; to be called before anything is answered."""
        for project in await self._wishes.projects():
            for wish in await self._wishes.all(project, since):
                if wish.stands:
                    self._known(project)[wish.id] = await self._extent.of_wish(project, wish)

    async def finish(self, since: datetime) -> None:
        """Take back and put back what an end of the process has left of the wishes after a moment; to be called when
        commits are applied."""
        for project in await self._wishes.projects():
            for wish in await self._wishes.all(project, since):
                await self._finish_or_say(project, wish)

    async def settle(self) -> None:
        """Find out what became of the wishes of which nobody has heard; to be called now and then.

        Raises `Transient`.
        """
        for (project, wish_id), since in list(self._unsure.items()):
            async with self._alone[project]:
                wish = await self._wishes.get(project, wish_id)
                if wish is None and time.monotonic() - since < _UNHEARD_S:
                    continue
                if wish is None or not wish.stands:
                    self._known(project).pop(wish_id, None)
                if wish is not None:
                    await self._finish_or_say(project, wish)
                self._unsure.pop((project, wish_id), None)

    async def _finish_or_say(self, project: str, wish: TakeBackRecord) -> None:
        try:
            await self._finish(project, wish)
        except (Permanent, Conflict) as error:
            log.error("takeback.unfinished", project=project, quarantine_id=wish.id, reason=str(error))

    async def _finish(self, project: str, wish: TakeBackRecord) -> None:
        if wish.stands:
            await retry_on_conflict(partial(self._rest, project, wish), _ATTEMPTS)
        if project == SHARED_PROJECT and wish.done.of is None and wish.done.kind != "lift":
            origin = Origin(message_id=derived_id(wish.id, "finish"), project=project, principal=wish.done.by)
            if wish.done.lifted:
                await self._lift_elsewhere(origin, derived_id(wish.id, "lift"), _lifting(wish))
            else:
                await self._elsewhere(origin, wish.id, wish.done, wish.seq)

    def wrong(self, project: str, read: ReadSet) -> Ref | None:
        """One of the items that were read and have been taken back lately, None when there is none.

        What is no lesson, as a task is none, stays where it is and can be read: what is made of it is taken out behind.
        """
        gone = [ref for ref in read.scores if self._changes.learned(ref.store)]
        own = (ref for ref in gone if ref not in read.shared)
        return self._first(project, own) or self._first(SHARED_PROJECT, (ref for ref in gone if ref in read.shared))

    def carried(self, project: str, refs: Iterable[Ref]) -> bool:
        """Whether a message carried any such item, of which nobody knows whether it was shared."""
        return bool(self._causes(project, tuple(refs)))

    def _causes(self, project: str, refs: Sequence[Ref]) -> list[tuple[str, str]]:
        """The wishes, by project and id, that something carried was taken back for."""
        keys = {(ref.store, ref.id, ref.version) for ref in refs}
        return [
            (home, wish_id)
            for home in dict.fromkeys((project, SHARED_PROJECT))
            for wish_id, wrong in self._wrong.get(home, {}).items()
            if not wrong.isdisjoint(keys)
        ]

    def _first(self, project: str, refs: Iterable[Ref]) -> Ref | None:
        known = self._wrong.get(project)
        if not known:
            return None
        return next((r for r in refs if any((r.store, r.id, r.version) in each for each in known.values())), None)

    async def apply(self, origin: Origin, wish_id: str, wish: TakeBack) -> CommitReply:
        """Take back or lift, and keep the result in the store `quarantines`.

        Raises `Permanent` `not_found`, or `conflict` when it was lifted already, and what a commit raises.
        """
        async with self._alone[origin.project]:
            reply = await retry_on_conflict(partial(self._do, origin, wish_id, wish), _ATTEMPTS)
            if origin.project == SHARED_PROJECT:
                if wish.kind == "lift":
                    await self._lift_elsewhere(origin, wish_id, wish)
                else:
                    await self._elsewhere(origin, wish_id, wish)
            return reply

    async def follow(self, origin: Origin, applied: CommitPlan) -> None:
        """Take out what a commit wrote that rests on what was taken back, for it was under way before."""
        if not any(row.body is not None and self._changes.learned(row.store) for row in applied.writes):
            return
        project = applied.project
        async with self._alone[project]:
            for home, wish_id in self._causes(project, tuple(applied.provenance.refs)):
                try:
                    await retry_on_conflict(partial(self._catch_up, origin, home, wish_id), _ATTEMPTS)
                except Conflict:
                    log.warning("takeback.overtaken", project=project, commit_id=applied.commit_id)

    async def _catch_up(self, origin: Origin, home: str, wish_id: str) -> None:
        """Take back in a project what a wish that stands is about, and was committed since."""
        wish = await self._wishes.get(origin.project, wish_id)
        if wish is not None:
            if wish.stands:
                await self._rest(origin.project, wish)
        elif home != origin.project and (first := await self._wishes.get(home, wish_id)) is not None and first.stands:
            await self._in_project(origin, wish_id, first.done, first.seq)

    async def _do(
        self, origin: Origin, wish_id: str, wish: TakeBack, *, shared: bool = False, before: int | None = None
    ) -> CommitReply:
        """In one project; `shared` when the item is one of the shared project, and not of this one. `before` is a place
        there: what came after it is not wrong."""
        project = origin.project
        if wish.kind == "lift":
            return await self._lift(origin, wish_id, wish)
        if wish.version is None:
            home = SHARED_PROJECT if shared else project
            first = await self._influence.said_since(home, wish.store, wish.id) if wish.kind == "rollback" else 1
            wish = wish.model_copy(update={"version": first})
        roots = await self._extent.roots(project, wish, shared=shared, before=before)
        position = await self._influence.latest(project)
        wrong, tasks = await self._extent.of(project, roots, shared=shared)
        # From here on nobody's commit may rest on it: what is read until it is out would be read wrongly.
        before_it = self._known(project).get(wish_id)
        self._known(project)[wish_id] = wrong
        try:
            changes = await self._changes.of(project, wrong, restores=wish.restores)
            reply = await self._commit(origin, wish_id, wish, changes, tasks, (), shared=shared)
        except (Conflict, Denied, Permanent):
            self._known(project).pop(wish_id)
            if before_it is not None:
                self._known(project)[wish_id] = before_it
            raise
        except BaseException:
            # It may have been applied, or be so yet: until that is known, nobody rests on it.
            self._unsure[project, wish_id] = time.monotonic()
            raise
        self._unsure.pop((project, wish_id), None)
        if await self._influence.latest(project) != position:
            await self._stragglers(origin, wish_id, wish, roots, shared=shared)
        return reply

    async def _elsewhere(self, origin: Origin, wish_id: str, wish: TakeBack, before: int | None = None) -> None:
        """Take back what other projects have learned of a shared item, where that was not done yet."""
        for project in await self._wishes.projects():
            if project != SHARED_PROJECT and await self._wishes.get(project, wish_id) is None:
                await self._in_project(_there(origin, project), wish_id, wish, before)

    async def _in_project(self, origin: Origin, wish_id: str, wish: TakeBack, before: int | None) -> None:
        """Take back what a project has learned of a shared item, if anything."""
        roots = await self._extent.roots(SHARED_PROJECT, wish, before=before)
        radius = await self._influence.of(origin.project, roots, shared=True, limit=1)
        if radius.touched:
            await retry_on_conflict(partial(self._do, origin, wish_id, wish, shared=True, before=before), _ATTEMPTS)

    async def _lift_elsewhere(self, origin: Origin, wish_id: str, wish: TakeBack) -> None:
        """Lift a take-back of the shared project in all others, where that was not done yet."""
        for project in await self._wishes.projects():
            known = await self._wishes.get(project, wish.id)
            if project != SHARED_PROJECT and known is not None and known.stands:
                await retry_on_conflict(partial(self._lift, _there(origin, project), wish_id, wish), _ATTEMPTS)

    async def _stragglers(
        self, origin: Origin, wish_id: str, wish: TakeBack, roots: frozenset[Version], *, shared: bool
    ) -> None:
        """Take back what was committed while it was looked for."""
        wrong, tasks = await self._extent.of(origin.project, roots, shared=shared)
        if wrong <= self._known(origin.project)[wish_id]:
            return
        self._known(origin.project)[wish_id] |= wrong
        changes = await self._changes.of(origin.project, wrong, restores=wish.restores)
        if changes:
            late = derived_id(wish_id, "late")
            await self._commit(origin, late, wish, changes, tasks, (), shared=shared, of=wish_id)

    async def _rest(self, project: str, wish: TakeBackRecord) -> None:
        """Take back what was committed while it was looked for, and was not found before the process ended."""
        wrong = await self._extent.of_wish(project, wish)
        self._known(project)[wish.id] = wrong
        changes = await self._changes.of(project, wrong, restores=wish.done.restores)
        if changes:
            # Others may have been done since, which say otherwise of some of it.
            standing = await self._extent.standing(project, await self._wishes.all(project))
            changes = await self._changes.replayed(project, {(each.store, each.id) for each in changes}, standing)
        if changes:
            origin = Origin(message_id=new_id(), project=project, principal=wish.done.by)
            await self._commit(origin, new_id(), wish.done, changes, (), (), shared=wish.done.shared, of=wish.id)

    async def _lift(self, origin: Origin, wish_id: str, wish: TakeBack) -> CommitReply:
        """Have stand what would stand without a quarantine or a rollback."""
        project = origin.project
        every = await self._wishes.all(project)
        known = next((each for each in every if each.id == wish.id and each.done.kind != "lift"), None)
        if known is None:
            problem = Problem(field="item", problem=f"{wish.id} is no quarantine and no rollback of this project")
            raise Permanent(ErrorCode.NOT_FOUND, (problem,))
        if known.done.lifted:
            raise Permanent(ErrorCode.CONFLICT, (Problem(field="item", problem=f"{wish.id} was lifted already"),))
        parts = [each for each in every if wish.id in (each.id, each.done.of)]
        standing = await self._extent.standing(project, every, wish.id)
        wrong = await self._extent.of_wish(project, known, wish.id)
        keys = await self._changes.moved(project, [each.id for each in parts])
        keys |= {(store, record) for store, record, _ in wrong}
        about = [each for each in standing if any((store, record) in keys for store, record, _ in each.wrong)]
        # What was learned of a record as it was put back is about to rest on one that another says is wrong.
        keys |= {(store, record) for each in about for store, record, _ in each.wrong}
        changes = await self._changes.replayed(project, keys, standing)
        lifted = (each for each in parts if not each.done.lifted)
        writes = tuple(Write(store=STORE, id=each.id, body=_lifted(each), expect=each.version) for each in lifted)
        others = tuple(each.id for each in about)
        reply = await self._commit(origin, wish_id, wish, changes, (), writes, others=others)
        self._known(project).pop(wish.id, None)
        return reply

    async def _commit(
        self,
        origin: Origin,
        wish_id: str,
        wish: TakeBack,
        changes: Sequence[RecordRollback],
        tasks: Sequence[str],
        writes: tuple[Write, ...],
        *,
        shared: bool = False,
        of: str | None = None,
        others: tuple[str, ...] = (),
    ) -> CommitReply:
        """One commit of memory's own, on behalf of who wished it: all of it, or nothing."""
        now = datetime.now(UTC)
        restored = await self._changes.restored(origin.project, changes)
        outs = [each for each in changes if each.before is None]
        done = TakenBack(
            **wish.model_dump(include=set(TakeBack.model_fields)),
            by=origin.principal or "memory",
            at=now,
            out=Counter(each.store for each in outs),
            restored=Counter(row.store for row in restored),
            tasks=tuple(tasks[:_TASKS_NAMED]),
            tasks_count=len(tasks),
            shared=shared,
            of=of,
            others=others[:_WISHES_NAMED],
        )
        record = Write(store=STORE, id=wish_id, body=done.model_dump(mode="json", exclude_none=True))
        deleted = (Write(store=each.store, id=each.id, body=None, expect=each.present) for each in outs)
        prepared = plan_commit(
            self._policy,
            diode.taking_back(self._policy, origin.project, origin.message_id, now),
            origin,
            Commit(step=f"take back {wish_id}", writes=(record, *writes, *deleted)),
            now=now,
            caused_by=Provenance(),
            memories=ReadSet(),
            task_version=None,
            restored=restored,
        )
        reply, _ = await self._vectors.applied(self._committer, prepared)
        log.warning("takeback.done", project=origin.project, kind=wish.kind, out=len(outs), restored=len(restored))
        return reply

    def _known(self, project: str) -> dict[str, frozenset[Version]]:
        return self._wrong.setdefault(project, {})


def _lifted(wish: TakeBackRecord) -> dict[str, Any]:
    return wish.done.model_copy(update={"lifted": True}).model_dump(mode="json", exclude_none=True)


def _lifting(wish: TakeBackRecord) -> TakeBack:
    return TakeBack(kind="lift", id=wish.id, reason="was lifted in the shared project")


def _there(origin: Origin, project: str) -> Origin:
    message_id = derived_id(origin.message_id, "take back", project)
    return origin.model_copy(update={"project": project, "message_id": message_id})
