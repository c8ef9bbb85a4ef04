"""Changes: the effect of take-backs and their lifting on records.

The current version of a record follows from its own versions and from the take-backs in force, replayed in the order of
the project. So lifting any of them leaves the state without it.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from counterpoint.guard.policy import Policy
from counterpoint.memory.provenance.influence import Version
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import PlannedWrite, canonical
from counterpoint.memory.record.sql_files import load_statements

_SQL = load_statements(__package__)

Key = tuple[str, str]
"""Store and id."""


@dataclass(frozen=True, slots=True)
class RecordRollback:
    """Rollback of a record: its current version, and the version to restore, if any."""

    store: str
    id: str
    present: int
    before: int | None = None


@dataclass(frozen=True, slots=True)
class OriginalVersion:
    """Version of a record that was not written by a take-back: its position in the project's order, and whether it has
    a body."""

    version: int
    position: int
    has_body: bool


@dataclass(frozen=True, slots=True)
class ActiveTakeBack:
    """Take-back in force: its id, its position, whether it restores earlier versions, and the versions it declares
    wrong."""

    id: str
    position: int
    restores: bool
    wrong: frozenset[Version]


def taken_back(
    versions: Sequence[OriginalVersion], present: int | None, wrong: frozenset[int], *, restores: bool
) -> int | None:
    """Return the current version after a take-back of the `wrong` versions, where `present` was current; None for none.

    `versions` are the versions until then, oldest first. A quarantine removes a wrong version. A rollback restores the
    last version before it that is not wrong, also in place of a removed one.
    """
    last = present if present is not None else versions[-1].version
    if last not in wrong:
        return present
    if not restores:
        return None
    good = next((each for each in reversed(versions) if each.version < last and each.version not in wrong), None)
    return good.version if good is not None and good.has_body else None


def standing_version(
    versions: Sequence[OriginalVersion], take_backs: Sequence[tuple[int, bool, frozenset[int]]]
) -> int | None:
    """Return the current version of a record after its versions and some take-backs (position, whether it restores,
    wrong versions) are replayed in order. A version that was written concurrently with a take-back is taken back after
    it."""
    present: int | None = None
    replayed_versions: list[OriginalVersion] = []
    waiting = sorted(take_backs, key=lambda each: each[0])
    replayed_take_backs: list[tuple[int, bool, frozenset[int]]] = []
    for each in (*versions, None):
        while waiting and (each is None or waiting[0][0] < each.position):
            replayed_take_backs.append(waiting.pop(0))
            if replayed_versions:
                present = taken_back(
                    replayed_versions, present, replayed_take_backs[-1][2], restores=replayed_take_backs[-1][1]
                )
        if each is not None:
            replayed_versions.append(each)
            present = each.version if each.has_body else None
            for _, restores, wrong in replayed_take_backs:
                if each.version in wrong:
                    present = taken_back(replayed_versions, present, wrong, restores=restores)
    return present


class VersionHistory:
    """Looks up current, past and removed versions."""

    def __init__(self, database: Database, policy: Policy) -> None:
        self._database = database
        self._policy = policy

    def learned(self, store: str) -> bool:
        """Whether wrong records of a store are taken back."""
        return store in self._policy.stores and self._policy.stores[store].learned

    async def of(self, project: str, wrong: Iterable[Version], *, restores: bool) -> list[RecordRollback]:
        """Return the rollbacks by which the newest take-back removes or restores some wrong versions."""
        wrong = frozenset(wrong)
        keys = {(store, record) for store, record, _ in wrong}
        if restores:
            by_key = _by_key(wrong)
            return [
                change
                for key, (versions, present, row) in (await self._histories(project, keys)).items()
                if (change := _change(key, row, present, taken_back(versions, present, by_key[key], restores=True)))
            ]
        columns = self._columns(keys)
        async with self._database.snapshot(project) as connection:
            rows = await connection.fetch(_SQL["current_versions"], project, *columns)
        return [
            RecordRollback(row["store"], row["id"], row["version"])
            for row in rows
            if row["has_body"] and (row["store"], row["id"], row["version"]) in wrong
        ]

    async def replayed(
        self, project: str, keys: Iterable[Key], standing: Sequence[ActiveTakeBack]
    ) -> list[RecordRollback]:
        """Return the rollbacks after which only the take-backs in `standing` have an effect on some records."""
        wrongs = [(each.position, each.restores, _by_key(each.wrong)) for each in standing]
        changes = []
        for key, (versions, present, row) in (await self._histories(project, keys)).items():
            take_backs = [(position, restores, by_key[key]) for position, restores, by_key in wrongs if key in by_key]
            if change := _change(key, row, present, standing_version(versions, take_backs)):
                changes.append(change)
        return changes

    async def affected(self, project: str, take_backs: Sequence[str]) -> frozenset[Key]:
        """Return the records that some take-backs removed or restored."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_SQL["moved_records"], project, list(take_backs))
        return frozenset((row["store"], row["id"]) for row in rows)

    async def restored_since(self, project: str, after: int, lifted: Sequence[str] = ()) -> frozenset[Version]:
        """Return the versions that a take-back in force, or its lifting, restored after a position. They are valid,
        whatever was declared before. The take-backs in `lifted` count as no longer in force."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_SQL["restored_versions"], project, after, list(lifted))
        return frozenset((row["store"], row["id"], row["version"]) for row in rows)

    async def restoring_writes(self, project: str, changes: Sequence[RecordRollback]) -> tuple[PlannedWrite, ...]:
        """Return the writes that restore records with their original stamps, positions and times."""
        present = {(each.store, each.id): each.present for each in changes if each.before is not None}
        back = [each for each in changes if each.before is not None]
        if not back:
            return ()
        columns = [each.store for each in back], [each.id for each in back], [each.before for each in back]
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_SQL["past_versions"], project, *columns)
        restored = []
        for row in rows:
            body = canonical(row["body"])
            restored.append(
                PlannedWrite(
                    row["store"], row["id"], present[row["store"], row["id"]], body, row["task_id"], row["author"],
                    row["label"], row["integrity"], hashlib.sha256(body.encode()).digest(), row["schema_version"],
                    row["seq"], row["at"],
                )
            )  # fmt: skip
        return tuple(restored)

    def _columns(self, keys: Iterable[Key]) -> tuple[list[str], list[str]]:
        ordered = sorted(key for key in keys if self.learned(key[0]))
        return [store for store, _ in ordered], [record for _, record in ordered]

    async def _histories(
        self, project: str, keys: Iterable[Key]
    ) -> Mapping[Key, tuple[list[OriginalVersion], int | None, "_Row"]]:
        """Return for each record its versions that no take-back wrote, the current one of them, and its row."""
        async with self._database.snapshot(project) as connection:
            rows = await connection.fetch(_SQL["all_versions"], project, *self._columns(keys))
        by_key: defaultdict[Key, list[_Row]] = defaultdict(list)
        for row in rows:
            known = _Row(row["version"], row["seq"], row["has_body"], row["sha256"], row["by_take_back"])
            by_key[row["store"], row["id"]].append(known)
        histories = {}
        for key, every in by_key.items():
            own = [each for each in every if not each.by_take_back]
            if own:
                versions = [OriginalVersion(each.version, each.seq, each.has_body) for each in own]
                histories[key] = (versions, _original_of(own, every[-1]), every[-1])
        return histories


@dataclass(frozen=True, slots=True)
class _Row:
    version: int
    seq: int
    has_body: bool
    sha256: bytes | None
    by_take_back: bool


def _original_of(own: Sequence[_Row], last: _Row) -> int | None:
    """Return the original version that the last version restored. One that the last release restored is found by its
    hash."""
    if not last.has_body:
        return None
    if not last.by_take_back:
        return last.version
    same = [each for each in own if each.seq == last.seq] or [each for each in own if each.sha256 == last.sha256]
    return same[-1].version if same else None


def _change(key: Key, row: _Row, present: int | None, restored: int | None) -> RecordRollback | None:
    if present == restored:
        return None
    return RecordRollback(*key, row.version, restored)


def _by_key(wrong: Iterable[Version]) -> dict[Key, frozenset[int]]:
    found: defaultdict[Key, set[int]] = defaultdict(set)
    for store, record, version in wrong:
        found[store, record].add(version)
    return {key: frozenset(versions) for key, versions in found.items()}
