"""Epochs: the last commit that changed a store of a project. An answer read at an epoch is valid until the next one.

Epochs are known from the commits that this process applies, because it is the only active one. An unknown epoch is read
from the record once, or each time while the lease is not confirmed. A store has no epoch while a commit that changes it
is under way, and for a while after one whose outcome is unknown.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cachetools import TTLCache

from counterpoint.guard.policy import Policy
from counterpoint.memory.commit.statement import statement_timeout_s
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.memory.record.projects import StoreKey
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.subjects import SHARED_PROJECT

DOUBT = 2.0
"""Multiple of the statement timeout for which a commit without an answer may still be applied."""
RESTED_S = 5.0
"""Seconds without a commit after which an epoch is expected to last."""
_MAX_KEYS = 50_000
_SQL = load_statements(__package__)


@dataclass(frozen=True, slots=True)
class Epoch:
    """The newest commits of some stores. `certain`: none of the stores was being changed during the lookup. `rested`:
    none has been changed lately.

    `database_id` differs for a restored database, in which the same commit may have followed another.
    """

    keys: tuple[StoreKey, ...]
    commits: tuple[str, ...]
    database_id: str
    certain: bool
    rested: bool


class Epochs:
    """Follows commits: before each is sent to the database, and after it was applied, before its reply.

    `lease` returns the lease under which this process is the active one, or None while that is not certain.
    """

    def __init__(self, database: Database, policy: Policy, lease: Callable[[], int | None]) -> None:
        self._database = database
        self._policy = policy
        self._lease = lease
        self._lease_number: int | None = None
        self._database_id: str | None = None
        self._newest: dict[StoreKey, str] = {}
        self._doubts: dict[StoreKey, dict[str, float]] = {}
        self._changes: defaultdict[StoreKey, int] = defaultdict(int)
        self._restless: TTLCache[StoreKey, None] = TTLCache(_MAX_KEYS, RESTED_S)

    def begin(self, steps: Sequence[CommitPlan]) -> None:
        """Take note of steps that are about to be applied. Without a call of `applied` their stores are in doubt for a
        while."""
        until = time.monotonic() + DOUBT * statement_timeout_s(steps)
        for step in steps:
            for key in _keys(step):
                self._doubts.setdefault(key, {})[step.commit_id] = until
                self._newest.pop(key, None)
                self._changes[key] += 1

    def applied(self, steps: Iterable[CommitPlan]) -> None:
        """Take note of steps that were applied, in this order."""
        for step in steps:
            for key in _keys(step):
                doubts = self._doubts.get(key, {})
                doubts.pop(step.commit_id, None)
                if not doubts:
                    self._doubts.pop(key, None)
                self._newest[key] = step.commit_id
                self._changes[key] += 1
                self._restless[key] = None

    async def of(self, project: str, stores: Sequence[str]) -> Epoch | None:
        """Return the epoch of what a project sees of some stores; None while one of them is being changed. Raises
        `Away`."""
        keys = self._visible_keys(project, stores)
        if any(self._is_in_doubt(key) for key in keys):
            return None
        lease = self._lease()
        if lease != self._lease_number or len(self._newest) > _MAX_KEYS:
            self._newest.clear()
            self._changes.clear()
            self._lease_number, self._database_id = lease, None
        if lease is not None and self._database_id is not None and (commits := self._known_commits(keys)) is not None:
            return Epoch(keys, commits, self._database_id, certain=True, rested=self._rested(keys))
        return await self._read(project, keys)

    def is_current(self, epoch: Epoch) -> bool:
        """Whether an answer read since an epoch is the answer at that epoch."""
        return (
            epoch.certain
            and self._lease_number is not None
            and self._lease() == self._lease_number
            and epoch.database_id == self._database_id
            and epoch.commits == self._known_commits(epoch.keys)
        )

    async def _read(self, project: str, keys: tuple[StoreKey, ...]) -> Epoch:
        """Read the epoch from the record; remember it where no commit was under way meanwhile."""
        lease = self._lease_number
        changes = [self._changes[key] for key in keys]
        async with self._database.reading(project) as connection:
            database_id = await connection.fetchval(_SQL["database_identity"])
            rows = await connection.fetch(_SQL["newest_commits"], [key[0] for key in keys], [key[1] for key in keys])
        commits = tuple(row["commit_id"] or "" for row in rows)
        if lease is None or lease != self._lease_number or self._lease() != lease:
            return Epoch(keys, commits, database_id, certain=False, rested=False)
        self._database_id = database_id
        for key, commit, change in zip(keys, commits, changes, strict=True):
            if self._changes[key] == change and not self._is_in_doubt(key):
                self._newest[key] = commit
        certain = self._known_commits(keys) == commits
        return Epoch(keys, commits, database_id, certain=certain, rested=self._rested(keys))

    def _rested(self, keys: Sequence[StoreKey]) -> bool:
        return not any(key in self._restless for key in keys)

    def _visible_keys(self, project: str, stores: Sequence[str]) -> tuple[StoreKey, ...]:
        keys = []
        for store in dict.fromkeys(stores):
            keys.append((project, store))
            if self._policy.stores[store].shared and project != SHARED_PROJECT:
                keys.append((SHARED_PROJECT, store))
        return tuple(keys)

    def _known_commits(self, keys: Sequence[StoreKey]) -> tuple[str, ...] | None:
        """Return the epochs of all stores, None if one is unknown or in doubt."""
        commits = []
        for key in keys:
            commit = self._newest.get(key)
            if commit is None or (key in self._doubts and self._is_in_doubt(key)):
                return None
            commits.append(commit)
        return tuple(commits)

    def _is_in_doubt(self, key: StoreKey) -> bool:
        doubts = self._doubts.get(key)
        if not doubts:
            return False
        now = time.monotonic()
        for commit in [commit for commit, until in doubts.items() if until < now]:
            del doubts[commit]
        if not doubts:
            del self._doubts[key]
        return bool(doubts)


def _keys(step: CommitPlan) -> set[StoreKey]:
    return {(step.project, row.store) for row in step.writes}
