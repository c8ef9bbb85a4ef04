"""Influence: everything derived from an item, by the items that each commit used or was shown (docs/memory.md).

A hop goes from a version to the commits that used it, and to their writes. A record that declares sources is derived
from these only, any other record from everything that its commit used. A commit on a message that carried the result
of another commit used that commit. A restored record has the provenance of its original.
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
"""Edges to follow: `used` items; `named` adds quoted items and those of any message; `shown` adds items only shown."""

_SQL = load_statements(__package__)

Version = tuple[str, str, int]
"""Store, id and version."""


@dataclass(frozen=True, slots=True)
class DerivedItem:
    """Version of a record that is derived from the roots, and its distance in hops."""

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
    """Everything derived from the `roots`, nearest first; `truncated` if there is more than the limit."""

    roots: frozenset[Version]
    touched: tuple[DerivedItem, ...]
    truncated: bool

    def complete(self) -> "Radius":
        """Return the radius if it is complete. Raises `Permanent` `too_much` if it is truncated."""
        if self.truncated:
            problem = f"more than {len(self.touched)} versions of records depend on it: start with one of these"
            raise Permanent(ErrorCode.TOO_MUCH, (Problem(field="item", problem=problem),))
        return self


class _Walk:
    """State of a traversal: the commits reached, the versions that led to them, and their writes."""

    def __init__(self, reach: Reach, excluded: Collection[Version]) -> None:
        self._by_sources = reach == "used"
        self._excluded = excluded
        self._writes: defaultdict[UUID, list[tuple[Version, frozenset[Version], DerivedItem]]] = defaultdict(list)
        self._sources: defaultdict[UUID, set[Version]] = defaultdict(set)
        self.touched: dict[Version, DerivedItem] = {}

    def reach(self, commit: UUID, sources: Sequence[Version]) -> bool:
        """Add the versions that lead to a commit; return whether it is reached for the first time."""
        first = commit not in self._sources
        self._sources[commit].update(sources)
        return first

    def add_write(self, commit: UUID, row: Any, hops: int) -> None:
        """Add a row that a commit wrote."""
        item = _derived_item(row, hops)
        own = sources_of({"sources": row["sources"]}) if self._by_sources else ()
        declared = frozenset((each["store"], each["id"], each["version"]) for each in own)
        self._writes[commit].append((item.key, declared, item))

    def follow(self, commits: Collection[UUID]) -> list[Version]:
        """Return the writes of these commits that are derived from the roots and were not yet."""
        fresh = []
        for commit in commits:
            remaining = []
            for key, declared, item in self._writes[commit]:
                if key in self.touched or key in self._excluded:
                    continue
                if declared and declared.isdisjoint(self._sources[commit]):
                    remaining.append((key, declared, item))
                    continue
                self.touched[key] = item
                fresh.append(key)
            self._writes[commit] = remaining
        return fresh


class Influence:
    """Follows the edges from items to everything derived from them, in one project."""

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
        """Return the versions of an item from `version` on, and of a document also those of its chunks since then.

        `before` is a position in the project's order, the end of the range. A restored version has the position of its
        original. Empty if there is no such record.
        """
        last = before if before is not None else _NEVER
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_SQL["versions_of_record"], project, store, record_id)
            first = next((row["seq"] for row in rows if row["version"] >= version), _NEVER)
            versions = {
                (store, record_id, row["version"])
                for row in rows
                if row["seq"] >= first and max(row["seq"], row["changed"] or 0) < last
            }
            if store == "documents" and versions:
                after = max((row["seq"] for row in rows if row["seq"] < first), default=0)
                chunks = await connection.fetch(_SQL["chunks_of_document"], project, record_id, after, last)
                versions |= {("chunks", row["id"], row["version"]) for row in chunks}
        return frozenset(versions)

    async def said_since(self, project: str, store: str, record_id: str) -> int:
        """Return the first version since which the content of a record is unchanged, deletions aside."""
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
        """Return everything in a project derived from the roots; with `shared`, these are of the shared project.

        Versions in `without` are left out, as is everything derived from them only.
        """
        excluded = without if shared else roots | without
        walk = _Walk(reach, excluded)
        hops = 0
        async with self._database.snapshot(project) as connection:
            frontier = sorted(roots)
            if not shared:
                frontier += await self._restorations(connection, project, frontier, walk, roots | without, 0)
            while frontier and len(walk.touched) <= limit:
                hops += 1
                columns = list(map(list, zip(*frontier, strict=True)))
                rows = await connection.fetch(_SQL["readers"], *columns, reach, shared and hops == 1)
                sources = {commit: [frontier[n] for n in items] for commit, items in rows}
                fresh = [commit for commit, versions in sources.items() if walk.reach(commit, versions)]
                for row in await connection.fetch(_SQL["writes_of_commits"], project, fresh):
                    walk.add_write(row["commit_id"], row, hops)
                derived = walk.follow(sources)
                derived += await self._restorations(connection, project, derived, walk, excluded, hops)
                frontier = [("commits", str(commit), 1) for commit in fresh] + derived
        touched = sorted(walk.touched.values(), key=lambda each: (each.hops, each.seq))
        return Radius(roots, tuple(touched[:limit]), len(touched) > limit)

    @staticmethod
    async def _restorations(
        connection: Any,
        project: str,
        versions: Sequence[Version],
        walk: _Walk,
        excluded: Collection[Version],
        hops: int,
    ) -> list[Version]:
        """Add the versions that restore any of these; return those that were not reached before."""
        if not versions:
            return []
        columns = list(map(list, zip(*versions, strict=True)))
        fresh = []
        for row in await connection.fetch(_SQL["restorations"], project, *columns):
            item = _derived_item(row, hops)
            if item.key not in walk.touched and item.key not in excluded:
                walk.touched[item.key] = item
                fresh.append(item.key)
        return fresh


def _derived_item(row: Any, hops: int) -> DerivedItem:
    return DerivedItem(
        row["store"], row["id"], row["version"], hops, row["task_id"], row["label"], row["seq"], row["at"]
    )
