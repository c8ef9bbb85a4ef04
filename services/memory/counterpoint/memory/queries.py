"""Queries: each answered by the tier that holds its store, in one snapshot, through the diode's read side."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, assert_never

import asyncpg

from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import Policy
from counterpoint.memory import diode
from counterpoint.memory.audit import verify_log
from counterpoint.memory.database import Database
from counterpoint.memory.lists import COLUMNS, GETS, listing, walking
from counterpoint.memory.provenance import Seen
from counterpoint.memory.rows import SYSTEM
from counterpoint.memory.search import Search
from counterpoint.proto.errors import Denied, Permanent, Problem, Transient
from counterpoint.proto.memory import (
    Found,
    Get,
    HybridSearch,
    Item,
    Line,
    List,
    LogAfter,
    MemoryQuery,
    Ref,
    VectorSearch,
    Verify,
    Walk,
)
from counterpoint.proto.subjects import SHARED_PROJECT
from counterpoint.proto.upcast import upcast

_BY_IDS = f"SELECT {COLUMNS} FROM records WHERE store = $1 AND id = ANY ($2) AND body IS NOT NULL"
_LINE = f"""
SELECT {COLUMNS} FROM records
WHERE project = $1 AND store = 'actions' AND task_id = $2 AND body IS NOT NULL ORDER BY seq
"""
_LOG = """
SELECT seq, id, type, subject, task_id, body, sender, at FROM messages
WHERE project = $1 AND seq > $2 AND split_part(subject, '.', 1) = ANY ($3) AND ($4::text IS NULL OR task_id = $4)
ORDER BY seq LIMIT $5
"""
_PLACE = "SELECT last_seq, forgotten_seq FROM projects WHERE project = $1"
_STORE_OF = {"line": "actions", "log_after": "decisions", "verify": "audit"}
TURNS = 8
"""Requests answered beside each other; fewer than there are connections, so that others find one."""
PATIENCE_S = 8.0
"""Who waited longer has given up, or is about to: callers wait for ten seconds. The answer would be for nobody."""


class Queries:
    """Answers queries for one grant."""

    def __init__(self, database: Database, policy: Policy, search: Search) -> None:
        self._turns = asyncio.Semaphore(TURNS)
        self._database = database
        self._policy = policy
        self._search = search

    def store(self, query: MemoryQuery) -> str:
        """The store whose read right a query needs."""
        return _STORE_OF.get(query.op) or query.store  # type: ignore[union-attr]

    async def answer(self, grant: Grant, queries: Sequence[MemoryQuery]) -> tuple[Found, ...]:
        """One `Found` per query. Raises `Transient` when its turn comes too late."""
        arrived = time.monotonic()
        async with self._turns:
            if time.monotonic() - arrived > PATIENCE_S:
                raise Transient("busy", retry_after_s=0.5)
            return await self._answer(grant, queries)

    async def _answer(self, grant: Grant, queries: Sequence[MemoryQuery]) -> tuple[Found, ...]:
        embedded = await self._search.embed(grant.project, queries)
        system = any(self._policy.stores[self.store(query)].system for query in queries)
        found = []
        look = self._database.reading if _one_statement(queries) else self._database.snapshot
        async with look(SYSTEM if system else grant.project) as connection:
            got: dict[tuple[str, str], Any] | None = None
            for query in queries:
                began = time.perf_counter()
                try:
                    if isinstance(query, Get) and got is None:
                        got = await self._gets(connection, grant, queries)
                    answer = await self._one(connection, grant, query, embedded, got or {})
                except asyncpg.DataError as error:
                    raise Permanent("invalid", (Problem(field=query.op, problem="cannot be looked for"),)) from error
                took_us = int((time.perf_counter() - began) * 1e6)
                found.append(answer.model_copy(update={"took_us": took_us}))
        return tuple(found)

    async def _gets(self, connection: Any, grant: Grant, queries: Sequence[MemoryQuery]) -> dict[tuple[str, str], Any]:
        """All records that a request gets, by store and id, by one statement."""
        wanted = list(dict.fromkeys((query.store, query.id) for query in queries if isinstance(query, Get)))
        places = [self._projects(grant, store) for store, _ in wanted]
        rows = await connection.fetch(
            GETS,
            places[0][0],
            [store for store, _ in wanted],
            [record_id for _, record_id in wanted],
            [len(projects) > 1 for projects in places],
        )
        return {(row["store"], row["id"]): row for row in rows}

    async def _one(
        self,
        connection: Any,
        grant: Grant,
        query: MemoryQuery,
        embedded: dict[str, Any],
        got: dict[tuple[str, str], Any],
    ) -> Found:
        match query:
            case Get():
                row = got.get((query.store, query.id))
                return self._found(grant, [row] if row else [], "record", "primary key")
            case List():
                return await self._list(connection, grant, query)
            case Line():
                rows = await connection.fetch(_LINE, grant.project, query.task_id)
                rows = rows[::-1] if query.newest_first else rows
                return self._found(grant, rows[: query.limit], "record", "task index")
            case Walk():
                sql, values = walking(query, grant.project)
                rows = await connection.fetch(sql, *values)
                return self._found(grant, rows, "record", "recursive", score="hops")
            case LogAfter():
                if grant.task is not None and query.task_id != grant.task:
                    raise Denied("task", "the log of the capability's task")
                return await self._log(connection, grant, query)
            case VectorSearch() | HybridSearch():
                hits, plan = await self._search.run(connection, grant.project, query, embedded, grant.clearance)
                rows = await connection.fetch(_BY_IDS, query.store, [hit.id for hit in hits]) if hits else []
                known = {(row["project"], row["id"]): row for row in rows}
                found = [(known[hit.project, hit.id], hit) for hit in hits if (hit.project, hit.id) in known]
                items = [
                    item(row, hit.score, hit.scores)
                    for row, hit in found
                    if self._visible(grant, row) and _matches(row, query.where)
                ]
                return Found(items=tuple(items[: query.k]), tier="vector", plan=plan, took_us=0)
            case Verify():
                report = await verify_log(connection, grant.project, query.task_id)
                return Found(tier="record", plan="audit", took_us=0, report=report)
            case _:
                assert_never(query)

    def _projects(self, grant: Grant, store: str) -> list[str]:
        row = self._policy.stores[store]
        if row.system:
            return [SYSTEM]
        return [grant.project, SHARED_PROJECT] if row.shared else [grant.project]

    async def _list(self, connection: Any, grant: Grant, query: List) -> Found:
        sql, values = listing(query, self._projects(grant, query.store))
        rows = await connection.fetch(sql, *values)
        found = self._found(grant, rows[: query.limit], "record", "list")
        more = len(rows) > query.limit
        return found.model_copy(update={"next_cursor": rows[query.limit - 1]["seq"] if more else None})

    async def _log(self, connection: Any, grant: Grant, query: LogAfter) -> Found:
        kinds = list(query.kinds)
        rows = await connection.fetch(_LOG, grant.project, query.after, kinds, query.task_id, query.limit)
        place = await connection.fetchrow(_PLACE, grant.project)
        last, forgotten = (place["last_seq"], place["forgotten_seq"]) if place else (0, 0)
        items = [
            Item(
                store="messages",
                id=str(row["id"]),
                project=grant.project,
                version=1,
                body={
                    "type": row["type"],
                    "subject": row["subject"],
                    "task_id": row["task_id"],
                    "data": row["body"],
                    "time": row["at"].isoformat(),
                },
                author=row["sender"],
                label=0,
                integrity=2,
                seq=row["seq"],
                at=row["at"],
            )
            for row in rows
        ]
        # Who has been shown all there is has come to the end of the log, whatever there is in it for others.
        cursor = rows[-1]["seq"] if len(rows) == query.limit else max(last, query.after)
        gap = query.after < forgotten
        return Found(items=tuple(items), tier="record", plan="log", took_us=0, next_cursor=cursor, gap=gap)

    def _visible(self, grant: Grant, row: Any) -> bool:
        store = row["store"]
        if self._policy.stores[store].system:
            return bool(row["label"] <= grant.clearance)
        return diode.visible(self._policy, grant, store, row["id"], row["project"], row["label"])

    def _found(self, grant: Grant, rows: Sequence[Any], tier: str, plan: str, score: str | None = None) -> Found:
        items = tuple(item(row, row[score] if score else None) for row in rows if self._visible(grant, row))
        return Found(items=items, tier=tier, plan=plan, took_us=0)


def item(row: Any, score: float | None = None, scores: dict[str, float] | None = None) -> Item:
    """A row of `records` as it is shown."""
    project = row["project"] if row["project"] != SYSTEM else "default"
    _, body = upcast(row["store"], row["schema_version"], row["body"])
    return Item(
        store=row["store"],
        id=row["id"],
        project=project,
        version=row["version"],
        body=body,
        author=row["author"],
        label=row["label"],
        integrity=row["integrity"],
        seq=row["seq"],
        at=row["at"],
        score=score,
        scores=scores,
    )


def _one_statement(queries: Sequence[MemoryQuery]) -> bool:
    """Whether a request is answered by one statement, which needs no transaction to see one state."""
    if len(queries) == 1:
        return isinstance(queries[0], Get | List | Line | Walk)
    return all(isinstance(query, Get) for query in queries)


def _matches(row: Any, where: dict[str, Any]) -> bool:
    return all(row["body"].get(name) == wanted for name, wanted in where.items())


def seen(shown: Item) -> Seen:
    """An item as it was shown, for the read set."""
    body = shown.body
    findings = body.get("findings") or {}
    cited = [*(body.get("sources") or ()), *(findings.get("citations") or () if isinstance(findings, dict) else ())]
    cites = tuple(
        Ref(store=c["store"], id=c["id"], version=c["version"])
        for c in cited
        if isinstance(c, dict) and {"store", "id", "version"} <= c.keys()
    )
    return Seen(
        Ref(store=shown.store, id=shown.id, version=shown.version), shown.label, shown.integrity, shown.score, cites
    )
