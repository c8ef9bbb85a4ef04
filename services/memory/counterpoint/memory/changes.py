"""What becomes of records when something is taken back or put back: which go, and which stand again as they were."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from counterpoint.guard.policy import Policy
from counterpoint.memory.database import Database
from counterpoint.memory.influence import Version
from counterpoint.memory.rows import WriteRow, canonical

_PRESENT = """
SELECT found.* FROM unnest($2::text[], $3::text[]) AS given (store, id)
CROSS JOIN LATERAL (
    SELECT store, id, version, body IS NOT NULL AS there FROM records
    WHERE project = $1 AND store = given.store AND id = given.id LIMIT 1) AS found
"""
_PAST = """
SELECT found.* FROM unnest($2::text[], $3::text[]) AS given (store, id)
CROSS JOIN LATERAL (
    SELECT store, id, version, body IS NOT NULL AS there FROM history
    WHERE project = $1 AND store = given.store AND id = given.id OFFSET 0) AS found
"""
_AS_IT_WAS = """
SELECT found.* FROM unnest($2::text[], $3::text[], $4::int[]) AS given (store, id, version)
CROSS JOIN LATERAL (
    SELECT store, id, version, task_id, author, label, integrity, schema_version, body FROM history
    WHERE project = $1 AND store = given.store AND id = given.id AND version = given.version LIMIT 1) AS found
"""
_COMMITS = """
    SELECT commit_id FROM records WHERE project = $1 AND store = 'quarantines'
    UNION SELECT commit_id FROM history WHERE project = $1 AND store = 'quarantines'
"""
_OUT = f"SELECT store, id, version FROM records WHERE project = $1 AND body IS NULL AND commit_id IN ({_COMMITS})"
_PUT_BACK = f"""
SELECT store, id, version FROM records
WHERE project = $1 AND body IS NOT NULL AND store <> 'quarantines' AND seq > $2 AND commit_id IN ({_COMMITS})
UNION ALL
SELECT store, id, version FROM history
WHERE project = $1 AND body IS NOT NULL AND store <> 'quarantines' AND seq > $2 AND commit_id IN ({_COMMITS})
"""


@dataclass(frozen=True, slots=True)
class Change:
    """A record to be taken back: the version that stands now, and the one to put in its place."""

    store: str
    id: str
    present: int
    before: int | None = None


class Changes:
    """Looks up what stands, what stood, and what was taken out."""

    def __init__(self, database: Database, policy: Policy) -> None:
        self._database = database
        self._policy = policy

    def learned(self, store: str) -> bool:
        """Whether what a store holds is taken back when it is wrong."""
        return store in self._policy.stores and self._policy.stores[store].learned

    async def of(self, project: str, wrong: Iterable[Version], *, restores: bool) -> list[Change]:
        """What is to become of the records that stand at a version which is wrong, or that were taken out for it."""
        wrong = frozenset(wrong)
        keys = sorted({(store, record) for store, record, _ in wrong if self.learned(store)})
        columns = [store for store, _ in keys], [record for _, record in keys]
        async with self._database.snapshot(project) as connection:
            present = await connection.fetch(_PRESENT, project, *columns)
            past = await connection.fetch(_PAST, project, *columns) if restores else []
        good: defaultdict[tuple[str, str], dict[int, bool]] = defaultdict(dict)
        for row in past:
            if (row["store"], row["id"], row["version"]) not in wrong:
                good[row["store"], row["id"]][row["version"]] = row["there"]
        changes = []
        for row in present:
            key, version = (row["store"], row["id"]), row["version"]
            before = max(good[key], default=0)
            put_back = before if good[key].get(before) else None
            if row["there"]:
                if (*key, version) in wrong:
                    changes.append(Change(*key, version, put_back))
            elif put_back is not None and (*key, version - 1) in wrong:
                changes.append(Change(*key, version, put_back))
        return changes

    async def lifting(self, project: str, wrong: frozenset[Version], still: frozenset[Version]) -> list[Change]:
        """What was taken out, by whatever wish, for what is not `wrong` any more, and is not so for another reason."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_OUT, project)
        back = wrong - still
        return [
            Change(row["store"], row["id"], row["version"], row["version"] - 1)
            for row in rows
            if (row["store"], row["id"], row["version"] - 1) in back
        ]

    async def put_back(self, project: str, after: int) -> frozenset[Version]:
        """The versions that somebody has put back after a place: they count, whatever was said of them before."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_PUT_BACK, project, after)
        return frozenset((row["store"], row["id"], row["version"]) for row in rows)

    async def restored(self, project: str, changes: Sequence[Change]) -> tuple[WriteRow, ...]:
        """The records to put back, as they were."""
        present = {(each.store, each.id): each.present for each in changes if each.before is not None}
        back = [each for each in changes if each.before is not None]
        if not back:
            return ()
        columns = [each.store for each in back], [each.id for each in back], [each.before for each in back]
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_AS_IT_WAS, project, *columns)
        restored = []
        for row in rows:
            body = canonical(row["body"])
            restored.append(
                WriteRow(
                    row["store"], row["id"], present[row["store"], row["id"]], body, row["task_id"], row["author"],
                    row["label"], row["integrity"], hashlib.sha256(body.encode()).digest(), row["schema_version"],
                )
            )  # fmt: skip
        return tuple(restored)
