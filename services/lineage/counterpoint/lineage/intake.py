"""Intake: one OpenLineage event becomes one commit, whichever door it came through (rows F1, F2, F5)."""

import asyncio
import hashlib
from collections.abc import Iterable, Mapping

from counterpoint.lineage.endings import completed, failed, with_edges
from counterpoint.lineage.events import Event, EventType, RunEvent
from counterpoint.lineage.failures import failure_of
from counterpoint.lineage.graph import changes, edges_of, facts
from counterpoint.lineage.incidents import LEDGER_ID, Limits
from counterpoint.lineage.reads import Reads
from counterpoint.lineage.records import SHAPES, Key, Record, Run
from counterpoint.lineage.standing import STORE, questions
from counterpoint.proto.memory import Commit, Get, Item, MemoryQuery, Write
from counterpoint.recall import Memory, put, record
from counterpoint.recall.radius import FLOWS
from counterpoint.recall.walks import Graph

_BATCH = 200
"""Records that are read or written at a time."""

_ORDER = {"edges": 0, "datasets": 1, "runs": 2, "jobs": 3}
"""What is written last is what other events of the same job must not have changed meanwhile."""


async def take(event: Event, memory: Memory, limits: Limits, *, waited: bool = False) -> Commit:
    """The commit of an event; of a very large one, what does not fit is applied in steps before it.

    Raises `Conflict`, `Denied` or `Transient`.
    """
    reads, own = Reads(memory), facts(event)
    seen, _ = await asyncio.gather(_read(reads, own), reads.query(*_foreseen(event, own, reads)))
    known = {key: record(item, SHAPES[key[0]]) for key, item in seen.items()}
    changed = changes(event, known)
    records = known | changed
    written = set(changed)
    match event:
        case RunEvent(type=EventType.FAIL):
            effects, incident_id = await failed(event, reads, limits, records, waited=waited)
            key: Key = ("runs", event.run_id)
            run = records[key]
            if isinstance(run, Run) and incident_id is not None and run.incident != incident_id:
                records[key] = run.model_copy(update={"incident": incident_id})
                written.add(key)
        case RunEvent(type=EventType.COMPLETE):
            effects = await completed(event, reads, limits, records)
        case _:
            effects = Commit()
    ends = isinstance(event, RunEvent) and event.type in (EventType.FAIL, EventType.COMPLETE)
    if isinstance(event, RunEvent) and ends and (written or effects.writes):
        written.add(("jobs", event.job.node.id))  # so that a success and a failure at once decide one after the other
    effects = await with_edges([key[1] for key in written if key[0] == "edges"], records, reads, effects)
    keys = sorted(written, key=lambda key: (_ORDER[key[0]], key[1]))
    writes = [put(*key, records[key], seen=seen.get(key)) for key in keys]
    while len(writes) > _BATCH:
        await memory.step(Commit(step=_name(writes[:_BATCH]), last=False, writes=tuple(writes[:_BATCH])))
        writes = writes[_BATCH:]
    return effects.model_copy(update={"writes": (*writes, *effects.writes)})


def is_large(event: Event) -> bool:
    """Whether an event may be applied in several steps."""
    return len(facts(event)) >= _BATCH


def _foreseen(event: Event, own: Mapping[Key, Record], reads: Reads) -> list[MemoryQuery]:
    """The first questions of an event's effects, as far as it tells by itself; `own` are the records that it makes."""
    edges = edges_of(own)
    if isinstance(event, RunEvent) and event.type is EventType.FAIL:
        run = own["runs", event.run_id]
        assert isinstance(run, Run)
        of_job, of_flow, walks = questions(failure_of(event, run).run, reads.memory.project, Graph(reads, edges))
        return [*of_job, *of_flow, *walks]
    return [Get(store=STORE, id=LEDGER_ID)] if any(edge.kind in FLOWS for edge in edges) else []


async def _read(reads: Reads, keys: Iterable[Key]) -> dict[Key, Item]:
    wanted = sorted(keys)
    seen: dict[Key, Item] = {}
    for at in range(0, len(wanted), _BATCH):
        batch = wanted[at : at + _BATCH]
        found = await reads.query(*(Get(store=store, id=record_id) for store, record_id in batch))
        seen |= {key: answer.items[0] for key, answer in zip(batch, found, strict=True) if answer.items}
    return seen


def _name(writes: Iterable[Write]) -> str:
    """A step is known by what it writes: a handler that starts anew has other records left to write."""
    ids = "\x1f".join(f"{write.store}/{write.id}@{write.expect}" for write in writes)
    return f"graph {hashlib.sha256(ids.encode()).hexdigest()[:16]}"
