"""Erasure: a project, a task or a document is forgotten for good, with what was derived from it.

Two steps. A commit deletes every record that is to go, so that reads, vectors, projections and caches follow as they do
after any deletion, and its leaf says which leaves it forgets, and what they had vouched for besides. Then the content
of all versions goes, of the messages sent beside them, and of those leaves: of a leaf its hash is left, so every proof
still holds. An erasure that was interrupted is finished at the next start.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from counterpoint.client import retry_on_conflict
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.audit.standing import placed
from counterpoint.memory.commit.committer import Committer
from counterpoint.memory.commit.planner import plan_commit
from counterpoint.memory.provenance.influence import Influence, Version
from counterpoint.memory.provenance.read_sets import ReadSet
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.stamps import Provenance
from counterpoint.proto.errors import Conflict, ErrorCode, Permanent, Problem
from counterpoint.proto.ids import derived_id
from counterpoint.proto.memory import Commit, CommitReply, Erase, Erased, Origin, Write

log = structlog.get_logger()

STORE = "erasures"
KEPT = frozenset({"audit", "erasures", "quarantines", "releases", "revocations", "providers", "projections"})
"""Stores whose records say what was done, or are no content of anybody's."""
_ATTEMPTS = 5
_LIMIT = 500_000
_AGED_AT_ONCE = 500

_ALL = "SELECT store, id FROM records WHERE project = $1 AND (body IS NOT NULL OR erased IS NULL)"
_OF_TASKS = """
SELECT store, id FROM records WHERE project = $1 AND (task_id = ANY ($2) OR (store = 'tasks' AND id = ANY ($2)))
UNION SELECT store, id FROM history WHERE project = $1 AND (task_id = ANY ($2) OR (store = 'tasks' AND id = ANY ($2)))
"""
_NAMES = """
SELECT DISTINCT split_part(r.body ->> 'target', '/', 2) AS id FROM records r
WHERE r.project = $1 AND r.store = 'relationships' AND r.id = ANY ($2) AND starts_with(r.body ->> 'target', 'entities/')
    AND NOT EXISTS (
        SELECT FROM records o
        WHERE o.project = $1 AND o.store = 'relationships' AND o.by_target = left(r.body ->> 'target', 200)
            AND o.body ->> 'target' = r.body ->> 'target' AND o.id <> ALL ($2))
"""
_CALLS = """
SELECT id FROM records WHERE project = $1 AND store = 'model_calls'
    AND starts_with(body ->> 'key', 'relations:') AND split_part(body ->> 'key', ':', 2) = ANY ($2)
"""
_OF_SOURCE = """
SELECT id FROM records WHERE project = $1 AND store = 'documents' AND body ->> 'source' = $2
UNION SELECT id FROM history WHERE project = $1 AND store = 'documents' AND body ->> 'source' = $2
"""
_AGED = """
SELECT store, id FROM records WHERE project = $1 AND store = $2 AND at < $3 AND body IS NOT NULL ORDER BY seq LIMIT $4
"""
_VERSIONS = """
SELECT given.store, given.id, found.version, found.commit_id, found.now
FROM unnest($2::text[], $3::text[]) AS given (store, id)
CROSS JOIN LATERAL (
    SELECT version, commit_id, true AS now FROM records WHERE project = $1 AND store = given.store AND id = given.id
    UNION ALL
    SELECT version, commit_id, false FROM history WHERE project = $1 AND store = given.store AND id = given.id
    OFFSET 0) AS found
"""
_LEAVES = """
SELECT position, body FROM audit
WHERE project = $1 AND body IS NOT NULL
  AND (id = ANY ($2::uuid[]) OR task_id = ANY ($3::text[])
       OR id = ANY (ARRAY(SELECT commit_id FROM messages WHERE project = $1 AND task_id = ANY ($3::text[]))))
"""
_UNFINISHED = """
SELECT id, version, commit_id, body FROM records
WHERE project = $1 AND store = 'erasures' AND body ->> 'state' = 'erasing'
"""

Key = tuple[str, str]


class Erasures:
    """Does what persons wish, one erasure of a project after another, and what the policy says of old records.

    `sequenced` gives every leaf its place, for only such can be erased.
    """

    def __init__(
        self,
        database: Database,
        policy: Policy,
        committer: Committer,
        influence: Influence,
        sequenced: Callable[[], Awaitable[object]],
    ) -> None:
        self._database = database
        self._policy = policy
        self._committer = committer
        self._influence = influence
        self._sequenced = sequenced
        self._alone: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def alone(self, project: str) -> asyncio.Lock:
        """Held by every erasure in a project; whoever writes what a record says somewhere else holds it meanwhile."""
        return self._alone[project]

    async def apply(self, origin: Origin, erasure_id: str, wish: Erase) -> CommitReply:
        """Erase, and keep the result in the store `erasures`. Raises `Permanent` `not_found`."""
        async with self._alone[origin.project]:
            return await retry_on_conflict(partial(self._do, origin, erasure_id, wish), _ATTEMPTS)

    async def finish(self) -> None:
        """Finish what was interrupted; to be called before anything is answered but after commits are applied."""
        for project in await self._projects():
            async with self._database.reading(project) as connection:
                rows = await connection.fetch(_UNFINISHED, project)
            for row in rows:
                origin = Origin(message_id=derived_id(str(row["commit_id"]), "finish"), project=project)
                await self._wipe(
                    origin, row["id"], Erased.model_validate(row["body"]), row["version"], row["commit_id"]
                )

    async def age(self) -> None:
        """Erase what is older than the policy lets a store keep it."""
        stores = {name: row.keep_days for name, row in self._policy.stores.items() if row.keep_days and not row.system}
        for project in await self._projects():
            for store, days in stores.items():
                before = datetime.now(UTC) - timedelta(days=days)
                async with self._database.reading(project) as connection:
                    rows = await connection.fetch(_AGED, project, store, before, _AGED_AT_ONCE)
                if not rows:
                    continue
                wish = Erase(scope="project", what=store, reason=f"older than its retention of {days} days")
                erasure_id = derived_id(project, store, before.isoformat())
                origin = Origin(message_id=erasure_id, project=project)
                keys = {(row["store"], row["id"]) for row in rows}
                async with self._alone[project]:
                    try:
                        await self._erase(origin, erasure_id, wish, keys, 0)
                    except Conflict as changed:
                        # What is still too old is so at the next time.
                        log.info("erasure.deferred", project=project, store=store, reason=str(changed))

    async def _do(self, origin: Origin, erasure_id: str, wish: Erase) -> CommitReply:
        roots = await self._roots(origin.project, wish)
        if not roots:
            problem = f"{wish.scope} {wish.what} does not exist in project {origin.project}"
            raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="what", problem=problem),))
        keys, shown_to = await self._with_derived(origin.project, wish, roots)
        return await self._erase(origin, erasure_id, wish, keys, shown_to)

    async def _roots(self, project: str, wish: Erase) -> set[Key]:
        async with self._database.reading(project) as connection:
            match wish.scope:
                case "project":
                    rows = await connection.fetch(_ALL, project) if wish.what == project else []
                    found = {(row["store"], row["id"]) for row in rows}
                case "task":
                    rows = await connection.fetch(_OF_TASKS, project, [wish.what])
                    found = {(row["store"], row["id"]) for row in rows}
                case "source":
                    rows = await connection.fetch(_OF_SOURCE, project, wish.what)
                    found = {("documents", row["id"]) for row in rows}
        return {key for key in found if key[0] not in KEPT}

    async def _with_derived(self, project: str, wish: Erase, roots: set[Key]) -> tuple[set[Key], int]:
        """Return the records to erase, and the number of further records that they were only shown to."""
        if wish.scope == "project":
            return roots, 0
        versions: set[Version] = set()
        for store, record_id in roots:
            versions |= await self._influence.roots(project, store, record_id)
        every = (await self._influence.of(project, frozenset(versions), reach="shown", limit=_LIMIT)).whole()
        naming = every
        if not wish.shown:
            naming = (await self._influence.of(project, frozenset(versions), reach="named", limit=_LIMIT)).whole()
        own = {(store, record_id) for store, record_id, _ in versions} | roots
        named = {(each.store, each.id) for each in naming.touched}
        shown = {(each.store, each.id) for each in every.touched} - named - own
        own |= await self._of_tasks(project, [record for store, record in own | named if store == "tasks"])
        own |= await self._names(project, [record for store, record in own | named if store == "relationships"])
        own |= await self._calls(project, [record for store, record in own if store == "documents"])
        going = {key for key in own | named if key[0] not in KEPT}
        shown -= going
        return going, len([key for key in shown if key[0] not in KEPT])

    async def _names(self, project: str, relationships: list[str]) -> set[Key]:
        """The entities that nothing but these relationships leads to."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_NAMES, project, relationships)
        return {("entities", row["id"]) for row in rows}

    async def _calls(self, project: str, documents: list[str]) -> set[Key]:
        """The calls that asked a model for the relations in some documents: their responses quote these."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_CALLS, project, documents)
        return {("model_calls", row["id"]) for row in rows}

    async def _of_tasks(self, project: str, tasks: list[str]) -> set[Key]:
        """All that is about some tasks."""
        async with self._database.reading(project) as connection:
            return {(row["store"], row["id"]) for row in await connection.fetch(_OF_TASKS, project, tasks)}

    async def _erase(self, origin: Origin, erasure_id: str, wish: Erase, keys: set[Key], shown_to: int) -> CommitReply:
        """Delete, then forget."""
        await self._sequenced()
        ordered = sorted(keys)
        present, forgets = await self._forgets(origin.project, ordered)
        now = datetime.now(UTC)
        erased = Erased(
            **wish.model_dump(),
            state="erasing",
            by=origin.principal or "memory",
            at=now,
            gone=Counter(store for store, _ in ordered),
            shown_to=shown_to,
        )
        record = Write(store=STORE, id=erasure_id, body=erased.model_dump(mode="json"))
        deleted = (Write(store=store, id=each, body=None, expect=present[store, each]) for store, each in ordered)
        reply, commit_id = await self._commit(origin, "erase", (record, *deleted), forgets)
        await self._wipe(origin, erasure_id, erased, 1, UUID(commit_id))
        return reply

    async def _forgets(self, project: str, keys: list[Key]) -> tuple[dict[Key, int], Mapping[str, Any]]:
        """The version each record stands at, and what the leaf of the erasure says: the positions of the leaves that
        will be forgotten, and what they had vouched for that stays."""
        columns = [store for store, _ in keys], [record for _, record in keys]
        tasks = [record for store, record in keys if store == "tasks"]
        async with self._database.snapshot(project) as connection:
            rows = await connection.fetch(_VERSIONS, project, *columns)
            commits = list({row["commit_id"] for row in rows})
            leaves = await connection.fetch(_LEAVES, project, commits, tasks)
        going = set(keys)
        positions, kept = [], []
        for leaf in leaves:
            said = json.loads(leaf["body"])
            if "erased" in said:
                continue
            positions.append(leaf["position"])
            kept += [write for write in placed(said) if (write[0], write[1]) not in going]
        if None in positions:
            raise Conflict(STORE, "a leaf without a place")
        present = {(row["store"], row["id"]): row["version"] for row in rows if row["now"]}
        return present, {"leaves": sorted(positions), "kept": sorted(kept)}

    async def _wipe(self, origin: Origin, erasure_id: str, erased: Erased, version: int, commit_id: UUID) -> None:
        async with self._database.connection() as connection:
            wiped = await connection.fetchval("SELECT erase_content($1, $2)", origin.project, commit_id, timeout=600)
        done = erased.model_copy(update={"state": "erased", "versions": wiped})
        write = Write(store=STORE, id=erasure_id, body=done.model_dump(mode="json"), expect=version)
        after = origin.model_copy(update={"message_id": derived_id(origin.message_id, "erased")})
        await self._commit(after, "erased", (write,), None)
        log.warning("erasure.done", project=origin.project, scope=erased.scope, records=sum(erased.gone.values()))

    async def _commit(
        self, origin: Origin, step: str, writes: Iterable[Write], forgets: Mapping[str, Any] | None
    ) -> tuple[CommitReply, str]:
        now = datetime.now(UTC)
        plan = plan_commit(
            self._policy,
            diode.erasing(self._policy, origin.project, origin.message_id, now),
            origin,
            Commit(step=step, writes=tuple(writes)),
            now=now,
            caused_by=Provenance(),
            memories=ReadSet(),
            task_version=None,
            forgets=forgets,
        )
        return await self._committer.apply(plan), plan.commit_id

    async def _projects(self) -> list[str]:
        async with self._database.connection() as connection:
            return [row["project"] for row in await connection.fetch("SELECT project FROM projects")]
