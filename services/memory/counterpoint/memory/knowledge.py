"""The knowledge graph: what documents and tasks mention, as entities and relationships of the record (row B1).

It follows the record: how far it has come in each project is kept there, so that nothing is left out after a crash, and
what is looked at twice is written once. A relationship rests on what mentions the entity, and is taken back with it; an
entity is a name alone.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import structlog

from counterpoint.guard.policy import Policy
from counterpoint.memory import diode
from counterpoint.memory.committer import Committer, Deleted
from counterpoint.memory.database import Database
from counterpoint.memory.embeddings import Embeddings
from counterpoint.memory.mentions import Mention, mentions
from counterpoint.memory.prepare import prepare
from counterpoint.memory.provenance import Memories, Provenance
from counterpoint.memory.rows import Prepared
from counterpoint.proto.errors import Conflict, Denied, Permanent, Transient
from counterpoint.proto.ids import derived_id
from counterpoint.proto.memory import Commit, Origin, Ref, Write

log = structlog.get_logger()

ENTITIES, RELATIONSHIPS = "entities", "relationships"
FOLLOWED = frozenset({"documents", "tasks"})
_AT_ONCE = 50
_WRITES = 200
_PAUSE_S = 0.5
_AGAIN_S = 5.0

_NEXT = """
SELECT store, id, version, greatest(seq, changed) AS place, label, integrity, body FROM records
WHERE project = $1 AND store IN ('documents', 'tasks')
    AND (seq > coalesce((SELECT upto FROM extracted WHERE project = $1), 0)
        OR changed > coalesce((SELECT upto FROM extracted WHERE project = $1), 0))
    AND (store = 'documents' OR by_state IN ('completed', 'failed') OR body IS NULL)
ORDER BY place LIMIT $2
"""
_STANDS = "SELECT true FROM records WHERE project = $1 AND store = $2 AND id = $3 AND version = $4"
_MARK = """
INSERT INTO extracted AS known (project, upto) VALUES ($1, $2)
ON CONFLICT (project) DO UPDATE SET upto = greatest(known.upto, excluded.upto)
"""
_TEXT = """
SELECT body ->> 'text' AS text FROM records
WHERE project = $1 AND store = 'chunks' AND id BETWEEN $2 || '-0' AND $2 || '-9999999999' AND body IS NOT NULL
ORDER BY id
"""
_KNOWN = """
SELECT store, id, version, body IS NOT NULL AS there, body FROM records
WHERE project = $1 AND store = 'relationships' AND by_source = left($2, 200) AND body ->> 'source' = $2
UNION ALL
SELECT store, id, version, body IS NOT NULL, NULL FROM records
WHERE project = $1 AND store = 'entities' AND id = ANY ($3)
UNION ALL
SELECT store, id, version, body IS NOT NULL, NULL FROM records
WHERE project = $1 AND store = 'relationships' AND id = ANY ($4) AND body IS NULL
"""
_SAID_BY_A_TASK = ("title", "description", "error_message", "result", "proposal")


class Knowledge:
    """Looks through what was committed, in the background, when nothing else waits."""

    def __init__(
        self,
        database: Database,
        policy: Policy,
        committer: Committer,
        vectors: Embeddings,
        alone: Callable[[str], asyncio.Lock],
    ) -> None:
        self._database = database
        self._policy = policy
        self._committer = committer
        self._vectors = vectors
        self._alone = alone
        self._projects: set[str] = set()
        self._news = asyncio.Event()

    def applied(self, steps: Iterable[Prepared]) -> None:
        """Called with every commit: there may be something to look through."""
        for step in steps:
            if any(row.store in FOLLOWED for row in step.writes):
                self._projects.add(step.project)
                self._news.set()

    async def run(self) -> None:
        """For ever; first what was left over at the last end."""
        async with self._database.connection() as connection:
            self._projects |= {row["project"] for row in await connection.fetch("SELECT project FROM projects")}
        self._news.set()
        while True:
            await self._news.wait()
            self._news.clear()
            while self._projects:
                project = self._projects.pop()
                try:
                    if await self.follow(project):
                        self._projects.add(project)
                except (Transient, Conflict) as away:
                    log.warning("knowledge.waiting", reason=str(away))
                    self._projects.add(project)
                    await asyncio.sleep(_AGAIN_S)
                await asyncio.sleep(_PAUSE_S)

    async def follow(self, project: str) -> int:
        """Look through what is next in a project; how much it was. Raises `Transient` or `Conflict`."""
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_NEXT, project, _AT_ONCE)
        for row in rows:
            try:
                async with self._alone(project):
                    await self._mentioned(project, row)
            except (Permanent, Denied) as error:
                log.warning("knowledge.refused", project=project, store=row["store"], reason=str(error))
        if rows:
            async with self._database.connection() as connection:
                await connection.execute(_MARK, project, rows[-1]["place"])
        return len(rows)

    async def _mentioned(self, project: str, row: Any) -> None:
        async with self._database.reading(project) as connection:
            if not await connection.fetchval(_STANDS, project, row["store"], row["id"], row["version"]):
                return  # What came of it since has a later place, and is looked at there.
        text = await self._text(project, row)
        found = await asyncio.to_thread(mentions, text)
        subject = f"{row['store']}/{row['id']}"
        named = [(entity_id(each), relationship_id(subject, entity_id(each)), each) for each in found]
        async with self._database.reading(project) as connection:
            known = await connection.fetch(_KNOWN, project, subject, [e for e, _, _ in named], [r for _, r, _ in named])
        present = {(each["store"], each["id"]): each for each in known}
        entities = [
            Write(store=ENTITIES, id=entity, body=_entity(each), expect=_version(present, ENTITIES, entity))
            for entity, _, each in named
            if not _there(present, ENTITIES, entity)
        ]
        wanted = {relation: _relationship(subject, entity, each) for entity, relation, each in named}
        relations = [
            Write(store=RELATIONSHIPS, id=relation, body=body, expect=_version(present, RELATIONSHIPS, relation))
            for relation, body in wanted.items()
            if not _there(present, RELATIONSHIPS, relation) or present[RELATIONSHIPS, relation]["body"] != body
        ]
        relations += [
            Write(store=RELATIONSHIPS, id=each["id"], body=None, expect=each["version"])
            for each in known
            if each["store"] == RELATIONSHIPS and each["there"] and each["id"] not in wanted
        ]
        ref = Ref(store=row["store"], id=row["id"], version=row["version"])
        resting = Memories(
            Provenance(row["label"], row["integrity"], frozenset({ref})), {ref: None}, named=frozenset({ref})
        )
        await self._commit(project, f"{subject}@{row['version']} entities", entities, Memories())
        await self._commit(project, f"{subject}@{row['version']} relationships", relations, resting)

    async def _text(self, project: str, row: Any) -> str:
        body = row["body"]
        if body is None:
            return ""
        if row["store"] == "tasks":
            return "\n".join(str(body[name]) for name in _SAID_BY_A_TASK if body.get(name))
        async with self._database.reading(project) as connection:
            chunks = await connection.fetch(_TEXT, project, row["id"])
        return "\n".join(chunk["text"] for chunk in chunks)

    async def _commit(self, project: str, what: str, writes: Sequence[Write], memories: Memories) -> None:
        for start in range(0, len(writes), _WRITES):
            part = tuple(writes[start : start + _WRITES])
            digest = hashlib.sha256("".join(f"{each.id}@{each.expect}" for each in part).encode()).hexdigest()
            origin = Origin(message_id=derived_id(project, what, digest), project=project)
            now = datetime.now(UTC)
            prepared = prepare(
                self._policy,
                diode.own(self._policy, project, origin.message_id, now),
                origin,
                Commit(step="mentions", writes=part),
                now=now,
                caused_by=Provenance(),
                memories=memories,
                task_version=None,
            )
            try:
                await self._vectors.applied(self._committer, prepared)
            except Deleted as error:
                raise Transient(f"{error.store}/{error.record_id} was deleted meanwhile") from error


def entity_id(mention: Mention) -> str:
    """The id of an entity: its kind and the hash of its name, whatever the case."""
    return f"{mention.kind}-{hashlib.sha256(mention.name.lower().encode()).hexdigest()[:24]}"


def relationship_id(source: str, target: str) -> str:
    """The id of the relationship between two records."""
    return hashlib.sha256(f"{source} mentions {target}".encode()).hexdigest()[:32]


def _entity(mention: Mention) -> dict[str, Any]:
    return {"kind": mention.kind, "name": mention.name, "properties": {}}


def _relationship(source: str, entity: str, mention: Mention) -> dict[str, Any]:
    return {
        "source": source,
        "target": f"{ENTITIES}/{entity}",
        "kind": "mentions",
        "properties": {"count": mention.count, "name": mention.name, "kind": mention.kind},
    }


def _there(present: dict[tuple[str, str], Any], store: str, record_id: str) -> bool:
    row = present.get((store, record_id))
    return row is not None and row["there"]


def _version(present: dict[tuple[str, str], Any], store: str, record_id: str) -> int:
    row = present.get((store, record_id))
    return row["version"] if row is not None else 0
