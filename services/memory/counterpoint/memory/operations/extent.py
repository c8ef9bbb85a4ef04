"""Extent: the versions of records that a take-back declares wrong, directly or because they are derived from a wrong
one."""

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
"""Maximum number of versions in one take-back."""


class Extent:
    """Follows take-backs to everything derived from the wrong versions."""

    def __init__(self, influence: Influence, changes: VersionHistory, records: TakeBackRecords) -> None:
        self._influence = influence
        self._changes = changes
        self._records = records

    async def versioned(self, home: str, take_back: TakeBack) -> TakeBack:
        """Return a take-back with its first version, where the project `home` has the item."""
        if take_back.version is not None:
            return take_back
        rolls_back = take_back.kind == "rollback"
        first = await self._influence.said_since(home, take_back.store, take_back.id) if rolls_back else 1
        return take_back.model_copy(update={"version": first})

    async def dependents_in(self, project: str, roots: frozenset[Version], limit: int = 1) -> int:
        """Return the number of versions in a project that depend on versions of the shared project, up to a limit."""
        return len((await self._influence.of(project, roots, shared=True, limit=limit)).touched)

    async def roots(
        self, project: str, take_back: TakeBack, *, shared: bool = False, before: int | None = None
    ) -> frozenset[Version]:
        """Return the versions that are directly wrong. Raises `Permanent` `not_found` if there are none."""
        home = SHARED_PROJECT if shared else project
        roots = await self._influence.roots(home, take_back.store, take_back.id, take_back.version or 1, before)
        if not roots or not self._changes.learned(take_back.store):
            item = f"{take_back.store}/{take_back.id} has no version from {take_back.version or 1} on"
            problem = f"{item} that can be taken back"
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
        """Return every wrong version of the project, and the tasks among them. Raises `Permanent` `too_much`."""
        radius = (await self._influence.of(project, roots, shared=shared, limit=LIMIT, without=without)).complete()
        tasks = sorted({each.id for each in radius.touched if each.store == "tasks"})
        wrong = frozenset(each.key for each in radius.touched)
        return wrong if shared else roots | wrong, tuple(tasks)

    async def of_record(self, project: str, take_back: TakeBackRecord, lifted: str | None = None) -> frozenset[Version]:
        """Return the versions that a take-back covers and those derived from them, except versions that a later
        take-back other than `lifted` restored."""
        before: int | None = take_back.seq
        if take_back.done.shared:
            first = await self._records.get(SHARED_PROJECT, take_back.id)
            before = first.seq if first is not None else None
        try:
            roots = await self.roots(project, take_back.done, shared=take_back.done.shared, before=before)
            without = await self._changes.restored_since(project, take_back.seq, (lifted,) if lifted else ())
            wrong, _ = await self.of(project, roots, shared=take_back.done.shared, without=without)
        except Permanent as error:
            # A take-back that can no longer be followed must not prevent the start of memory.
            log.warning("takeback.not_followed", project=project, quarantine_id=take_back.id, reason=str(error))
            return frozenset()
        return wrong

    async def standing(
        self, project: str, records: Sequence[TakeBackRecord], lifted: str | None = None
    ) -> list[ActiveTakeBack]:
        """Return the take-backs in force, in their order, without the one that is being lifted."""
        return [
            ActiveTakeBack(each.id, each.seq, each.done.restores, await self.of_record(project, each, lifted))
            for each in records
            if each.in_force and each.id != lifted
        ]
