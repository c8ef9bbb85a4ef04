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
from counterpoint.memory.ingest.entities import RELATIONSHIPS
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
from counterpoint.memory.record.sql_files import load_statements
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
"""Maximum number of passages of a document that are read, from its beginning."""
PARALLEL = 4
_SHORT_CHARS = 20
_MAX_TOKENS = 1024
_DEADLINE_S = 60.0
_SKIPPED = frozenset({ErrorCode.UNKNOWN_OUTCOME, ErrorCode.NOT_KEPT, ErrorCode.KEY_REUSED, ErrorCode.INVALID})
"""Error codes of a call that no retry would change; a refused prompt is another."""

_SQL = load_statements(__package__)


class ModelRelations(Follower):
    """Follows documents. `lock_of` returns the lock of a project that is held during writes."""

    name = "relations"
    stores = frozenset({"documents"})
    reached = "related"
    at_once = 1
    retry_s = 30.0

    def __init__(
        self,
        database: Database,
        policy: Policy,
        committer: Committer,
        lock_of: Callable[[str], asyncio.Lock],
        gateway: Gateway,
        tokens: Tokens,
    ) -> None:
        super().__init__(database)
        self._policy = policy
        self._committer = committer
        self._lock_of = lock_of
        self._gateway = gateway
        self._tokens = tokens

    async def _process(self, project: str, row: Any) -> None:
        if row["body"] is None:
            return
        async with self._database.reading(project) as connection:
            passages = await connection.fetch(_SQL["passages"], project, row["id"], PASSAGES)
        passages = [each for each in passages if len(each["text"].strip()) >= _SHORT_CHARS]
        holder = self._tokens.of_job(project, RELATIONS_JOB, max([row["label"], *(each["label"] for each in passages)]))
        found: list[tuple[Any, ValidatedRelations]] = []
        for start in range(0, len(passages), PARALLEL):
            part = passages[start : start + PARALLEL]
            answers = await asyncio.gather(*(self._extract(holder, row["id"], each["text"]) for each in part))
            found += zip(part, answers, strict=True)
        async with self._lock_of(project):
            await self._keep(project, row, found)
        outcomes = Counter({"kept": sum(len(each.accepted) for _, each in found)})
        for _, each in found:
            outcomes.update(each.dropped)
        for outcome, count in outcomes.items():
            RELATIONS.labels(project, outcome).inc(count)
        log.info("document.related", document_id=row["id"], passages=len(passages), **outcomes)

    async def _extract(self, holder: JobHolder, document_id: str, passage: str) -> ValidatedRelations:
        """Return the accepted relations of a model's answer. Raises `Transient` for a retry, and `Denied` `label`."""
        model = self._gateway.model or ""
        try:
            response = await self._gateway.generate(
                holder,
                question(passage),
                key=key(holder.project, document_id, model, passage),
                deadline_s=_DEADLINE_S,
                max_tokens=_MAX_TOKENS,
                as_json=True,
            )
        except Permanent as error:
            is_prompt_refused = error.code == ErrorCode.REFUSED and any(
                each.field == "prompt" for each in error.problems
            )
            if error.code in _SKIPPED or is_prompt_refused:
                return ValidatedRelations((), {error.code: 1})
            raise Transient(str(error)) from error
        except Denied as denied:
            if denied.rule == ErrorCode.LABEL:
                raise
            raise Transient(str(denied)) from denied
        return checked(response.text, passage)

    async def _keep(self, project: str, row: Any, found: list[tuple[Any, ValidatedRelations]]) -> None:
        """Write the relations of each passage, unless the document has changed: then the new version is processed
        later."""
        async with self._database.reading(project) as connection:
            if not await connection.fetchval(
                _SQL["is_current_version"], project, row["store"], row["id"], row["version"]
            ):
                return
        for chunk, each in found:
            bodies = {
                relationship_id(row["id"], row["version"], chunk["id"], relation): relationship(
                    relation, row["body"], row["version"], chunk["id"], self._gateway.model or ""
                )
                for relation in each.accepted
            }
            async with self._database.reading(project) as connection:
                known = {
                    each["id"]: each
                    for each in await connection.fetch(_SQL["relationship_versions"], project, list(bodies))
                }
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
        sources = frozenset(
            {
                Ref(store="documents", id=row["id"], version=row["version"]),
                Ref(store="chunks", id=chunk["id"], version=chunk["version"]),
            }
        )
        read_set = Provenance(
            max(row["label"], chunk["label"]), min(row["integrity"], chunk["integrity"], DERIVED), sources
        )
        plan = plan_commit(
            self._policy,
            diode.own(self._policy, project, origin.message_id, now),
            origin,
            Commit(step="relations", writes=writes),
            now=now,
            caused_by=Provenance(),
            memories=ReadSet(read_set, dict.fromkeys(sources), named=sources),
            task_version=None,
        )
        try:
            await self._committer.apply(plan)
        except TombstoneConflict as error:
            raise Transient(f"{error.store}/{error.record_id} was deleted meanwhile") from error
