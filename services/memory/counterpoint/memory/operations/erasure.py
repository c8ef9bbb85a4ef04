"""Erasure: permanent deletion of a project, a task or a document, with everything derived from it.

It has two steps. A commit deletes every record, so that reads, vectors, projections and caches follow as after any
deletion; its leaf lists the leaves to erase, and the writes in them that are kept. Then the content of all versions, of
the messages sent with them, and of those leaves is erased. The hash of a leaf remains, so every proof still holds. An
interrupted erasure is finished at the next start.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any
from uuid import UUID

import structlog

from counterpoint.client import retry_on_conflict
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.audit.leaf_body import expanded
from counterpoint.memory.audit.packed_leaf import leaf_text
from counterpoint.memory.audit.standing import placed
from counterpoint.memory.commit.committer import Committer
from counterpoint.memory.commit.planner import plan_commit
from counterpoint.memory.operations.large_acts import LargeActs, PlannedAct, in_one_line
from counterpoint.memory.provenance.influence import Influence, Version
from counterpoint.memory.provenance.read_sets import ReadSet
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.memory.record.stamps import Provenance
from counterpoint.proto.errors import Conflict, ErrorCode, Permanent, Problem
from counterpoint.proto.ids import derived_id
from counterpoint.proto.memory import Commit, CommitReply, Erase, ErasureResult, Origin, Write

log = structlog.get_logger()

STORE = "erasures"
# The approvals of large acts are kept too, by `LargeActs.approvals`.
KEPT = frozenset({"audit", "erasures", "quarantines", "releases", "revocations", "providers", "projections"})
"""Stores that are not erased: records of operations, and records without user content."""
_ATTEMPTS = 5
_LIMIT = 500_000
_AGED_AT_ONCE = 500

_SQL = load_statements(__package__)

Key = tuple[str, str]


class Erasures:
    """Executes erasures, one at a time per project, and the retention that the policy sets for stores.

    `sequenced` gives every leaf its position; only leaves with a position can be erased.
    """

    def __init__(
        self,
        database: Database,
        policy: Policy,
        committer: Committer,
        influence: Influence,
        sequenced: Callable[[], Awaitable[object]],
        large_acts: LargeActs,
    ) -> None:
        self._database = database
        self._policy = policy
        self._committer = committer
        self._influence = influence
        self._sequenced = sequenced
        self._large_acts = large_acts
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def lock(self, project: str) -> asyncio.Lock:
        """Return the lock that every erasure in a project holds. A job that copies content into other records holds it
        too."""
        return self._locks[project]

    async def apply(self, origin: Origin, erasure_id: str, request: Erase) -> CommitReply:
        """Erase, and record the result in the store `erasures`. Raises `Permanent` `not_found`, and
        `AwaitsApproval`."""
        async with self._locks[origin.project]:
            return await retry_on_conflict(partial(self._erase_derived, origin, erasure_id, request), _ATTEMPTS)

    async def finish(self) -> None:
        """Finish interrupted erasures. To be called when commits can be applied, but before requests are answered."""
        for project in await self._database.projects():
            async with self._database.reading(project) as connection:
                rows = await connection.fetch(_SQL["unfinished_erasures"], project)
            for row in rows:
                origin = Origin(message_id=derived_id(str(row["commit_id"]), "finish"), project=project)
                await self._wipe(
                    origin, row["id"], ErasureResult.model_validate(row["body"]), row["version"], row["commit_id"]
                )

    async def age(self) -> bool:
        """Erase records that are older than the policy lets their store keep them. Return whether there may be more.
        Raises `Transient`."""
        stores = {name: row.keep_days for name, row in self._policy.stores.items() if row.keep_days and not row.system}
        more = False
        for project in await self._database.projects():
            for store, days in stores.items():
                before = datetime.now(UTC) - timedelta(days=days)
                async with self._database.reading(project) as connection:
                    rows = await connection.fetch(_SQL["records_older_than"], project, store, before, _AGED_AT_ONCE)
                if not rows:
                    continue
                request = Erase(scope="project", what=store, reason=f"older than its retention of {days} days")
                erasure_id = derived_id(project, store, before.isoformat())
                origin = Origin(message_id=erasure_id, project=project)
                found = {(row["store"], row["id"]): row["version"] for row in rows}
                async with self._locks[project]:
                    try:
                        await self._erase(origin, erasure_id, request, found.keys(), 0, found)
                        more = more or len(rows) == _AGED_AT_ONCE
                    except Conflict as changed:
                        # Records that are still too old are erased by the next run.
                        log.info("erasure.deferred", project=project, store=store, reason=str(changed))
        return more

    async def _erase_derived(self, origin: Origin, erasure_id: str, request: Erase) -> CommitReply:
        roots = await self._roots(origin.project, request)
        if not roots:
            problem = f"{request.scope} {request.what} does not exist in project {origin.project}"
            raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="what", problem=problem),))
        keys, shown_to = await self._with_derived(origin.project, request, roots)
        keys -= await self._large_acts.approvals(origin.project)
        permit = await self._large_acts.permit(origin, _planned(request, keys))
        return await self._erase(origin, erasure_id, request, keys, shown_to, permit=permit)

    async def _roots(self, project: str, request: Erase) -> set[Key]:
        async with self._database.reading(project) as connection:
            match request.scope:
                case "project":
                    rows = (
                        await connection.fetch(_SQL["records_of_project"], project) if request.what == project else []
                    )
                    found = {(row["store"], row["id"]) for row in rows}
                case "task":
                    rows = await connection.fetch(_SQL["records_of_tasks"], project, [request.what])
                    if rows:
                        rows += await connection.fetch(_SQL["records_with_error_of_task"], project, request.what)
                    found = {(row["store"], row["id"]) for row in rows}
                case "source":
                    rows = await connection.fetch(_SQL["documents_of_source"], project, request.what)
                    found = {("documents", row["id"]) for row in rows}
        return {key for key in found if key[0] not in KEPT}

    async def _with_derived(self, project: str, request: Erase, roots: set[Key]) -> tuple[set[Key], int]:
        """Return the records to erase, and the number of further records that were only shown one of them."""
        if request.scope == "project":
            return roots, 0
        versions: set[Version] = set()
        for store, record_id in roots:
            versions |= await self._influence.roots(project, store, record_id)
        everything_shown = (
            await self._influence.of(project, frozenset(versions), reach="shown", limit=_LIMIT)
        ).complete()
        naming = everything_shown
        if not request.shown:
            naming = (await self._influence.of(project, frozenset(versions), reach="named", limit=_LIMIT)).complete()
        own = {(store, record_id) for store, record_id, _ in versions} | roots
        named_keys = {(each.store, each.id) for each in naming.touched}
        shown = {(each.store, each.id) for each in everything_shown.touched} - named_keys - own
        own |= await self._of_tasks(project, [record for store, record in own | named_keys if store == "tasks"])
        own |= await self._names(project, [record for store, record in own | named_keys if store == "relationships"])
        own |= await self._calls(project, [record for store, record in own if store == "documents"])
        erased_keys = {key for key in own | named_keys if key[0] not in KEPT}
        shown -= erased_keys
        return erased_keys, len([key for key in shown if key[0] not in KEPT])

    async def _names(self, project: str, relationships: list[str]) -> set[Key]:
        """Return the entities that no other relationships lead to."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_SQL["entities_of_relationships_alone"], project, relationships)
        return {("entities", row["id"]) for row in rows}

    async def _calls(self, project: str, documents: list[str]) -> set[Key]:
        """Return the model calls that extracted relations from some documents: their responses quote these."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_SQL["calls_about_documents"], project, documents)
        return {("model_calls", row["id"]) for row in rows}

    async def _of_tasks(self, project: str, tasks: list[str]) -> set[Key]:
        """Return all records of some tasks."""
        async with self._database.reading(project) as connection:
            return {
                (row["store"], row["id"]) for row in await connection.fetch(_SQL["records_of_tasks"], project, tasks)
            }

    async def _erase(
        self,
        origin: Origin,
        erasure_id: str,
        request: Erase,
        keys: Set[Key],
        shown_to: int,
        found: Mapping[Key, int] = MappingProxyType({}),
        *,
        permit: tuple[Write, ...] = (),
    ) -> CommitReply:
        """Delete the records, then erase their content. `permit` uses up the approval. Raises `Conflict` if one has
        another version than was found."""
        await self._sequenced()
        ordered = sorted(keys)
        present, forgets = await self._forgets(origin.project, ordered)
        if any(present[key] != version for key, version in found.items()):
            raise Conflict(STORE, "a record that was changed")
        now = datetime.now(UTC)
        erased = ErasureResult(
            **request.model_dump(),
            state="erasing",
            by=origin.principal or "memory",
            at=now,
            gone=Counter(store for store, _ in ordered),
            shown_to=shown_to,
        )
        record = Write(store=STORE, id=erasure_id, body=erased.model_dump(mode="json"))
        deleted = (Write(store=store, id=each, body=None, expect=present[store, each]) for store, each in ordered)
        reply, commit_id = await self._commit(origin, "erase", (record, *permit, *deleted), forgets)
        await self._wipe(origin, erasure_id, erased, 1, UUID(commit_id))
        return reply

    async def _forgets(self, project: str, keys: list[Key]) -> tuple[dict[Key, int], Mapping[str, Any]]:
        """Return the current version of each record, and the content of the erasure's leaf: the positions of the leaves
        to erase, and the writes in them that are kept."""
        columns = [store for store, _ in keys], [record for _, record in keys]
        tasks = [record for store, record in keys if store == "tasks"]
        async with self._database.snapshot(project) as connection:
            rows = await connection.fetch(_SQL["commits_of_records"], project, *columns)
            commits = list({row["commit_id"] for row in rows})
            leaves = await connection.fetch(_SQL["leaves_of_commits"], project, commits, tasks)
        erased_keys = set(keys)
        positions, kept_writes = [], []
        for leaf in leaves:
            leaf_body = json.loads(leaf_text(leaf["body"], leaf["packed"]) or "{}")
            if "erased" in leaf_body:
                continue
            positions.append(leaf["position"])
            kept_writes += [write for write in placed(expanded(leaf_body)) if (write[0], write[1]) not in erased_keys]
        if None in positions:
            raise Conflict(STORE, "a leaf without a place")
        present = {(row["store"], row["id"]): row["version"] for row in rows if row["now"]}
        return present, {"leaves": sorted(positions), "kept": sorted(kept_writes)}

    async def _wipe(
        self, origin: Origin, erasure_id: str, erased: ErasureResult, version: int, commit_id: UUID
    ) -> None:
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


def _planned(request: Erase, keys: Set[Key]) -> PlannedAct:
    shown = ", and what was only shown it" if request.shown else ""
    lines = [f"{store}/{record}" for store, record in sorted(keys)]
    return PlannedAct(
        kind="erasure",
        name=f"erase {request.scope} {in_one_line(request.what)}{shown}, for ever",
        size=len(lines),
        counts=f"{len(lines)} records are erased, with all their versions",
        lines=lines,
    )
