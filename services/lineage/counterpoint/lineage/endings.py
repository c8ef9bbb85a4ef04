"""What the end of a run sets in motion (row F5): a failure opens, joins or waits; a success closes."""

from collections.abc import Mapping
from typing import assert_never

import structlog

from counterpoint.lineage.events import RunEvent
from counterpoint.lineage.failures import Failure, failure_of, recorded_failures
from counterpoint.lineage.graph import owners
from counterpoint.lineage.incidents import (
    LEDGER_ID,
    Capped,
    Ignore,
    Incident,
    Join,
    Ledger,
    Limits,
    Open,
    State,
    Wait,
    closed_by,
    decide,
)
from counterpoint.lineage.records import Job, Key, Record, Run
from counterpoint.lineage.submission import observed_outcome, submission
from counterpoint.lineage.waiting import once_more
from counterpoint.proto.memory import Commit, Get, Item, List, Outgoing
from counterpoint.recall import Memory, put, record, send
from counterpoint.recall import decide as said
from counterpoint.recall.edges import Edge
from counterpoint.recall.lineage import blast_radius_of
from counterpoint.recall.names import node_of

log = structlog.get_logger()

AGENT = "lineage"
STORE = "incidents"
_INCIDENTS_LIMIT, _TRIES_LIMIT = 20, 50

Records = Mapping[Key, Record]
"""The records that an event is about, as they are with it."""


async def failed(event: RunEvent, memory: Memory, limits: Limits, records: Records, *, waited: bool) -> Commit:
    """What is done about a FAIL event. Raises `Transient` or `Denied`."""
    run, job = _run(records, event), records["jobs", event.job.node.id]
    assert isinstance(job, Job)
    failure = failure_of(event, run)
    flow, like = failure.run.flow, {"job": failure.run.job, "signature": failure.run.signature}
    success = job.last_success.run_id if job.last_success else event.run_id
    of_flow, opened, capped, ledgers, parts, leaves, successes = await memory.query(
        List(store=STORE, where={"failures": [{"flow": flow}]}, limit=_INCIDENTS_LIMIT),
        List(store=STORE, where=like | {"state": State.OPEN.value}, limit=_INCIDENTS_LIMIT),
        List(store=STORE, where=like | {"state": State.CAPPED.value}, limit=_INCIDENTS_LIMIT),
        Get(store=STORE, id=LEDGER_ID),
        List(store="runs", where={"parent_run_id": flow, "state": "FAIL"}, limit=_TRIES_LIMIT),
        List(store="runs", where={"root_run_id": flow, "state": "FAIL"}, limit=_TRIES_LIMIT),
        Get(store="runs", id=success),
    )
    seen = {item.id: item for found in (of_flow, opened, capped, ledgers) for item in found.items}
    ledger = seen.pop(LEDGER_ID, None)
    tries = {item.id: record(item, Run) for found in (parts, leaves) for item in found.items}
    decision = decide(
        failure,
        [record(item, Incident) for item in seen.values()],
        record(ledger, Ledger) if ledger else Ledger(),
        limits,
        project=memory.project,
        now=memory.now,
        tries=recorded_failures(tuple(tries.values())),
        successes=[run if item.id == event.run_id else record(item, Run) for item in successes.items],
        waited=waited,
    )
    log.info("failure.decided", decision=type(decision).__name__, run_id=event.run_id, reason=decision.reason)
    match decision:
        case Open():
            task = await _submission(decision, event, failure, memory, records)
            return _kept(decision, seen, ledger, _told(memory, "opened", decision), task)
        case Join():
            return _kept(decision, seen, ledger, _told(memory, "joined", decision))
        case Capped():
            return _kept(decision, seen, ledger, _told(memory, "capped", decision))
        case Wait(until=until):
            return Commit(messages=(send(once_more(event), due_at=until),))
        case Ignore():
            return Commit()
        case _:
            assert_never(decision)


async def completed(event: RunEvent, memory: Memory, records: Records) -> Commit:
    """What is done about a COMPLETE event: incidents it closes, and the outcome it shows for their tasks.

    Raises `Transient` or `Denied`.
    """
    run = _run(records, event)
    opened, capped = await memory.query(
        *(
            List(store=STORE, where={"job": run.job, "state": state.value}, limit=_INCIDENTS_LIMIT)
            for state in (State.OPEN, State.CAPPED)
        )
    )
    seen = {item.id: item for found in (opened, capped) for item in found.items}
    known = {record_id: record(item, Incident) for record_id, item in seen.items()}
    over = closed_by(run, list(known.values()))
    asked = [incident for incident in over if known[incident.incident_id].state is State.OPEN]
    for incident in over:
        log.info("incident.closed", incident_id=incident.incident_id, run_id=run.run_id)
    return Commit(
        writes=tuple(put(STORE, i.incident_id, i, seen=seen[i.incident_id]) for i in over),
        messages=tuple(send(observed_outcome(incident)) for incident in asked),
    )


async def _submission(decision: Open, event: RunEvent, failure: Failure, memory: Memory, records: Records) -> Outgoing:
    incident = decision.incident
    radius = await blast_radius_of(
        memory,
        node_of(incident.job),
        also=[each for each in records.values() if isinstance(each, Edge)],
        owned=owners(records.values()),
    )
    job = records.get(("jobs", node_of(incident.job).id))
    own = incident.origin.id == failure.run.id and event.error is not None
    task = submission(
        incident,
        radius,
        decision.ledger,
        stack_trace=event.error.stack_trace if own and event.error else None,
        code=job.code if isinstance(job, Job) else None,
    )
    return send(task)


def _run(records: Records, event: RunEvent) -> Run:
    run = records["runs", event.run_id]
    assert isinstance(run, Run)
    return run


def _told(memory: Memory, what: str, decision: Open | Join | Capped) -> Outgoing:
    incident = decision.incident
    task_id = incident.incident_id if incident.state is State.OPEN else None
    return send(said(memory, AGENT, "incident", what, f"{incident.incident_id}: {decision.reason}", task_id=task_id))


def _kept(decision: Open | Join | Capped, seen: Mapping[str, Item], ledger: Item | None, *messages: Outgoing) -> Commit:
    incident = decision.incident
    writes = [put(STORE, incident.incident_id, incident, seen=seen.get(incident.incident_id))]
    if not isinstance(decision, Join):
        writes.append(put(STORE, LEDGER_ID, decision.ledger, seen=ledger))
    return Commit(writes=tuple(writes), messages=messages)
