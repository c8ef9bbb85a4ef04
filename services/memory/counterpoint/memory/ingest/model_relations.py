"""Relations stated by documents, extracted by a model through the manager's gateway.

It follows the record like the extraction of mentions. The key of a call is derived from the document and the
passage, so a repeated call is paid for once. A relation is derived from both and is taken back with them; its
integrity is at most that of an agent.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import structlog
from prometheus_client import Counter as Metric

from counterpoint.client.gateway import RELATIONS_JOB, Gateway
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.access.tokens import JobHolder, Tokens
from counterpoint.memory.commit.committer import Committer, TombstoneConflict
from counterpoint.memory.commit.planner import plan_commit
from counterpoint.memory.ingest.entities import RELATIONSHIPS, STANDS
from counterpoint.memory.ingest.follower import Follower
from counterpoint.memory.ingest.relations import (
    ValidatedRelations,
    checked,
    key,
    question,
    relationship,
    relationship_id,
)
from counterpoint.memory.provenance.read_sets import ReadSet
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.stamps import DERIVED, Provenance
from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Transient
from counterpoint.proto.ids import derived_id
from counterpoint.proto.memory import Commit, Origin, Ref, Write

log = structlog.get_logger()

RELATIONS = Metric(
    "counterpoint_relations_total", "Relations extracted by a model from documents, by outcome",
    ["project", "outcome"],
)  # fmt: skip
PASSAGES = 500
"""Passages of a document that are read, from its beginning."""
PARALLEL = 4
_SHORT_CHARS = 20
_MAX_TOKENS = 1024
_DEADLINE_S = 60.0
_PASSED_OVER = frozenset({ErrorCode.UNKNOWN_OUTCOME, ErrorCode.NOT_KEPT, ErrorCode.KEY_REUSED, ErrorCode.INVALID})
"""Codes of a call that comes to nothing, however often it is made; so does one whose prompt is refused."""

_NEXT = """
SELECT store, id, version, greatest(seq, changed) AS place, label, integrity, body FROM records
WHERE project = $1 AND store = 'documents'
    AND (seq > coalesce((SELECT related FROM extracted WHERE project = $1), 0)
        OR changed > coalesce((SELECT related FROM extracted WHERE project = $1), 0))
ORDER BY place LIMIT $2
"""
_MARK = """
INSERT INTO extracted AS known (project, related) VALUES ($1, $2)
ON CONFLICT (project) DO UPDATE SET related = greatest(known.related, excluded.related)
"""
_PASSAGES = """
SELECT id, version, label, integrity, body ->> 'text' AS text FROM records
WHERE project = $1 AND store = 'chunks' AND id BETWEEN $2 || '-0' AND $2 || '-9999999999' AND body IS NOT NULL
ORDER BY id LIMIT $3
"""
_THERE = """
SELECT id, version, body IS NOT NULL AS there FROM records
WHERE project = $1 AND store = 'relationships' AND id = ANY ($2)
"""


class ModelRelations(Follower):
    """Follows documents. `alone` is held while something is written."""

    name = "relations"
    stores = frozenset({"documents"})
    next_sql = _NEXT
    mark_sql = _MARK
    at_once = 1
    again_s = 30.0

    def __init__(
        self,
        database: Database,
        policy: Policy,
        committer: Committer,
        alone: Callable[[str], asyncio.Lock],
        gateway: Gateway,
        tokens: Tokens,
    ) -> None:
        super().__init__(database)
        self._policy = policy
        self._committer = committer
        self._alone = alone
        self._gateway = gateway
        self._tokens = tokens

    async def _look(self, project: str, row: Any) -> None:
        if row["body"] is None:
            return
        async with self._database.reading(project) as connection:
            passages = await connection.fetch(_PASSAGES, project, row["id"], PASSAGES)
        passages = [each for each in passages if len(each["text"].strip()) >= _SHORT_CHARS]
        holder = self._tokens.of_job(project, RELATIONS_JOB, max([row["label"], *(each["label"] for each in passages)]))
        found: list[tuple[Any, ValidatedRelations]] = []
        for start in range(0, len(passages), PARALLEL):
            part = passages[start : start + PARALLEL]
            answers = await asyncio.gather(*(self._asked(holder, row["id"], each["text"]) for each in part))
            found += zip(part, answers, strict=True)
        async with self._alone(project):
            await self._keep(project, row, found)
        outcomes = Counter({"kept": sum(len(each.kept) for _, each in found)})
        for _, each in found:
            outcomes.update(each.dropped)
        for outcome, count in outcomes.items():
            RELATIONS.labels(project, outcome).inc(count)
        log.info("document.related", document_id=row["id"], passages=len(passages), **outcomes)

    async def _asked(self, holder: JobHolder, document_id: str, passage: str) -> ValidatedRelations:
        """Return the accepted relations of a model's answer. Raises `Transient` for a retry, and `Denied` `label`."""
        model = self._gateway.model or ""
        try:
            said = await self._gateway.generate(
                holder,
                question(passage),
                key=key(holder.project, document_id, model, passage),
                deadline_s=_DEADLINE_S,
                max_tokens=_MAX_TOKENS,
                as_json=True,
            )
        except Permanent as nothing:
            is_about_it = nothing.code == ErrorCode.REFUSED and any(each.field == "prompt" for each in nothing.problems)
            if nothing.code in _PASSED_OVER or is_about_it:
                return ValidatedRelations((), {nothing.code: 1})
            raise Transient(str(nothing)) from nothing
        except Denied as denied:
            if denied.rule == ErrorCode.LABEL:
                raise
            raise Transient(str(denied)) from denied
        return checked(said.text, passage)

    async def _keep(self, project: str, row: Any, found: list[tuple[Any, ValidatedRelations]]) -> None:
        """Write the relations of each passage, unless the document has changed: then it is looked at there."""
        async with self._database.reading(project) as connection:
            if not await connection.fetchval(STANDS, project, row["store"], row["id"], row["version"]):
                return
        for chunk, each in found:
            bodies = {
                relationship_id(row["id"], row["version"], chunk["id"], stated): relationship(
                    stated, row["body"], row["version"], chunk["id"], self._gateway.model or ""
                )
                for stated in each.kept
            }
            async with self._database.reading(project) as connection:
                known = {each["id"]: each for each in await connection.fetch(_THERE, project, list(bodies))}
            writes = tuple(
                Write(store=RELATIONSHIPS, id=name, body=body, expect=known[name]["version"] if name in known else 0)
                for name, body in bodies.items()
                if name not in known or not known[name]["there"]
            )
            try:
                if writes:
                    await self._commit(project, row, chunk, writes)
            except Permanent as refused:
                log.warning("relations.refused", project=project, chunk_id=chunk["id"], reason=str(refused))

    async def _commit(self, project: str, row: Any, chunk: Any, writes: tuple[Write, ...]) -> None:
        digest = hashlib.sha256("".join(f"{each.id}@{each.expect}" for each in writes).encode()).hexdigest()
        origin = Origin(message_id=derived_id(project, chunk["id"], "relations", digest), project=project)
        now = datetime.now(UTC)
        rests_on = frozenset(
            {
                Ref(store="documents", id=row["id"], version=row["version"]),
                Ref(store="chunks", id=chunk["id"], version=chunk["version"]),
            }
        )
        resting = Provenance(
            max(row["label"], chunk["label"]), min(row["integrity"], chunk["integrity"], DERIVED), rests_on
        )
        plan = plan_commit(
            self._policy,
            diode.own(self._policy, project, origin.message_id, now),
            origin,
            Commit(step="relations", writes=writes),
            now=now,
            caused_by=Provenance(),
            memories=ReadSet(resting, dict.fromkeys(rests_on), named=rests_on),
            task_version=None,
        )
        try:
            await self._committer.apply(plan)
        except TombstoneConflict as error:
            raise Transient(f"{error.store}/{error.record_id} was deleted meanwhile") from error
