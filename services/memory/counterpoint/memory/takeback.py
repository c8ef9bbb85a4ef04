"""Taking back: a wrong record and all that was learned from it leaves every read, or gives way to what stood before.

Nothing is lost by it: a record that is taken out is one that was deleted, its versions stay in the history, and the
same way leads back. What was under way meanwhile finds no hold: who has read what was taken out begins again, and what
a message carried into a later commit is taken out with it.
"""

import asyncio
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from pydantic import ValidationError

from counterpoint.guard.policy import Policy
from counterpoint.memory import diode
from counterpoint.memory.committer import Committer
from counterpoint.memory.database import Database
from counterpoint.memory.influence import Influence, Version
from counterpoint.memory.prepare import prepare, problems_of
from counterpoint.memory.provenance import Memories, Provenance
from counterpoint.memory.rows import Prepared, WriteRow, canonical
from counterpoint.memory.vectors import Vectors
from counterpoint.proto.errors import Conflict, Permanent, Problem
from counterpoint.proto.ids import derived_id
from counterpoint.proto.memory import Commit, CommitReply, Origin, Ref, TakeBack, TakenBack, Write
from counterpoint.proto.subjects import SHARED_PROJECT

log = structlog.get_logger()

STORE = "quarantines"
_ATTEMPTS = 5
_LIMIT = 200_000
_TASKS_NAMED = 500

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
_WISHES = """
SELECT id, body, seq FROM records WHERE project = $1 AND store = 'quarantines' AND body IS NOT NULL AND at > $2
"""
_WISH = (
    "SELECT version, body FROM records WHERE project = $1 AND store = 'quarantines' AND id = $2 AND body IS NOT NULL"
)
_TAKEN_BY = """
SELECT store, id, version FROM records WHERE project = $1 AND body IS NULL AND commit_id = (
    SELECT commit_id FROM records WHERE project = $1 AND store = 'quarantines' AND id = $2 AND version = 1)
"""


@dataclass(frozen=True, slots=True)
class _Change:
    """A record to be taken back: the version that stands now, and the one to put in its place."""

    store: str
    id: str
    present: int
    before: int | None = None


class TakeBacks:
    """Does what persons wish, a project's wishes one after another, and knows what was wrong lately."""

    def __init__(
        self, database: Database, policy: Policy, committer: Committer, vectors: Vectors, influence: Influence
    ) -> None:
        self._database = database
        self._policy = policy
        self._committer = committer
        self._vectors = vectors
        self._influence = influence
        self._wrong: dict[str, dict[str, frozenset[Version]]] = {}
        self._alone: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def remember(self, since: datetime) -> None:
        """Know again what was taken back after a moment; to be called before anything is answered."""
        for project in await self._projects():
            async with self._database.reading(project) as connection:
                rows = await connection.fetch(_WISHES, project, since)
            for row in rows:
                done = TakenBack.model_validate(row["body"])
                if done.kind != "lift" and not done.lifted:
                    before = row["seq"]
                    try:
                        roots = await self._roots(
                            project, done, shared=done.shared, before=None if done.shared else before
                        )
                    except Permanent as error:
                        # What cannot be taken back any more must not keep memory from starting.
                        log.warning("takeback.unknown", project=project, quarantine_id=row["id"], reason=str(error))
                        continue
                    wrong, _ = await self._reach(project, done, roots, shared=done.shared, before=before)
                    self._known(project)[row["id"]] = wrong

    def wrong(self, project: str, read: Memories) -> Ref | None:
        """One of the items that were read and have been taken back lately, None when there is none.

        What is no lesson, as a task is none, stays where it is and can be read: what is made of it is taken out behind.
        """
        gone = [ref for ref in read.scores if self._learned(ref.store)]
        own = (ref for ref in gone if ref not in read.shared)
        return self._first(project, own) or self._first(SHARED_PROJECT, (ref for ref in gone if ref in read.shared))

    def carried(self, project: str, refs: Iterable[Ref]) -> Ref | None:
        """The same of what a message carried, of which nobody knows whether it was shared."""
        refs = tuple(refs)
        return self._first(project, refs) or self._first(SHARED_PROJECT, refs)

    def _first(self, project: str, refs: Iterable[Ref]) -> Ref | None:
        known = self._wrong.get(project)
        if not known:
            return None
        return next((r for r in refs if any((r.store, r.id, r.version) in each for each in known.values())), None)

    async def apply(self, origin: Origin, write: Write) -> CommitReply:
        """Do what a new record of the store `quarantines` wishes.

        Raises `Permanent` `invalid`, `not_found`, or `conflict` when it was lifted already, and what a commit raises.
        """
        try:
            wish = TakeBack.model_validate(write.body)
        except ValidationError as error:
            raise Permanent("invalid", problems_of(error)) from error
        async with self._alone[origin.project]:
            for _ in range(_ATTEMPTS - 1):
                try:
                    return await self._do(origin, write.id, wish)
                except Conflict:
                    continue
            return await self._do(origin, write.id, wish)

    async def follow(self, origin: Origin, applied: Prepared) -> None:
        """Take out what a commit wrote that rests on what was taken back, for it was under way before."""
        changes = [
            _Change(row.store, row.id, row.expect + 1)
            for row in applied.writes
            if row.body is not None and self._learned(row.store)
        ]
        cause = self.carried(applied.project, applied.provenance.refs)
        if not changes or cause is None:
            return
        wish = TakeBack(**cause.model_dump(), kind="quarantine", reason="was under way when that was taken back")
        try:
            await self._commit(origin, derived_id(applied.commit_id, "late"), wish, changes, (), ())
        except Conflict:
            log.warning("takeback.overtaken", project=applied.project, commit_id=applied.commit_id)

    async def _do(self, origin: Origin, wish_id: str, wish: TakeBack, *, shared: bool = False) -> CommitReply:
        """In one project; `shared` when the item is one of the shared project, and not of this one."""
        project = origin.project
        if wish.kind == "lift":
            return await self._lift(origin, wish_id, wish)
        if wish.version is None:
            home = SHARED_PROJECT if shared else project
            first = await self._influence.said_since(home, wish.store, wish.id) if wish.kind == "rollback" else 1
            wish = wish.model_copy(update={"version": first})
        roots = await self._roots(project, wish, shared=shared)
        wrong, tasks = await self._reach(project, wish, roots, shared=shared)
        # From here on nobody's commit may rest on it: what is read until it is out would be read wrongly.
        self._known(project)[wish_id] = wrong
        try:
            changes = await self._changes(project, wrong, restores=wish.kind == "rollback")
            reply = await self._commit(origin, wish_id, wish, changes, tasks, (), shared=shared)
        except BaseException:
            del self._known(project)[wish_id]
            raise
        await self._stragglers(origin, wish_id, wish, roots, shared=shared)
        if project == SHARED_PROJECT:
            await self._elsewhere(origin, wish_id, wish)
        return reply

    async def _elsewhere(self, origin: Origin, wish_id: str, wish: TakeBack) -> None:
        """Take back what other projects have learned of a shared item."""
        for project in await self._projects():
            if project == SHARED_PROJECT:
                continue
            roots = await self._roots(SHARED_PROJECT, wish)
            radius = await self._influence.of(project, roots, shared=True, limit=1)
            if radius.touched:
                message_id = derived_id(origin.message_id, "take back", project)
                there = origin.model_copy(update={"project": project, "message_id": message_id})
                await self._do(there, wish_id, wish, shared=True)

    async def _projects(self) -> list[str]:
        async with self._database.connection() as connection:
            return [row["project"] for row in await connection.fetch("SELECT project FROM projects")]

    async def _stragglers(
        self, origin: Origin, wish_id: str, wish: TakeBack, roots: frozenset[Version], *, shared: bool
    ) -> None:
        """Take back what was committed while it was looked for."""
        if not await self._influence.link(origin.project):
            return
        wrong, tasks = await self._reach(origin.project, wish, roots, shared=shared)
        if wrong <= self._known(origin.project)[wish_id]:
            return
        self._known(origin.project)[wish_id] |= wrong
        changes = await self._changes(origin.project, wrong, restores=wish.kind == "rollback")
        if changes:
            late = derived_id(wish_id, "late")
            await self._commit(origin, late, wish, changes, tasks, (), shared=shared)

    async def _roots(
        self, project: str, wish: TakeBack, *, shared: bool = False, before: int | None = None
    ) -> frozenset[Version]:
        """The versions that are wrong by themselves. Raises `Permanent` `not_found` when there are none."""
        home = SHARED_PROJECT if shared else project
        roots = await self._influence.roots(home, wish.store, wish.id, wish.version or 1, before)
        if not roots or not self._learned(wish.store):
            problem = f"{wish.store}/{wish.id} from version {wish.version or 1} on is nothing that can be taken back"
            raise Permanent("not_found", (Problem(field="item", problem=problem),))
        return roots

    async def _reach(
        self,
        project: str,
        wish: TakeBack,
        roots: frozenset[Version],
        *,
        shared: bool = False,
        before: int | None = None,
    ) -> tuple[frozenset[Version], tuple[str, ...]]:
        """Every version of the project that is wrong, as far as it came `before` a place, and the tasks among them."""
        radius = await self._influence.of(project, roots, shared=shared, limit=_LIMIT)
        touched = [
            each
            for each in radius.touched
            if (each.cited or not wish.cited_only) and (before is None or each.seq < before)
        ]
        tasks = sorted({each.id for each in touched if each.store == "tasks"})
        wrong = frozenset((each.store, each.id, each.version) for each in touched)
        return wrong if shared else roots | wrong, tuple(tasks)

    async def _changes(self, project: str, wrong: frozenset[Version], *, restores: bool) -> list[_Change]:
        """What is to become of the records that stand at a version which is wrong, or that were taken out for it."""
        keys = sorted({(store, record) for store, record, _ in wrong if self._learned(store)})
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
                    changes.append(_Change(*key, version, put_back))
            elif put_back is not None and (*key, version - 1) in wrong:
                changes.append(_Change(*key, version, put_back))
        return changes

    async def _lift(self, origin: Origin, wish_id: str, wish: TakeBack) -> CommitReply:
        project = origin.project
        async with self._database.snapshot(project) as connection:
            row = await connection.fetchrow(_WISH, project, wish.id)
            taken = await connection.fetch(_TAKEN_BY, project, wish.id)
        known = TakenBack.model_validate(row["body"]) if row else None
        if row is None or known is None or known.kind != "quarantine":
            problem = Problem(field="item", problem=f"{wish.id} is no quarantine of this project")
            raise Permanent("not_found", (problem,))
        if known.lifted:
            raise Permanent("conflict", (Problem(field="item", problem=f"{wish.id} was lifted already"),))
        changes = [_Change(each["store"], each["id"], each["version"], each["version"] - 1) for each in taken]
        body = known.model_copy(update={"lifted": True}).model_dump(mode="json")
        lifted = Write(store=STORE, id=wish.id, body=body, expect=row["version"])
        reply = await self._commit(origin, wish_id, wish, changes, (), (lifted,))
        self._known(project).pop(wish.id, None)
        return reply

    async def _commit(
        self,
        origin: Origin,
        wish_id: str,
        wish: TakeBack,
        changes: Sequence[_Change],
        tasks: Sequence[str],
        writes: tuple[Write, ...],
        *,
        shared: bool = False,
    ) -> CommitReply:
        """One commit of memory's own, on behalf of who wished it: all of it, or nothing."""
        now = datetime.now(UTC)
        restored = await self._restored(origin.project, changes)
        outs = [each for each in changes if each.before is None]
        done = TakenBack(
            **wish.model_dump(include=set(TakeBack.model_fields)),
            by=origin.principal or "memory",
            at=now,
            out=Counter(each.store for each in outs),
            restored=Counter(row.store for row in restored),
            tasks=tuple(tasks[:_TASKS_NAMED]),
            tasks_count=len(tasks),
            shared=shared,
        )
        record = Write(store=STORE, id=wish_id, body=done.model_dump(mode="json", exclude_none=True))
        deleted = (Write(store=each.store, id=each.id, body=None, expect=each.present) for each in outs)
        read = {Ref(store=each.store, id=each.id, version=each.before): None for each in changes if each.before}
        prepared = prepare(
            self._policy,
            diode.taking_back(self._policy, origin.project, origin.message_id, now),
            origin,
            Commit(step=f"take back {wish_id}", writes=(record, *writes, *deleted)),
            now=now,
            caused_by=Provenance(),
            memories=Memories(Provenance(refs=frozenset(read)), read),
            task_version=None,
            restored=restored,
        )
        prepared, _ = await self._vectors.beside(prepared)
        reply = await self._committer.apply(prepared)
        log.warning("takeback.done", project=origin.project, kind=wish.kind, out=len(outs), restored=len(restored))
        return reply

    async def _restored(self, project: str, changes: Sequence[_Change]) -> tuple[WriteRow, ...]:
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

    def _learned(self, store: str) -> bool:
        return store in self._policy.stores and self._policy.stores[store].learned

    def _known(self, project: str) -> dict[str, frozenset[Version]]:
        return self._wrong.setdefault(project, {})
