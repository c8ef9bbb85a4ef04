"""Extent: the versions of records that a take-back says are wrong, by themselves or by what they rest on."""

from collections.abc import Sequence

import structlog

from counterpoint.memory.operations.changes import ActiveTakeBack, VersionHistory
from counterpoint.memory.operations.quarantines import TakeBackRecord, TakeBackRecords
from counterpoint.memory.provenance.influence import Influence, Version
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import TakeBack
from counterpoint.proto.subjects import SHARED_PROJECT

log = structlog.get_logger()

LIMIT = 200_000
"""Versions that one take-back may be about."""


class Extent:
    """Follows take-backs to what used the versions that they are about."""

    def __init__(self, influence: Influence, changes: VersionHistory, wishes: TakeBackRecords) -> None:
        self._influence = influence
        self._changes = changes
        self._wishes = wishes

    async def roots(
        self, project: str, wish: TakeBack, *, shared: bool = False, before: int | None = None
    ) -> frozenset[Version]:
        """The versions that are wrong by themselves. Raises `Permanent` `not_found` when there are none."""
        home = SHARED_PROJECT if shared else project
        roots = await self._influence.roots(home, wish.store, wish.id, wish.version or 1, before)
        if not roots or not self._changes.learned(wish.store):
            problem = f"{wish.store}/{wish.id} has no version from {wish.version or 1} on that can be taken back"
            raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="item", problem=problem),))
        return roots

    async def of(
        self,
        project: str,
        roots: frozenset[Version],
        *,
        shared: bool = False,
        without: frozenset[Version] = frozenset(),
    ) -> tuple[frozenset[Version], tuple[str, ...]]:
        """Every version of the project that is wrong, and the tasks among them. Raises `Permanent` `too_much`."""
        radius = (await self._influence.of(project, roots, shared=shared, limit=LIMIT, without=without)).whole()
        tasks = sorted({each.id for each in radius.touched if each.store == "tasks"})
        wrong = frozenset(each.key for each in radius.touched)
        return wrong if shared else roots | wrong, tuple(tasks)

    async def of_wish(self, project: str, wish: TakeBackRecord, lifted: str | None = None) -> frozenset[Version]:
        """Return the records that a take-back covered and those derived from them, except what another one that is
        not `lifted` has restored since."""
        before: int | None = wish.seq
        if wish.done.shared:
            first = await self._wishes.get(SHARED_PROJECT, wish.id)
            before = first.seq if first is not None else None
        try:
            roots = await self.roots(project, wish.done, shared=wish.done.shared, before=before)
            without = await self._changes.put_back(project, wish.seq, (lifted,) if lifted else ())
            wrong, _ = await self.of(project, roots, shared=wish.done.shared, without=without)
        except Permanent as error:
            # What cannot be followed any more must not keep memory from starting.
            log.warning("takeback.unknown", project=project, quarantine_id=wish.id, reason=str(error))
            return frozenset()
        return wrong

    async def standing(
        self, project: str, wishes: Sequence[TakeBackRecord], lifted: str | None = None
    ) -> list[ActiveTakeBack]:
        """The take-backs that stand, in the order they were done; without the one that is about to be lifted."""
        return [
            ActiveTakeBack(each.id, each.seq, each.done.restores, await self.of_wish(project, each, lifted))
            for each in wishes
            if each.stands and each.id != lifted
        ]
