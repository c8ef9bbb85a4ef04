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
    place: int
    there: bool


@dataclass(frozen=True, slots=True)
class ActiveTakeBack:
    """Take-back in force: its id, its position, whether it restores earlier versions, and the versions it declares
    wrong."""

    id: str
    place: int
    restores: bool
    wrong: frozenset[Version]


def taken_back(
    written: Sequence[OriginalVersion], present: int | None, wrong: frozenset[int], *, restores: bool
) -> int | None:
    """Return the current version after a take-back of the `wrong` versions, where `present` was current; None for none.

    `written` are the versions until then, oldest first. A quarantine removes a wrong version. A rollback restores the
    last version before it that is not wrong, also in place of a removed one.
    """
    last = present if present is not None else written[-1].version
    if last not in wrong:
        return present
    if not restores:
        return None
    good = next((each for each in reversed(written) if each.version < last and each.version not in wrong), None)
    return good.version if good is not None and good.there else None


def standing_version(
    written: Sequence[OriginalVersion], take_backs: Sequence[tuple[int, bool, frozenset[int]]]
) -> int | None:
    """Return the current version of a record after its versions and some take-backs (position, whether it restores,
    wrong versions) are replayed in order. A version that was written concurrently with a take-back is taken back after
    it."""
    present: int | None = None
    seen: list[OriginalVersion] = []
    left = sorted(take_backs, key=lambda each: each[0])
    done: list[tuple[int, bool, frozenset[int]]] = []
    for each in (*written, None):
        while left and (each is None or left[0][0] < each.place):
            done.append(left.pop(0))
            if seen:
                present = taken_back(seen, present, done[-1][2], restores=done[-1][1])
        if each is not None:
            seen.append(each)
            present = each.version if each.there else None
            for _, restores, wrong in done:
                if each.version in wrong:
                    present = taken_back(seen, present, wrong, restores=restores)
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
                for key, (written, present, row) in (await self._histories(project, keys)).items()
                if (change := _change(key, row, present, taken_back(written, present, by_key[key], restores=True)))
            ]
        columns = self._columns(keys)
        async with self._database.snapshot(project) as connection:
            rows = await connection.fetch(_SQL["current_versions"], project, *columns)
        return [
            RecordRollback(row["store"], row["id"], row["version"])
            for row in rows
            if row["there"] and (row["store"], row["id"], row["version"]) in wrong
        ]

    async def replayed(
        self, project: str, keys: Iterable[Key], standing: Sequence[ActiveTakeBack]
    ) -> list[RecordRollback]:
        """Return the rollbacks after which only the take-backs in `standing` have an effect on some records."""
        wrongs = [(each.place, each.restores, _by_key(each.wrong)) for each in standing]
        changes = []
        for key, (written, present, row) in (await self._histories(project, keys)).items():
            take_backs = [(place, restores, by_key[key]) for place, restores, by_key in wrongs if key in by_key]
            if change := _change(key, row, present, standing_version(written, take_backs)):
                changes.append(change)
        return changes

    async def moved(self, project: str, wishes: Sequence[str]) -> frozenset[Key]:
        """Return the records that some take-backs removed or restored."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_SQL["moved_records"], project, list(wishes))
        return frozenset((row["store"], row["id"]) for row in rows)

    async def put_back(self, project: str, after: int, lifted: Sequence[str] = ()) -> frozenset[Version]:
        """Return the versions that a take-back in force, or its lifting, restored after a position. They are valid,
        whatever was declared before. The take-backs in `lifted` count as no longer in force."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_SQL["restored_versions"], project, after, list(lifted))
        return frozenset((row["store"], row["id"], row["version"]) for row in rows)

    async def restored(self, project: str, changes: Sequence[RecordRollback]) -> tuple[PlannedWrite, ...]:
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
        versions: defaultdict[Key, list[_Row]] = defaultdict(list)
        for row in rows:
            known = _Row(row["version"], row["seq"], row["there"], row["sha256"], row["wished"])
            versions[row["store"], row["id"]].append(known)
        histories = {}
        for key, every in versions.items():
            own = [each for each in every if not each.wished]
            if own:
                written = [OriginalVersion(each.version, each.seq, each.there) for each in own]
                histories[key] = (written, _presented(own, every[-1]), every[-1])
        return histories


@dataclass(frozen=True, slots=True)
class _Row:
    version: int
    seq: int
    there: bool
    sha256: bytes | None
    wished: bool


def _presented(own: Sequence[_Row], last: _Row) -> int | None:
    """Return the original version that the last version restored. One that the last release restored is found by its
    hash."""
    if not last.there:
        return None
    if not last.wished:
        return last.version
    same = [each for each in own if each.seq == last.seq] or [each for each in own if each.sha256 == last.sha256]
    return same[-1].version if same else None


def _change(key: Key, row: _Row, present: int | None, wanted: int | None) -> RecordRollback | None:
    if present == wanted:
        return None
    return RecordRollback(*key, row.version, wanted)


def _by_key(wrong: Iterable[Version]) -> dict[Key, frozenset[int]]:
    found: defaultdict[Key, set[int]] = defaultdict(set)
    for store, record, version in wrong:
        found[store, record].add(version)
    return {key: frozenset(versions) for key, versions in found.items()}
