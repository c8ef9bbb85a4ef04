"""The commit of one OpenLineage event, received by NATS or HTTP (docs/incidents.md)."""

import asyncio
import hashlib
from collections.abc import Iterable, Mapping
from datetime import timedelta

from counterpoint.client import Memory, put, record
from counterpoint.graph.radius import FLOW_KINDS
from counterpoint.graph.walks import LineageGraph
from counterpoint.lineage.graph_records import changed_records, edges_of, records_of_event
from counterpoint.lineage.incidents.context import STORE, context_queries
from counterpoint.lineage.incidents.failures import failure_report
from counterpoint.lineage.incidents.incident import LEDGER_ID, IncidentLimits
from counterpoint.lineage.incidents.run_completion import commit_for_completion, commit_for_failure, with_new_edges
from counterpoint.lineage.openlineage.events import EventType, OpenLineageEvent, RunEvent
from counterpoint.lineage.query_batcher import QueryBatcher
from counterpoint.lineage.records import SHAPES, GraphRecord, RecordKey, RunRecord
from counterpoint.proto.memory import Commit, Get, Item, MemoryQuery, Write

_BATCH = 200
"""Records read or written in one request."""
_CLOCK_TOLERANCE = timedelta(minutes=5)
"""Longest time that the clock of a producer may be ahead; the time of an event is at most that after its receipt."""

_ORDER = {"edges": 0, "datasets": 1, "runs": 2, "jobs": 3}
"""Order of writes: records that other events of the same job change at once come last."""


async def commit_for_event(event: OpenLineageEvent, memory: Memory, limits: IncidentLimits, *, waited: bool) -> Commit:
    """Build the commit of an event; writes of a very large one beyond `_BATCH` are applied in earlier steps.

    Raises `Conflict`, `Denied` or `Transient`.
    """
    event = event.model_copy(update={"at": min(event.at, memory.now + _CLOCK_TOLERANCE)})
    batcher, own = QueryBatcher(memory), records_of_event(event)
    existing_items, _ = await asyncio.gather(
        _read(batcher, own), batcher.query(*_prefetch_queries(event, own, batcher))
    )
    existing = {key: record(item, SHAPES[key[0]]) for key, item in existing_items.items()}
    changed = changed_records(event, existing)
    records = existing | changed
    keys_to_write = set(changed)
    match event:
        case RunEvent(type=EventType.FAIL):
            effects, incident_id = await commit_for_failure(event, batcher, limits, records, waited=waited)
            key: RecordKey = ("runs", event.run_id)
            run = records[key]
            if isinstance(run, RunRecord) and incident_id is not None and run.incident != incident_id:
                records[key] = run.model_copy(update={"incident": incident_id})
                keys_to_write.add(key)
        case RunEvent(type=EventType.COMPLETE):
            effects = await commit_for_completion(event, batcher, limits, records)
        case _:
            effects = Commit()
    ends = isinstance(event, RunEvent) and event.type in (EventType.FAIL, EventType.COMPLETE)
    if isinstance(event, RunEvent) and ends and (keys_to_write or effects.writes):
        keys_to_write.add(("jobs", event.job.node.id))  # a concurrent success and failure conflict here
    effects = await with_new_edges([key[1] for key in keys_to_write if key[0] == "edges"], records, batcher, effects)
    keys = sorted(keys_to_write, key=lambda key: (_ORDER[key[0]], key[1]))
    writes = [put(*key, records[key], existing=existing_items.get(key)) for key in keys]
    while len(writes) > _BATCH:
        await memory.step(Commit(step=_step_name(writes[:_BATCH]), last=False, writes=tuple(writes[:_BATCH])))
        writes = writes[_BATCH:]
    return effects.model_copy(update={"writes": (*writes, *effects.writes)})


def is_large(event: OpenLineageEvent) -> bool:
    """Whether an event may take several steps."""
    return len(records_of_event(event)) >= _BATCH


def _prefetch_queries(
    event: OpenLineageEvent, own: Mapping[RecordKey, GraphRecord], batcher: QueryBatcher
) -> list[MemoryQuery]:
    """Queries that an event needs in any case, sent with the first request; `own` are its records."""
    edges = edges_of(own)
    if isinstance(event, RunEvent) and event.type is EventType.FAIL:
        run = own["runs", event.run_id]
        assert isinstance(run, RunRecord)
        of_job, of_flow, walks = context_queries(
            failure_report(event, run).run, batcher.memory.project, LineageGraph(batcher, edges)
        )
        return [*of_job, *of_flow, *walks]
    return [Get(store=STORE, id=LEDGER_ID)] if any(edge.kind in FLOW_KINDS for edge in edges) else []


async def _read(batcher: QueryBatcher, keys: Iterable[RecordKey]) -> dict[RecordKey, Item]:
    ordered = sorted(keys)
    existing_items: dict[RecordKey, Item] = {}
    for at in range(0, len(ordered), _BATCH):
        batch = ordered[at : at + _BATCH]
        answers = await batcher.query(*(Get(store=store, id=record_id) for store, record_id in batch))
        existing_items |= {key: answer.items[0] for key, answer in zip(batch, answers, strict=True) if answer.items}
    return existing_items


def _step_name(writes: Iterable[Write]) -> str:
    """Name a step by its writes: a restarted handler has other records left to write."""
    ids = "\x1f".join(f"{write.store}/{write.id}@{write.expect}" for write in writes)
    return f"graph {hashlib.sha256(ids.encode()).hexdigest()[:16]}"
