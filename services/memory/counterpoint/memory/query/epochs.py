"""Epochs: the last commit that changed a store of a project. An answer read at an epoch is valid until the next one.

Epochs are known from the commits that this process applies, because it is the only active one. An unknown epoch is read
from the record once, or each time while the lease is not confirmed. A store has no epoch while a commit that changes it
is under way, and for a while after one whose outcome is unknown.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from counterpoint.guard.policy import Policy
from counterpoint.memory.commit.statement import statement_timeout_s
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.subjects import SHARED_PROJECT

DOUBT = 2.0
"""Multiple of the statement timeout for which a commit without an answer may still be applied."""
_KNOWN = 50_000
_SQL = load_statements(__package__)

Place = tuple[str, str]
"""Project and store."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The newest commits of some stores. `sure`: none of the stores was being changed during the lookup. `life`
    identifies the database: in a restored one the same commit may have followed another."""

    places: tuple[Place, ...]
    commits: tuple[str, ...]
    life: str
    sure: bool


class Epochs:
    """Follows commits: before each is sent to the database, and after it was applied, before its reply.

    `lease` returns the lease under which this process is the active one, or None while that is not certain.
    """

    def __init__(self, database: Database, policy: Policy, lease: Callable[[], int | None]) -> None:
        self._database = database
        self._policy = policy
        self._lease = lease
        self._under: int | None = None
        self._life: str | None = None
        self._known: dict[Place, str] = {}
        self._doubts: dict[Place, dict[str, float]] = {}
        self._turns: defaultdict[Place, int] = defaultdict(int)

    def began(self, steps: Sequence[CommitPlan]) -> None:
        """Take note of steps that are about to be applied. Without a call of `applied` their stores are in doubt for a
        while."""
        until = time.monotonic() + DOUBT * statement_timeout_s(steps)
        for step in steps:
            for place in _places(step):
                self._doubts.setdefault(place, {})[step.commit_id] = until
                self._known.pop(place, None)
                self._turns[place] += 1

    def applied(self, steps: Iterable[CommitPlan]) -> None:
        """Take note of steps that were applied, in this order."""
        for step in steps:
            for place in _places(step):
                doubts = self._doubts.get(place, {})
                doubts.pop(step.commit_id, None)
                if not doubts:
                    self._doubts.pop(place, None)
                self._known[place] = step.commit_id
                self._turns[place] += 1

    async def of(self, project: str, stores: Sequence[str]) -> Epoch | None:
        """Return the epoch of what a project sees of some stores; None while one of them is being changed. Raises
        `Away`."""
        places = self._seen_by(project, stores)
        if any(self._doubted(place) for place in places):
            return None
        lease = self._lease()
        if lease != self._under or len(self._known) > _KNOWN:
            self._known.clear()
            self._turns.clear()
            self._under, self._life = lease, None
        if lease is not None and self._life is not None and (commits := self._standing(places)) is not None:
            return Epoch(places, commits, self._life, sure=True)
        return await self._read(project, places)

    def stands(self, epoch: Epoch) -> bool:
        """Whether an answer read since an epoch is the answer at that epoch."""
        return (
            epoch.sure
            and self._under is not None
            and self._lease() == self._under
            and epoch.life == self._life
            and epoch.commits == self._standing(epoch.places)
        )

    async def _read(self, project: str, places: tuple[Place, ...]) -> Epoch:
        """Read the epoch from the record; remember it where no commit was under way meanwhile."""
        lease = self._under
        turns = [self._turns[place] for place in places]
        async with self._database.reading(project) as connection:
            life = await connection.fetchval(_SQL["database_identity"])
            rows = await connection.fetch(
                _SQL["newest_commits"], [place[0] for place in places], [place[1] for place in places]
            )
        commits = tuple(row["commit_id"] or "" for row in rows)
        if lease is None or lease != self._under or self._lease() != lease:
            return Epoch(places, commits, life, sure=False)
        self._life = life
        for place, commit, turn in zip(places, commits, turns, strict=True):
            if self._turns[place] == turn and not self._doubted(place):
                self._known[place] = commit
        return Epoch(places, commits, life, sure=self._standing(places) == commits)

    def _seen_by(self, project: str, stores: Sequence[str]) -> tuple[Place, ...]:
        places = []
        for store in dict.fromkeys(stores):
            places.append((project, store))
            if self._policy.stores[store].shared and project != SHARED_PROJECT:
                places.append((SHARED_PROJECT, store))
        return tuple(places)

    def _standing(self, places: Sequence[Place]) -> tuple[str, ...] | None:
        """Return the epochs of all stores, None if one is unknown or in doubt."""
        commits = []
        for place in places:
            commit = self._known.get(place)
            if commit is None or (place in self._doubts and self._doubted(place)):
                return None
            commits.append(commit)
        return tuple(commits)

    def _doubted(self, place: Place) -> bool:
        doubts = self._doubts.get(place)
        if not doubts:
            return False
        now = time.monotonic()
        for commit in [commit for commit, until in doubts.items() if until < now]:
            del doubts[commit]
        if not doubts:
            del self._doubts[place]
        return bool(doubts)


def _places(step: CommitPlan) -> set[Place]:
    return {(step.project, row.store) for row in step.writes}
