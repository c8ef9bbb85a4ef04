"""Effects of the end of a run, of a task, and of a new edge on the incidents (row F5)."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

import structlog

from counterpoint.lineage.cards import card_of, known_runs
from counterpoint.lineage.changes import Records
from counterpoint.lineage.differences import changed_between
from counterpoint.lineage.events import RunEvent
from counterpoint.lineage.failures import FailedRun, failure_of
from counterpoint.lineage.graph import edges_of
from counterpoint.lineage.incidents import LEDGER_ID, Ending, Incident, Ledger, Limits, State
from counterpoint.lineage.joining import parts, wholes
from counterpoint.lineage.reads import Reads
from counterpoint.lineage.records import Job, Run
from counterpoint.lineage.settling import Settlement
from counterpoint.lineage.standing import STORE, Desk, desk_of, open_desk
from counterpoint.lineage.submission import amendment, cancellation, live_facts, observed_outcome
from counterpoint.lineage.waiting import once_more, reconsidered
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.memory import Commit, Get, Outgoing, Write
from counterpoint.proto.tasks import SubmitTask
from counterpoint.recall import Memory, decide, put, readable, record, send
from counterpoint.recall.edges import Edge
from counterpoint.recall.radius import FLOWS
from counterpoint.recall.walks import FAR, Graph

log = structlog.get_logger()

AGENT = "lineage"


async def failed(
    event: RunEvent, reads: Reads, limits: Limits, records: Records, *, waited: bool
) -> tuple[Commit, str | None]:
    """The effects of a FAIL event, and the incident that the run belongs to.

    Raises `Transient` or `Denied`.
    """
    now = reads.memory.now
    run = _run(records, event)
    failure = failure_of(event, run).run.model_copy(update={"known_at": min(now, datetime.now(UTC)), "waited": waited})
    desk, successes, has_parts = await open_desk(reads, failure, edges_of(records))
    own = [known for known in records.values() if isinstance(known, Run)]
    failure = failure.model_copy(update={"whole": failure.whole or has_parts}).judged((*successes, *own))
    if waited and _is_settled(desk, failure):
        failure = failure.model_copy(update={"waited": False})
    settlement = await desk.settled([failure], limits)
    home = _home(desk, settlement, failure)
    log.info("failure.settled", run_id=event.run_id, incident_id=home.incident_id if home else None)
    commit = await commit_of(reads, desk, settlement, records, event)
    waits = home is not None and home.state is State.WAITING and not failure.waited and failure.over_at is None
    timers = _timers(now, desk, settlement, limits, but=failure)
    if waits and (failure.retries_left or failure.whole or failure.statement):
        timers.append(send(once_more(event), due_at=now + limits.grace(failure)))
    commit = commit.model_copy(update={"messages": (*commit.messages, *timers)})
    return commit, home.incident_id if home else None


async def completed(event: RunEvent, reads: Reads, limits: Limits, records: Records) -> Commit:
    """The effects of a COMPLETE event. Raises `Transient` or `Denied`."""
    run, job = _run(records, event), records["jobs", event.job.node.id]
    assert isinstance(job, Job)
    if job.last_failure is None:
        return Commit()
    desk = await desk_of(reads, run.job, run)
    judged = []
    for incident in desk.incidents.values():
        # What was merged is kept elsewhere; the copy that stayed is not judged any more.
        for known in incident.members.values() if incident.ending is not Ending.MERGED else ():
            if known.job == run.job and (after := known.judged([run])) != known:
                judged.append(after)
    if not judged:
        return Commit()
    settlement = await desk.settled(judged, limits)
    commit = await commit_of(reads, desk, settlement, records, event)
    timers = _timers(reads.memory.now, desk, settlement, limits)
    return commit.model_copy(update={"messages": (*commit.messages, *timers)})


async def task_ended(task_id: str, memory: Memory) -> Commit:
    """The effects of the end of a task of an incident: it is closed, and what failed after that is looked at anew.

    Raises `Transient` or `Denied`.
    """
    reads = Reads(memory)
    desk = Desk(reads, Graph(reads))
    ledger, found = await reads.query(Get(store=STORE, id=LEDGER_ID), Get(store=STORE, id=task_id))
    desk.take_ledger(ledger)
    desk.take(found.items)
    await desk.close_ended()
    if all(desk.incidents[item_id] == record(item, Incident) for item_id, item in desk.items.items()):
        return Commit()
    # Nothing is settled here but the end itself; the late ones come back as events of their own.
    limits = Limits(incidents_per_hour=0, retry_grace_s=0)
    settlement = await desk.settled([], limits)
    commit = await commit_of(reads, desk, settlement, {}, None)
    again = tuple(send(reconsidered(one)) for one in desk.late)
    return commit.model_copy(update={"messages": (*commit.messages, *again)})


async def with_edges(edge_ids: Iterable[str], records: Records, reads: Reads, effects: Commit) -> Commit:
    """The effects of an event with those of the edges it taught: incidents between which one leads are judged anew.

    The ledger is written with them, so that of an edge and an incident at once one sees the other.
    Raises `Transient` or `Denied`.
    """
    fresh = [edge for edge_id in edge_ids if isinstance(edge := records["edges", edge_id], Edge) and edge.kind in FLOWS]
    if not fresh:
        return effects
    (found,) = await reads.query(Get(store=STORE, id=LEDGER_ID))
    seen = found.items[0] if found.items else None
    ledger = record(seen, Ledger) if seen else Ledger()
    if not any(write.id == LEDGER_ID for write in effects.writes):
        effects = effects.model_copy(update={"writes": (*effects.writes, put(STORE, LEDGER_ID, ledger, seen=seen))})
    standing = [span for span in ledger.spans if span.until is None]
    if not standing or len(ledger.spans) < 2:
        return effects
    graph, sources, targets = Graph(reads), [edge.source for edge in fresh], [edge.target for edge in fresh]
    await graph.read(up=sources, down=targets, strict=False)
    up, down = graph.within("up", sources, FAR), graph.within("down", targets, FAR)
    causes = {s.incident_id for s in ledger.spans if s.job in up or any(whole in up for whole in s.within)}
    follow = [span for span in standing if span.job in down and causes - {span.incident_id}]
    answers = await reads.query(*(Get(store=STORE, id=span.incident_id) for span in follow))
    known = [one for answer in answers for _, one in readable(answer.items, Incident)]
    again = tuple(send(reconsidered(incident.origin)) for incident in known)
    return effects.model_copy(update={"messages": (*effects.messages, *again)})


def _timers(
    now: datetime, desk: Desk, settlement: Settlement, limits: Limits, *, but: FailedRun | None = None
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
            timers.append(send(reconsidered(origin, waited=True), due_at=now + limits.grace(origin)))
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


async def commit_of(
    reads: Reads, desk: Desk, settlement: Settlement, records: Records, event: RunEvent | None
) -> Commit:
    """The records that change, the tasks that are asked for, amended and called off, and the decisions."""
    changed = {incident.incident_id: incident for incident in settlement.changed}
    for incident_id, incident in desk.incidents.items():
        if incident_id not in changed and incident != record(desk.items[incident_id], Incident):
            changed[incident_id] = incident
    shown = [*settlement.opened, *settlement.repointed]
    cards, remembered, moved, outcomes = await asyncio.gather(
        asyncio.gather(*(card_of(desk, incident, records) for incident in shown)),
        _remembered(desk, changed, {incident.incident_id for incident in shown}),
        _moved(reads, desk, changed.values(), event),
        _recoveries(desk, settlement.recovered, records),
    )
    changed |= remembered
    tasks: list[SubmitTask] = []
    for incident, card in zip(shown, cards, strict=True):
        error = card.run.error_message if card.run else None
        incident = changed[incident.incident_id].model_copy(update={"error_message": error or ""})
        changed[incident.incident_id] = incident
        tasks.append(card.task(incident, settlement.ledger))
    messages = [send(task) for task in tasks[: len(settlement.opened)]]
    for task in tasks[len(settlement.opened) :]:
        messages.append(send(amendment(task, changed[task.task_id or ""])))
    for incident in settlement.merged:
        into = changed.get(incident.closed_by or "") or desk.incidents.get(incident.closed_by or "")
        messages.append(send(cancellation(incident, into)))
    messages += [send(outcome) for outcome in outcomes]
    messages += _decisions(reads.memory, desk, settlement)
    writes: list[Write] = []
    for incident_id in sorted(changed):
        if incident_id not in desk.items or changed[incident_id] != record(desk.items[incident_id], Incident):
            writes.append(put(STORE, incident_id, changed[incident_id], seen=desk.items.get(incident_id)))
    writes += moved
    if settlement.ledger != desk.ledger:
        writes.append(put(STORE, LEDGER_ID, settlement.ledger, seen=desk.ledger_item))
    return Commit(writes=tuple(writes), messages=tuple(messages))


async def _remembered(desk: Desk, changed: dict[str, Incident], shown: Collection[str]) -> dict[str, Incident]:
    """The incidents that stand with what came before them and the facts that their tasks show, by id.

    The history of a job is read where it is shown anew, else used where it is at hand.
    """
    known = desk.incidents | changed
    above, below = wholes(known), parts(known)

    async def now(incident: Incident) -> Incident:
        if incident.incident_id in shown or desk.has_listed(incident.job):
            incident = await desk.remembered(incident, known)
        own = incident.incident_id
        return incident.model_copy(update={"live": live_facts(incident, below.get(own, ()), above.get(own))})

    standing = [i for i in known.values() if i.asked and i.active]
    of = [i for i in standing if i.incident_id in changed or desk.has_listed(i.job) or i.joins or i.parts]
    return {incident.incident_id: incident for incident in await asyncio.gather(*map(now, of))}


async def _moved(reads: Reads, desk: Desk, changed: Iterable[Incident], event: RunEvent | None) -> tuple[Write, ...]:
    """The runs of failures that are kept in another incident than before; by its runs a flow is found."""
    before = {run: i.incident_id for i in desk.incidents.values() for run in i.members}
    after = {run: i.incident_id for i in changed if i.ending is not Ending.MERGED for run in i.members}
    known = {incident_id: set(incident.members) for incident_id, incident in desk.incidents.items()}
    moved = {
        run: home
        for run, home in after.items()
        if run in before and run not in known.get(home, ()) and (event is None or run != event.run_id)
    }
    found = await reads.query(*(Get(store="runs", id=run_id) for run_id in sorted(moved)))
    runs = [pair for answer in found for pair in readable(answer.items, Run)]
    return tuple(
        put("runs", item.id, run.model_copy(update={"incident": moved[item.id]}), seen=item)
        for item, run in runs
        if run.incident != moved[item.id]
    )


async def _recoveries(desk: Desk, recovered: Sequence[Incident], records: Records) -> list[ReportOutcome]:
    """The outcomes that recoveries show, each with what differs between the last failure and the run that worked."""
    ends = {incident.closed_by for incident in recovered if incident.closed_by}
    runs = await known_runs(desk, {incident.origin.run_id for incident in recovered} | ends, records)
    outcomes = []
    for incident in recovered:
        failed, success = runs.get(incident.origin.run_id), runs.get(incident.closed_by or "")
        outcomes.append(observed_outcome(incident, changed_between(failed, success) if failed and success else ()))
    return outcomes


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
