"""Effects of the end of a run, of a task, and of a new edge on the incidents (row F5)."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import structlog

from counterpoint.lineage.changes import changed_since
from counterpoint.lineage.events import RunEvent
from counterpoint.lineage.failures import FailedRun, failure_of
from counterpoint.lineage.graph import owners
from counterpoint.lineage.incidents import LEDGER_ID, Ending, Incident, Ledger, Limits, State
from counterpoint.lineage.records import Job, Key, Record, Run
from counterpoint.lineage.recovery import changed_between
from counterpoint.lineage.settling import Settlement
from counterpoint.lineage.standing import STORE, Desk, desk_of, open_desk
from counterpoint.lineage.submission import amendment, cancellation, live_facts, observed_outcome, submission
from counterpoint.lineage.waiting import once_more, reconsidered
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.memory import Commit, Get, Outgoing, Write
from counterpoint.proto.tasks import SubmitTask
from counterpoint.recall import Memory, decide, put, record, send
from counterpoint.recall.edges import Edge
from counterpoint.recall.lineage import blast_radius_of
from counterpoint.recall.names import node_of
from counterpoint.recall.neighbours import reached
from counterpoint.recall.radius import FLOWS, Radius

log = structlog.get_logger()

AGENT = "lineage"

Records = Mapping[Key, Record]
"""The records that an event is about, as they are with it."""


async def failed(
    event: RunEvent, memory: Memory, limits: Limits, records: Records, *, waited: bool
) -> tuple[Commit, str | None]:
    """The effects of a FAIL event, and the incident that the run belongs to.

    Raises `Transient` or `Denied`.
    """
    run = _run(records, event)
    failure = failure_of(event, run).run.model_copy(
        update={"known_at": min(memory.now, datetime.now(UTC)), "waited": waited}
    )
    edges = [known for known in records.values() if isinstance(known, Edge)]
    desk, successes, has_parts = await open_desk(memory, failure, edges)
    own = [known for known in records.values() if isinstance(known, Run)]
    failure = failure.model_copy(update={"whole": failure.whole or has_parts}).judged((*successes, *own))
    if waited and _is_settled(desk, failure):
        failure = failure.model_copy(update={"waited": False})
    settlement = await desk.settled([failure], limits)
    home = _home(desk, settlement, failure)
    log.info("failure.settled", run_id=event.run_id, incident_id=home.incident_id if home else None)
    commit = await _commit(memory, desk, settlement, records, event)
    waits = home is not None and home.state is State.WAITING and not failure.waited and failure.over_at is None
    timers = _timers(memory, desk, settlement, limits, but=failure)
    if waits and (failure.retries_left or failure.whole or failure.statement):
        timers.append(send(once_more(event), due_at=memory.now + limits.grace(failure)))
    commit = commit.model_copy(update={"messages": (*commit.messages, *timers)})
    return commit, home.incident_id if home else None


async def completed(event: RunEvent, memory: Memory, limits: Limits, records: Records) -> Commit:
    """The effects of a COMPLETE event. Raises `Transient` or `Denied`."""
    run, job = _run(records, event), records["jobs", event.job.node.id]
    assert isinstance(job, Job)
    if job.last_failure is None:
        return Commit()
    desk = await desk_of(memory, run.job, run)
    judged = []
    for incident in desk.incidents.values():
        # What was merged is kept elsewhere; the copy that stayed is not judged any more.
        for known in incident.members.values() if incident.ending is not Ending.MERGED else ():
            if known.job == run.job and (after := known.judged([run])) != known:
                judged.append(after)
    if not judged:
        return Commit()
    settlement = await desk.settled(judged, limits)
    commit = await _commit(memory, desk, settlement, records, event)
    timers = _timers(memory, desk, settlement, limits)
    return commit.model_copy(update={"messages": (*commit.messages, *timers)})


async def task_ended(task_id: str, memory: Memory) -> Commit:
    """The effects of the end of a task of an incident: it is closed, and what failed after that is looked at anew.

    Raises `Transient` or `Denied`.
    """
    desk = Desk(memory)
    ledger, found = await memory.query(Get(store=STORE, id=LEDGER_ID), Get(store=STORE, id=task_id))
    desk.take_ledger(ledger)
    desk.take(found.items)
    await desk.close_ended()
    if all(desk.incidents[item_id] == record(item, Incident) for item_id, item in desk.items.items()):
        return Commit()
    # Nothing is settled here but the end itself; the late ones come back as events of their own.
    limits = Limits(incidents_per_hour=0, retry_grace_s=0)
    settlement = await desk.settled([], limits)
    commit = await _commit(memory, desk, settlement, {}, None)
    again = tuple(send(reconsidered(one)) for one in desk.late)
    return commit.model_copy(update={"messages": (*commit.messages, *again)})


async def with_edges(edge_ids: Iterable[str], records: Records, memory: Memory, effects: Commit) -> Commit:
    """The effects of an event with those of the edges it taught: incidents between which one leads are judged anew.

    Raises `Transient` or `Denied`.
    """
    fresh = [edge for edge_id in edge_ids if isinstance(edge := records["edges", edge_id], Edge) and edge.kind in FLOWS]
    if not fresh:
        return effects
    (found,) = await memory.query(Get(store=STORE, id=LEDGER_ID))
    spans = record(found.items[0], Ledger).spans if found.items else ()
    standing = [span for span in spans if span.until is None]
    if not standing or len(spans) < 2:
        return effects
    up = await reached(memory, [edge.source for edge in fresh], "up")
    down = await reached(memory, [edge.target for edge in fresh], "down")
    causes = {span.incident_id for span in spans if span.job in up or any(whole in up for whole in span.within)}
    follow = [span for span in standing if span.job in down and causes - {span.incident_id}]
    answers = await memory.query(*(Get(store=STORE, id=span.incident_id) for span in follow)) if follow else ()
    known = [record(item, Incident) for answer in answers for item in answer.items]
    again = tuple(send(reconsidered(incident.origin)) for incident in known)
    return effects.model_copy(update={"messages": (*effects.messages, *again)})


def _timers(
    memory: Memory, desk: Desk, settlement: Settlement, limits: Limits, *, but: FailedRun | None = None
) -> list[Outgoing]:
    """The ends of the grace of failures that wait from now on, though they are not the one that has come in."""
    timers = []
    for incident in settlement.changed:
        if incident.state is not State.WAITING:
            continue
        before = desk.incidents.get(incident.incident_id)
        known = before.members if before is not None and before.state is State.WAITING else {}
        origin = incident.origin
        if origin.run_id not in known and (but is None or origin.run_id != but.run_id):
            timers.append(send(reconsidered(origin, waited=True), due_at=memory.now + limits.grace(origin)))
    return timers


def _is_settled(desk: Desk, failure: FailedRun) -> bool:
    """Whether the wait is over for other reasons: then nothing of it is written down."""
    homes = [i for i in desk.incidents.values() if failure.run_id in i.members and i.ending is not Ending.MERGED]
    return bool(homes) and all(incident.state is not State.WAITING for incident in homes)


def _home(desk: Desk, settlement: Settlement, failure: FailedRun) -> Incident | None:
    """The incident that a failure belongs to now."""
    known = desk.incidents | {incident.incident_id: incident for incident in settlement.changed}
    homes = [i for i in known.values() if failure.run_id in i.members]
    return min(homes, key=lambda i: (not i.active, i.opened_at, i.incident_id), default=None)


async def _commit(
    memory: Memory, desk: Desk, settlement: Settlement, records: Records, event: RunEvent | None
) -> Commit:
    """The records that change, the tasks that are asked for, amended and called off, and the decisions."""
    changed = {incident.incident_id: incident for incident in settlement.changed}
    for incident_id, incident in desk.incidents.items():
        if incident_id not in changed and incident != record(desk.items[incident_id], Incident):
            changed[incident_id] = incident
    shown = [*settlement.opened, *settlement.repointed]
    runs = await _runs(memory, shown, records)
    messages: list[Outgoing] = []
    for incident in settlement.opened:
        messages.append(send(await _task(memory, desk, settlement, incident, records, runs)))
    for incident in settlement.repointed:
        task = await _task(memory, desk, settlement, incident, records, runs)
        messages.append(send(amendment(task, incident)))
    named = {"error_message": lambda i: runs[i.origin.run_id].error_message if i.origin.run_id in runs else None}
    for incident in shown:
        error = named["error_message"](incident)
        changed[incident.incident_id] = incident.model_copy(update={"error_message": error or ""})
    known = desk.incidents | changed
    for incident_id, incident in changed.items():
        if incident.asked and incident.active:
            alike = [i for i in known.values() if i.job == incident.job and i.signature == incident.signature]
            changed[incident_id] = incident.model_copy(update={"live": live_facts(incident, alike)})
    for incident in settlement.merged:
        into = changed.get(incident.closed_by or "") or desk.incidents.get(incident.closed_by or "")
        messages.append(send(cancellation(incident, into)))
    messages += [send(each) for each in await _recoveries(memory, settlement.recovered, records)]
    messages += _decisions(memory, desk, settlement)
    writes: list[Write] = []
    for incident_id in sorted(changed):
        if incident_id not in desk.items or changed[incident_id] != record(desk.items[incident_id], Incident):
            writes.append(put(STORE, incident_id, changed[incident_id], seen=desk.items.get(incident_id)))
    writes += await _moved(memory, desk, changed.values(), event)
    if settlement.ledger != desk.ledger:
        writes.append(put(STORE, LEDGER_ID, settlement.ledger, seen=desk.ledger_item))
    return Commit(writes=tuple(writes), messages=tuple(messages))


async def _moved(memory: Memory, desk: Desk, changed: Iterable[Incident], event: RunEvent | None) -> tuple[Write, ...]:
    """The runs of failures that are kept in another incident than before; by its runs a flow is found."""
    before = {run: i.incident_id for i in desk.incidents.values() for run in i.members}
    after = {run: i.incident_id for i in changed if i.ending is not Ending.MERGED for run in i.members}
    known = {incident_id: set(incident.members) for incident_id, incident in desk.incidents.items()}
    moved = {
        run: home
        for run, home in after.items()
        if run in before and run not in known.get(home, ()) and (event is None or run != event.run_id)
    }
    if not moved:
        return ()
    found = await memory.query(*(Get(store="runs", id=run_id) for run_id in sorted(moved)))
    runs = [(item, record(item, Run)) for answer in found for item in answer.items]
    return tuple(
        put("runs", item.id, run.model_copy(update={"incident": moved[item.id]}), seen=item)
        for item, run in runs
        if run.incident != moved[item.id]
    )


async def _task(
    memory: Memory,
    desk: Desk,
    settlement: Settlement,
    incident: Incident,
    records: Records,
    runs: Mapping[str, Run],
) -> SubmitTask:
    radius = await _radius(memory, incident, records)
    known = desk.incidents | {one.incident_id: one for one in settlement.changed}
    alike = [one for one in known.values() if one.job == incident.job and one.signature == incident.signature]
    run = runs.get(incident.origin.run_id)
    job, changed = await changed_since(memory, incident, run, records)
    code = job.code.model_dump(exclude_none=True) if job is not None and job.code is not None else None
    return submission(incident, radius, settlement.ledger, run=run, code=code, alike=alike, changed=changed)


async def _radius(memory: Memory, incident: Incident, records: Records) -> Radius:
    return await blast_radius_of(
        memory,
        node_of(incident.job),
        also=[each for each in records.values() if isinstance(each, Edge)],
        owned=owners(records.values()),
    )


async def _recoveries(memory: Memory, recovered: Sequence[Incident], records: Records) -> list[ReportOutcome]:
    """The outcomes that recoveries show, each with what differs between the last failure and the run that worked."""
    ends = {incident.closed_by for incident in recovered if incident.closed_by}
    runs = await _known_runs(memory, {incident.origin.run_id for incident in recovered} | ends, records)
    outcomes = []
    for incident in recovered:
        failed, success = runs.get(incident.origin.run_id), runs.get(incident.closed_by or "")
        outcomes.append(observed_outcome(incident, changed_between(failed, success) if failed and success else ()))
    return outcomes


async def _runs(memory: Memory, incidents: Sequence[Incident], records: Records) -> dict[str, Run]:
    """The runs of the origins."""
    return await _known_runs(memory, {incident.origin.run_id for incident in incidents}, records)


async def _known_runs(memory: Memory, wanted: set[str], records: Records) -> dict[str, Run]:
    """Runs by id: those of the event as they are with it, the others as memory has them."""
    own = {run.run_id: run for run in records.values() if isinstance(run, Run) and run.run_id in wanted}
    missing = sorted(wanted - own.keys())
    if not missing:
        return own
    found = await memory.query(*(Get(store="runs", id=run_id) for run_id in missing))
    return own | {item.id: record(item, Run) for answer in found for item in answer.items}


def _decisions(memory: Memory, desk: Desk, settlement: Settlement) -> list[Outgoing]:
    """Return the decisions, for each incident that changed and is more than waiting."""
    kinds: list[tuple[str, Iterable[Incident]]] = [
        ("opened", settlement.opened),
        ("capped", settlement.capped),
        ("repointed", settlement.repointed),
        ("merged", settlement.merged),
        ("closed", settlement.recovered),
    ]
    said = {incident.incident_id: what for what, incidents in kinds for incident in incidents}
    messages = []
    for incident in settlement.changed:
        before = desk.incidents.get(incident.incident_id)
        joined = before is not None and incident.active and incident.state is not State.WAITING
        what = said.get(incident.incident_id, "joined" if joined else None)
        if what is not None:
            task_id = incident.incident_id if incident.asked and what != "merged" else None
            messages.append(
                send(
                    decide(
                        memory, AGENT, "incident", what, _reason(incident), task_id=task_id, step=incident.incident_id
                    )
                )
            )
    return messages


def _reason(incident: Incident) -> str:
    counts = f"{incident.count} flows, {len(incident.failures)} failures, {incident.affected_count} that follow"
    end = f", {incident.ending.value} {incident.closed_by}" if incident.ending else ""
    return f"{incident.incident_id}: {counts}{end}"


def _run(records: Records, event: RunEvent) -> Run:
    run = records["runs", event.run_id]
    assert isinstance(run, Run)
    return run
