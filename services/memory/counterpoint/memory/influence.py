"""Influence: all that rests on an item, by what every commit had read and by whose message it worked on (rows F4, M1).

A commit rests on what its delivery was shown and on the commit that sent its message; what it wrote rests on all of
that. So one step down leads from an item to the commits that read it, and from them to what they wrote and to the
commits that their messages led to.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from counterpoint.memory.database import Database
from counterpoint.proto.errors import Permanent, Problem

LINKED_AT_ONCE = 2000
"""Commits whose read sets become edges in one transaction."""

_NEVER = 2**62

_LINK = "SELECT link_sources($1, $2)"
_VERSIONS = """
SELECT version, seq, sha256, body IS NOT NULL AS there FROM records WHERE project = $1 AND store = $2 AND id = $3
UNION ALL
SELECT version, seq, sha256, body IS NOT NULL FROM history WHERE project = $1 AND store = $2 AND id = $3
ORDER BY version
"""
_PIECES = """
SELECT id, version FROM records
WHERE project = $1 AND store = 'chunks' AND id BETWEEN $2 || '-0' AND $2 || '-9999999999' AND seq > $3 AND seq < $4
UNION ALL
SELECT id, version FROM history
WHERE project = $1 AND store = 'chunks' AND id BETWEEN $2 || '-0' AND $2 || '-9999999999' AND seq > $3 AND seq < $4
"""
# Edge by edge through the primary key, whatever the planner thinks of a young table.
_READERS = """
SELECT found.commit_id, array_agg((given.n - 1)::int) FILTER (WHERE found.cited) AS cited
FROM unnest($2::text[], $3::text[], $4::int[]) WITH ORDINALITY AS given (store, id, version, n)
CROSS JOIN LATERAL (
    SELECT commit_id, cited FROM sources
    WHERE project = $1 AND store = given.store AND id = given.id AND version = given.version AND shared = $5
    OFFSET 0) AS found
GROUP BY found.commit_id
"""
_WRITTEN = """
SELECT given.commit_id, made.* FROM unnest($2::uuid[]) AS given (commit_id)
CROSS JOIN LATERAL (
    SELECT store, id, version, task_id, label, seq, at FROM records
    WHERE project = $1 AND records.commit_id = given.commit_id
    UNION ALL
    SELECT store, id, version, task_id, label, seq, at FROM history
    WHERE project = $1 AND history.commit_id = given.commit_id
    OFFSET 0) AS made
"""

Version = tuple[str, str, int]
"""Store, id and version."""


@dataclass(frozen=True, slots=True)
class Touched:
    """One version of a record that rests on what was asked about. `cited`: by sources that were named all the way, not
    only shown."""

    store: str
    id: str
    version: int
    hops: int
    cited: bool
    task_id: str | None
    label: int
    seq: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Radius:
    """What rests on some versions of records, nearest first; `truncated` when there is more than was asked for."""

    roots: frozenset[Version]
    touched: tuple[Touched, ...]
    truncated: bool

    def whole(self) -> "Radius":
        """Itself, for who must not leave anything out. Raises `Permanent` `too_much` when there is more."""
        if self.truncated:
            problem = f"more than {len(self.touched)} versions of records rest on it: begin with one of these"
            raise Permanent("too_much", (Problem(field="item", problem=problem),))
        return self


class _Edges:
    """What led to which commit, and what each of them wrote."""

    def __init__(self) -> None:
        self._named: defaultdict[Version, list[UUID]] = defaultdict(list)
        self.wrote: defaultdict[UUID, list[Version]] = defaultdict(list)

    def name(self, source: Version, commit: UUID) -> None:
        """A commit named a version, or another commit, as what it rests on."""
        self._named[source].append(commit)

    def named_from(self, roots: Iterable[Version]) -> set[Version]:
        """The versions that named sources alone lead to."""
        found: set[Version] = set()
        commits: set[UUID] = set()
        left = list(roots)
        while left:
            for commit in self._named[left.pop()]:
                if commit not in commits:
                    commits.add(commit)
                    found.update(self.wrote[commit])
                    left += [("commits", str(commit), 1), *self.wrote[commit]]
        return found


class Influence:
    """Follows the edges of one project at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def link(self, project: str) -> int:
        """Bring the edges up to date with the read sets; how many commits were new."""
        total = 0
        while True:
            async with self._database.connection() as connection:
                noted: int = await connection.fetchval(_LINK, project, LINKED_AT_ONCE)
            total += noted
            if noted < LINKED_AT_ONCE:
                return total

    async def roots(
        self, project: str, store: str, record_id: str, version: int = 1, before: int | None = None
    ) -> frozenset[Version]:
        """The versions that an item stands for: those from `version` on, as far as they came `before` a place in the
        project's order; of a document also those of its pieces from then on. None when there is no such record."""
        last = before if before is not None else _NEVER
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_VERSIONS, project, store, record_id)
            known = {row["version"]: row["seq"] for row in rows}
            found = {(store, record_id, each) for each, seq in known.items() if each >= version and seq < last}
            if store == "documents" and found:
                pieces = await connection.fetch(_PIECES, project, record_id, known.get(version - 1, 0), last)
                found |= {("chunks", row["id"], row["version"]) for row in pieces}
        return frozenset(found)

    async def said_since(self, project: str, store: str, record_id: str) -> int:
        """The first version from which on a record has said what it said last, but for when it was taken out."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_VERSIONS, project, store, record_id)
        first, last = 1, None
        for row in rows:
            if row["there"] and row["sha256"] != last:
                first, last = row["version"], row["sha256"]
        return first

    async def of(
        self,
        project: str,
        roots: frozenset[Version],
        *,
        shared: bool = False,
        limit: int,
        without: frozenset[Version] = frozenset(),
    ) -> Radius:
        """All that rests on these versions in a project; `shared` when they are those of the shared project. What is
        `without` is left out, and so is what rests on nothing else."""
        await self.link(project)
        edges = _Edges()
        commits: set[UUID] = set()
        made: list[tuple[int, Any]] = []
        frontier = sorted(roots)
        hops = 0
        async with self._database.snapshot(project) as connection:
            while frontier and len(made) <= limit:
                hops += 1
                stores, ids, versions = map(list, zip(*frontier, strict=True))
                fresh: dict[UUID, None] = {}
                for commit, cited in await connection.fetch(
                    _READERS, project, stores, ids, versions, shared and hops == 1
                ):
                    for n in cited or ():
                        edges.name(frontier[n], commit)
                    if commit not in commits:
                        fresh[commit] = None
                commits.update(fresh)
                frontier = [("commits", str(commit), 1) for commit in fresh]
                for row in await connection.fetch(_WRITTEN, project, list(fresh)):
                    commit, *version, _, _, _, _ = row
                    key = (version[0], version[1], version[2])
                    if (shared or key not in roots) and key not in without:
                        edges.wrote[commit].append(key)
                        frontier.append(key)
                        made.append((hops, row))
        named = edges.named_from(roots)
        touched = [_touched(row, hops, named) for hops, row in made]
        touched.sort(key=lambda each: (each.hops, each.seq))
        return Radius(roots, tuple(touched[:limit]), len(touched) > limit)


def _touched(row: Any, hops: int, named: set[Version]) -> Touched:
    _, store, record_id, version, task_id, label, seq, at = row
    return Touched(store, record_id, version, hops, (store, record_id, version) in named, task_id, label, seq, at)
