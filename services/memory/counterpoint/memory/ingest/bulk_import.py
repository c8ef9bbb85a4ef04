"""Bulk import of records: past incidents and lessons as attempts, and rows of the provider index.

The id of a record is derived from its subject alone, so that an identical import changes nothing and a different
one replaces the record. A refused record does not stop the others.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from weakref import WeakValueDictionary

import structlog

from counterpoint.client import retry_on_conflict
from counterpoint.guard.policy import Policy
from counterpoint.memory.access.releases import Releases
from counterpoint.memory.access.screening import Screen
from counterpoint.memory.commit.committer import Committer
from counterpoint.memory.commit.pipeline import EmbeddingPipeline
from counterpoint.memory.ingest.documents import STEP_WRITES, own_plan
from counterpoint.memory.ingest.lesson_attempts import imported_attempts
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import canonical
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.errors import Permanent
from counterpoint.proto.ids import derived_id
from counterpoint.proto.incidents import PastIncident
from counterpoint.proto.ingest import RecordResult
from counterpoint.proto.lessons import PastLesson
from counterpoint.proto.memory import Origin, Write
from counterpoint.proto.principals import Principal
from counterpoint.proto.providers import Provider
from counterpoint.proto.signature import signature

log = structlog.get_logger()

ATTEMPTS, PROVIDERS = "attempts", "providers"
_WRITTEN_FIELDS = ("by", "source", "systems", "job", "summary", "by_kind", "origin")
"""Further fields of a past incident that people write, screened like the store's own texts."""
_RETRIES = 3

_SQL = load_statements(__package__)


@dataclass(frozen=True, slots=True)
class _PlannedRecord:
    """A planned record, or the reason why it is refused."""

    id: str
    body: dict[str, Any]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class _Batch:
    """Records of one store and integrity. `originals`: by id, the record that one would repeat; such a batch replaces
    nothing."""

    store: str
    integrity: int
    bodies: Sequence[tuple[str, dict[str, Any]]]
    fields: Sequence[str]
    originals: Mapping[str, str] | None = None


class BulkImport:
    """Imports records, one request at a time for each store of a project."""

    def __init__(
        self, database: Database, policy: Policy, vectors: EmbeddingPipeline, committer: Committer, releases: Releases
    ) -> None:
        self._database = database
        self._policy = policy
        self._vectors = vectors
        self._committer = committer
        self._releases = releases
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def incidents(
        self, origin: Origin, integrity: int, incidents: Sequence[PastIncident]
    ) -> tuple[RecordResult, ...]:
        """Import past incidents as reported attempts; return the result of each. Raises `Conflict` and `Transient`."""
        attempts = [(incident_id(one), attempt_of(one, origin.project)) for one in incidents]
        bodies = [(known, attempt.model_dump(mode="json", exclude_none=True)) for known, attempt in attempts]
        fields = (*self._policy.stores[ATTEMPTS].text, *_WRITTEN_FIELDS)
        return await self._write(origin, _Batch(ATTEMPTS, integrity, bodies, fields))

    async def lessons(
        self, origin: Origin, integrity: int, importer: Principal, lessons: Sequence[PastLesson]
    ) -> tuple[RecordResult, ...]:
        """Import the attempts of lessons under the importer's name; return the result of each, in order.

        Nothing is replaced: an attempt that is known with other content is refused. Raises `Conflict` and `Transient`.
        """
        planned = [one for lesson in lessons for one in imported_attempts(lesson, origin.project, importer, integrity)]
        fields = (*self._policy.stores[ATTEMPTS].text, *_WRITTEN_FIELDS)
        results: dict[str, RecordResult] = {}
        for level in sorted({one.integrity for one in planned}):
            part = [one for one in planned if one.integrity == level]
            bodies = [(one.attempt.attempt_id, one.attempt.model_dump(mode="json", exclude_none=True)) for one in part]
            originals = {one.attempt.attempt_id: one.original_id for one in part}
            recorded = await self._write(origin, _Batch(ATTEMPTS, level, bodies, fields, originals))
            results |= {one.attempt.attempt_id: result for one, result in zip(part, recorded, strict=True)}
        return tuple(results[one.attempt.attempt_id] for one in planned)

    async def providers(
        self, origin: Origin, integrity: int, providers: Sequence[Provider]
    ) -> tuple[RecordResult, ...]:
        """Import provider rows, one per package and project; return the result of each. Raises `Conflict` and
        `Transient`."""
        bodies = [(one.package, one.model_dump(mode="json", exclude_none=True)) for one in providers]
        return await self._write(origin, _Batch(PROVIDERS, integrity, bodies, self._policy.stores[PROVIDERS].text))

    async def _write(self, origin: Origin, batch: _Batch) -> tuple[RecordResult, ...]:
        if not batch.bodies:
            return ()
        lock = self._locks.setdefault((origin.project, batch.store), asyncio.Lock())
        async with lock:
            return await retry_on_conflict(partial(self._write_once, origin, batch), _RETRIES)

    async def _write_once(self, origin: Origin, batch: _Batch) -> tuple[RecordResult, ...]:
        store, originals = batch.store, batch.originals
        screen = await self._releases.of(origin.project)
        label = self._policy.store_level(store)
        planned = await asyncio.to_thread(
            lambda: _without_repeats(
                [_screened(self._policy, screen, *one, batch.fields, label) for one in batch.bodies]
            )
        )
        ids = [one.id for one in planned]
        known = await self._stored(origin.project, store, [*ids, *(originals or {}).values()])
        results: list[RecordResult] = []
        writes: dict[str, Write] = {}
        for one in planned:
            version, body = known.get(one.id, (0, None))
            status: Literal["added", "replaced", "unchanged", "refused"]
            original = known.get((originals or {}).get(one.id, ""), (0, None))[1]
            if originals is not None and body is not None:
                one = _kept(one, body)
            if one.problem is not None:
                status = "refused"
            elif one.id in writes or body == one.body or _repeats(original, one.body):
                status = "unchanged"
            else:
                status = "added" if body is None else "replaced"
                writes[one.id] = Write(store=store, id=one.id, body=one.body, expect=version)
            results.append(RecordResult(id=one.id, status=status, problem=one.problem))
        ordered = list(writes.values())
        for start in range(0, len(ordered), STEP_WRITES):
            await self._step(origin, batch.integrity, ordered[start : start + STEP_WRITES], screen)
        log.info("records.imported", store=store, given=len(batch.bodies), written=len(ordered))
        return tuple(results)

    async def _stored(
        self, project: str, store: str, planned: Sequence[str]
    ) -> dict[str, tuple[int, dict[str, Any] | None]]:
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(_SQL["records_by_id"], project, store, list(set(planned)))
        return {row["id"]: (row["version"], row["body"]) for row in rows}

    async def _step(self, origin: Origin, integrity: int, writes: Sequence[Write], screen: Screen) -> None:
        """Apply some writes. The step is identified by their content and versions, so that a repeated one is applied
        once."""
        content = "\n".join(f"{write.id} {write.expect} {canonical(write.body or {})}" for write in writes)
        digest = hashlib.sha256(content.encode()).hexdigest()
        origin = origin.model_copy(update={"message_id": derived_id(origin.message_id, writes[0].store, digest)})
        plan = await asyncio.to_thread(own_plan, self._policy, origin, integrity, writes, screen)
        await self._vectors.applied(self._committer, plan)


def incident_id(incident: PastIncident) -> str:
    """Return the id of the attempt of an incident: its own id within its source, else by its failure, time and
    remedy."""
    identity = (incident.error_message or "", incident.description or "", incident.tried, incident.when.isoformat())
    parts = ("content", *identity) if incident.id is None else ("id", incident.id)
    digest = hashlib.sha256("\x1f".join((incident.source, *parts)).encode(errors="replace")).hexdigest()
    return f"past-{digest[:32]}"


def attempt_of(incident: PastIncident, project: str) -> Attempt:
    """Return a past incident as an attempt that was reported, and decided at its own time."""
    known = incident_id(incident)
    error = incident.error_message
    return Attempt(
        attempt_id=known,
        task_id=known,
        project=project,
        attempt=1,
        title=incident.title,
        description=incident.description or next(line for line in (error or "").splitlines() if line.strip()),
        error_message=error,
        error_signature=signature(error).digest if error else None,
        systems=incident.systems,
        job=incident.job,
        tried=incident.tried,
        outcome=incident.outcome,
        note=incident.note,
        evidence="reported",
        by=incident.by,
        at=incident.when,
        decided_at=incident.when,
        source=incident.source,
    )


def _screened(
    policy: Policy, screen: Screen, record_id: str, body: dict[str, Any], fields: Sequence[str], label: int
) -> _PlannedRecord:
    try:
        judged = screen.judge(policy, body, fields, label)
    except Permanent as error:
        return _PlannedRecord(
            record_id, body, "; ".join(f"{p.field} {p.problem}" for p in error.problems) or error.code
        )
    if screen.name(record_id) != record_id:
        return _PlannedRecord(screen.name(record_id), body, "its id contains what looks like a secret")
    if judged.refused:
        return _PlannedRecord(
            record_id, body, "; ".join(f"{p.field} {p.problem}" for p in screen.problems(body, judged))
        )
    _, changed = screen.names(judged.body, fields)
    if changed:
        named = ", ".join(sorted({".".join(map(screen.name, path)) for path in changed}))
        return _PlannedRecord(record_id, body, f"{named} contains what looks like a secret")
    return _PlannedRecord(record_id, judged.body)


def _kept(one: _PlannedRecord, stored: dict[str, Any]) -> _PlannedRecord:
    """Return the stored record in place of one that repeats it, whoever imports it, and refuse one that differs."""
    if one.problem is None and _without_importer(stored) != _without_importer(one.body):
        return _PlannedRecord(one.id, one.body, "differs from the recorded attempt, which an import never replaces")
    return one if one.problem is not None else _PlannedRecord(one.id, stored)


def _repeats(original: dict[str, Any] | None, body: dict[str, Any]) -> bool:
    """Whether a record states what the record that its page was written from, in its own project, does."""
    return original is not None and original.get("task_id") == body["origin"]["lesson_id"]


def _without_importer(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in ("by", "by_kind")}


def _without_repeats(planned: Sequence[_PlannedRecord]) -> list[_PlannedRecord]:
    """Refuse the records that contradict an earlier one with the same id."""
    first: dict[str, dict[str, Any]] = {}
    checked = []
    for one in planned:
        if one.problem is None and first.setdefault(one.id, one.body) != one.body:
            one = _PlannedRecord(one.id, one.body, "contradicts an earlier row about the same attempt")
        checked.append(one)
    return checked
