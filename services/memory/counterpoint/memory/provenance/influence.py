"""Influence: everything derived from an item, by the items that each commit used or was shown (docs/memory.md).

One step down leads from a version to the commits that used it, and from these to their writes. A record with
sources of its own is derived from these alone, one without from everything that its commit used. A commit on a
message that brought the result of another commit used that commit. A restored record has the provenance of its
original.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from counterpoint.memory.provenance.read_sets import sources_of
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.errors import ErrorCode, Permanent, Problem

_NEVER = 2**62

Reach = Literal["used", "named", "shown"]
"""Edges to follow: to what was used; also to what was quoted or came by any message; also to what was only shown."""

_SQL = load_statements(__package__)

Version = tuple[str, str, int]
"""Store, id and version."""


@dataclass(frozen=True, slots=True)
class DerivedItem:
    """One version of a record that rests on what was asked about, so many hops away."""

    store: str
    id: str
    version: int
    hops: int
    task_id: str | None
    label: int
    seq: int
    at: datetime

    @property
    def key(self) -> Version:
        """Store, id and version."""
        return self.store, self.id, self.version


@dataclass(frozen=True, slots=True)
class Radius:
    """Return everything derived from some versions of records, nearest first; `truncated` if there is more than the
    limit."""

    roots: frozenset[Version]
    touched: tuple[DerivedItem, ...]
    truncated: bool

    def whole(self) -> "Radius":
        """Itself, for who must not leave anything out. Raises `Permanent` `too_much` when there is more."""
        if self.truncated:
            problem = f"more than {len(self.touched)} versions of records depend on it: start with one of these"
            raise Permanent(ErrorCode.TOO_MUCH, (Problem(field="item", problem=problem),))
        return self


class _Walk:
    """The commits that were reached, by which versions, and what they wrote."""

    def __init__(self, reach: Reach, passed: Collection[Version]) -> None:
        self._by_sources = reach == "used"
        self._passed = passed
        self._rows: defaultdict[UUID, list[tuple[Version, frozenset[Version], DerivedItem]]] = defaultdict(list)
        self._hits: defaultdict[UUID, set[Version]] = defaultdict(set)
        self.touched: dict[Version, DerivedItem] = {}

    def reached(self, commit: UUID, sources: Sequence[Version]) -> bool:
        """Note that a commit follows from these versions; whether it had not been reached before."""
        fresh = commit not in self._hits
        self._hits[commit].update(sources)
        return fresh

    def wrote(self, commit: UUID, row: Any, hops: int) -> None:
        """Note what a commit wrote."""
        touched = _touched(row, hops)
        own = sources_of({"sources": row["sources"]}) if self._by_sources else ()
        declared = frozenset((each["store"], each["id"], each["version"]) for each in own)
        self._rows[commit].append((touched.key, declared, touched))

    def follow(self, commits: Collection[UUID]) -> list[Version]:
        """Return what these commits wrote that follows, and did not before."""
        fresh = []
        for commit in commits:
            left = []
            for key, declared, touched in self._rows[commit]:
                if key in self.touched or key in self._passed:
                    continue
                if declared and declared.isdisjoint(self._hits[commit]):
                    left.append((key, declared, touched))
                    continue
                self.touched[key] = touched
                fresh.append(key)
            self._rows[commit] = left
        return fresh


class Influence:
    """Follows the edges of one project at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def latest(self, project: str) -> int:
        """Return the position of the latest read set of a project; it changes with every new edge."""
        async with self._database.reading(project) as connection:
            position: int = await connection.fetchval(_SQL["latest_read_set"], project)
        return position

    async def roots(
        self, project: str, store: str, record_id: str, version: int = 1, before: int | None = None
    ) -> frozenset[Version]:
        """The versions that an item stands for: those from `version` on, as far as they came `before` a place in the
        project's order; of a document also those of its pieces from then on. None when there is no such record.

        One that was put back counts as what it had been.
        """
        last = before if before is not None else _NEVER
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_SQL["versions_of_record"], project, store, record_id)
            first = next((row["seq"] for row in rows if row["version"] >= version), _NEVER)
            found = {
                (store, record_id, row["version"])
                for row in rows
                if row["seq"] >= first and max(row["seq"], row["changed"] or 0) < last
            }
            if store == "documents" and found:
                after = max((row["seq"] for row in rows if row["seq"] < first), default=0)
                pieces = await connection.fetch(_SQL["chunks_of_document"], project, record_id, after, last)
                found |= {("chunks", row["id"], row["version"]) for row in pieces}
        return frozenset(found)

    async def said_since(self, project: str, store: str, record_id: str) -> int:
        """The first version from which on a record has said what it said last, but for when it was taken out."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_SQL["versions_of_record"], project, store, record_id)
        first, last = 1, None
        for row in sorted(rows, key=lambda row: (row["seq"], row["version"])):
            if row["there"] and row["sha256"] != last:
                first, last = row["version"], row["sha256"]
        return first

    async def of(
        self,
        project: str,
        roots: frozenset[Version],
        *,
        reach: Reach = "used",
        shared: bool = False,
        limit: int,
        without: frozenset[Version] = frozenset(),
    ) -> Radius:
        """All that rests on these versions in a project; `shared` when they are those of the shared project. What is
        `without` is left out, and so is what rests on nothing else."""
        passed = without if shared else roots | without
        walk = _Walk(reach, passed)
        hops = 0
        async with self._database.snapshot(project) as connection:
            frontier = sorted(roots)
            if not shared:
                frontier += await self._put_back(connection, project, frontier, walk, roots | without, 0)
            while frontier and len(walk.touched) <= limit:
                hops += 1
                columns = list(map(list, zip(*frontier, strict=True)))
                rows = await connection.fetch(_SQL["readers"], *columns, reach, shared and hops == 1)
                reached = {commit: [frontier[n] for n in items] for commit, items in rows}
                fresh = [commit for commit, sources in reached.items() if walk.reached(commit, sources)]
                for row in await connection.fetch(_SQL["writes_of_commits"], project, fresh):
                    walk.wrote(row["commit_id"], row, hops)
                made = walk.follow(reached)
                made += await self._put_back(connection, project, made, walk, passed, hops)
                frontier = [("commits", str(commit), 1) for commit in fresh] + made
        touched = sorted(walk.touched.values(), key=lambda each: (each.hops, each.seq))
        return Radius(roots, tuple(touched[:limit]), len(touched) > limit)

    @staticmethod
    async def _put_back(
        connection: Any,
        project: str,
        versions: Sequence[Version],
        walk: _Walk,
        passed: Collection[Version],
        hops: int,
    ) -> list[Version]:
        """Touch the versions as which some were put back; those that were not touched before."""
        if not versions:
            return []
        columns = list(map(list, zip(*versions, strict=True)))
        fresh = []
        for row in await connection.fetch(_SQL["restorations"], project, *columns):
            touched = _touched(row, hops)
            if touched.key not in walk.touched and touched.key not in passed:
                walk.touched[touched.key] = touched
                fresh.append(touched.key)
        return fresh


def _touched(row: Any, hops: int) -> DerivedItem:
    return DerivedItem(
        row["store"], row["id"], row["version"], hops, row["task_id"], row["label"], row["seq"], row["at"]
    )
