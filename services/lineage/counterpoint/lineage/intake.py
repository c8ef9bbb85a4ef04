"""Intake: one OpenLineage event becomes one commit, whichever door it came through (rows F1, F2, F5)."""

import hashlib
from collections.abc import Iterable

from counterpoint.lineage.endings import completed, failed, with_edges
from counterpoint.lineage.events import Event, EventType, RunEvent
from counterpoint.lineage.graph import changes, facts
from counterpoint.lineage.incidents import Limits
from counterpoint.lineage.records import SHAPES, Key, Run
from counterpoint.proto.memory import Commit, Get, Item, Write
from counterpoint.recall import Memory, put, record

_BATCH = 200
"""Records that are read or written at a time."""

_ORDER = {"edges": 0, "datasets": 1, "runs": 2, "jobs": 3}
"""What is written last is what other events of the same job must not have changed meanwhile."""


async def take(event: Event, memory: Memory, limits: Limits, *, waited: bool = False) -> Commit:
    """The commit of an event; of a very large one, what does not fit is applied in steps before it.

    Raises `Conflict`, `Denied` or `Transient`.
    """
    seen = await _read(memory, facts(event))
    known = {key: record(item, SHAPES[key[0]]) for key, item in seen.items()}
    changed = changes(event, known)
    records = known | changed
    written = set(changed)
    match event:
        case RunEvent(type=EventType.FAIL):
            effects, incident_id = await failed(event, memory, limits, records, waited=waited)
            key: Key = ("runs", event.run_id)
            run = records[key]
            if isinstance(run, Run) and incident_id is not None and run.incident != incident_id:
                records[key] = run.model_copy(update={"incident": incident_id})
                written.add(key)
        case RunEvent(type=EventType.COMPLETE):
            effects = await completed(event, memory, limits, records)
        case _:
            effects = Commit()
    ends = isinstance(event, RunEvent) and event.type in (EventType.FAIL, EventType.COMPLETE)
    if isinstance(event, RunEvent) and ends and (written or effects.writes):
        written.add(("jobs", event.job.node.id))  # so that a success and a failure at once decide one after the other
    effects = await with_edges([key[1] for key in written if key[0] == "edges"], records, memory, effects)
    keys = sorted(written, key=lambda key: (_ORDER[key[0]], key[1]))
    writes = [put(*key, records[key], seen=seen.get(key)) for key in keys]
    while len(writes) > _BATCH:
        await memory.step(Commit(step=_name(writes[:_BATCH]), last=False, writes=tuple(writes[:_BATCH])))
        writes = writes[_BATCH:]
    return effects.model_copy(update={"writes": (*writes, *effects.writes)})


async def _read(memory: Memory, keys: Iterable[Key]) -> dict[Key, Item]:
    wanted = sorted(keys)
    seen: dict[Key, Item] = {}
    for at in range(0, len(wanted), _BATCH):
        batch = wanted[at : at + _BATCH]
        found = await memory.query(*(Get(store=store, id=record_id) for store, record_id in batch))
        seen |= {key: answer.items[0] for key, answer in zip(batch, found, strict=True) if answer.items}
    return seen


def _name(writes: Iterable[Write]) -> str:
    """A step is known by what it writes: a handler that starts anew has other records left to write."""
    ids = "\x1f".join(f"{write.store}/{write.id}@{write.expect}" for write in writes)
    return f"graph {hashlib.sha256(ids.encode()).hexdigest()[:16]}"
