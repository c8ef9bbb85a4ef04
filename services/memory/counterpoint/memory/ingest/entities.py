"""Knowledge graph: entities mentioned by documents and tasks, and their relationships, as records.

It follows the record. A relationship is derived from the record that mentions the entity, and is taken back with it; an
entity is only a name. Relations that a model extracted from a superseded version are deleted with it.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.commit.committer import Committer, TombstoneConflict
from counterpoint.memory.commit.pipeline import EmbeddingPipeline
from counterpoint.memory.commit.planner import plan_commit
from counterpoint.memory.ingest.follower import Follower
from counterpoint.memory.ingest.mentions import Mention, mentions
from counterpoint.memory.ingest.relations import stated_in
from counterpoint.memory.provenance.read_sets import ReadSet
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.memory.record.stamps import Provenance
from counterpoint.proto.errors import Transient
from counterpoint.proto.ids import derived_id
from counterpoint.proto.memory import Commit, Origin, Ref, Write

ENTITIES, RELATIONSHIPS = "entities", "relationships"
_WRITES = 200

_SQL = load_statements(__package__)
_TASK_TEXTS = ("title", "description", "error_message", "result", "proposal")


class KnowledgeGraph(Follower):
    """Follows documents and ended tasks."""

    name = "knowledge"
    stores = frozenset({"documents", "tasks"})
    reached = "upto"

    def __init__(
        self,
        database: Database,
        policy: Policy,
        committer: Committer,
        vectors: EmbeddingPipeline,
        lock_of: Callable[[str], asyncio.Lock],
    ) -> None:
        super().__init__(database)
        self._policy = policy
        self._committer = committer
        self._vectors = vectors
        self._lock_of = lock_of

    async def _process(self, project: str, row: Any) -> None:
        async with self._lock_of(project):
            await self._mentioned(project, row)

    async def _mentioned(self, project: str, row: Any) -> None:
        async with self._database.reading(project) as connection:
            if not await connection.fetchval(
                _SQL["is_current_version"], project, row["store"], row["id"], row["version"]
            ):
                return  # A later version has a later position, and is processed there.
        text = await self._text(project, row)
        found = await asyncio.to_thread(mentions, text)
        subject = f"{row['store']}/{row['id']}"
        named = [(entity_id(each), relationship_id(subject, entity_id(each)), each) for each in found]
        async with self._database.reading(project) as connection:
            known = await connection.fetch(
                _SQL["mentions_and_entities"],
                project,
                subject,
                [entity for entity, _, _ in named],
                [relation for _, relation, _ in named],
                stated_in(row["id"]) if row["store"] == "documents" else "",
                row["version"] if row["body"] is not None else 0,
            )
        present = {(each["store"], each["id"]): each for each in known}
        entities = [
            Write(store=ENTITIES, id=entity, body=_entity(each), expect=_version(present, ENTITIES, entity))
            for entity, _, each in named
            if not _exists(present, ENTITIES, entity)
        ]
        bodies = {relation: _relationship(subject, entity, each) for entity, relation, each in named}
        relations = [
            Write(store=RELATIONSHIPS, id=relation, body=body, expect=_version(present, RELATIONSHIPS, relation))
            for relation, body in bodies.items()
            if not _exists(present, RELATIONSHIPS, relation) or present[RELATIONSHIPS, relation]["body"] != body
        ]
        relations += [
            Write(store=RELATIONSHIPS, id=each["id"], body=None, expect=each["version"])
            for each in known
            if each["store"] == RELATIONSHIPS and each["there"] and each["id"] not in bodies
        ]
        ref = Ref(store=row["store"], id=row["id"], version=row["version"])
        read_set = ReadSet(
            Provenance(row["label"], row["integrity"], frozenset({ref})), {ref: None}, named=frozenset({ref})
        )
        await self._commit(project, f"{subject}@{row['version']} entities", entities, ReadSet())
        await self._commit(project, f"{subject}@{row['version']} relationships", relations, read_set)

    async def _text(self, project: str, row: Any) -> str:
        body = row["body"]
        if body is None:
            return ""
        if row["store"] == "tasks":
            return "\n".join(str(body[name]) for name in _TASK_TEXTS if body.get(name))
        async with self._database.reading(project) as connection:
            chunks = await connection.fetch(_SQL["chunk_texts"], project, row["id"])
        return "\n".join(chunk["text"] for chunk in chunks)

    async def _commit(self, project: str, what: str, writes: Sequence[Write], memories: ReadSet) -> None:
        for start in range(0, len(writes), _WRITES):
            part = tuple(writes[start : start + _WRITES])
            digest = hashlib.sha256("".join(f"{each.id}@{each.expect}" for each in part).encode()).hexdigest()
            origin = Origin(message_id=derived_id(project, what, digest), project=project)
            now = datetime.now(UTC)
            plan = plan_commit(
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
                await self._vectors.applied(self._committer, plan)
            except TombstoneConflict as error:
                raise Transient(f"{error.store}/{error.record_id} was deleted meanwhile") from error


def entity_id(mention: Mention) -> str:
    """Return the id of an entity: its kind and the hash of its name in lower case."""
    return f"{mention.kind}-{hashlib.sha256(mention.name.lower().encode()).hexdigest()[:24]}"


def relationship_id(source: str, target: str) -> str:
    """Return the id of the relationship between two records."""
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


def _exists(present: dict[tuple[str, str], Any], store: str, record_id: str) -> bool:
    row = present.get((store, record_id))
    return row is not None and row["there"]


def _version(present: dict[tuple[str, str], Any], store: str, record_id: str) -> int:
    row = present.get((store, record_id))
    return row["version"] if row is not None else 0
