"""Completion of runs: the commits of a failed or completed run, an ended task, and new edges (docs/incidents.md)."""

from collections.abc import Iterable
from datetime import UTC, datetime

import structlog

from counterpoint.client import Memory, put, readable, record, send
from counterpoint.graph.edges import LineageEdge
from counterpoint.graph.radius import FLOW_KINDS
from counterpoint.graph.walks import MAX_DEPTH, LineageGraph
from counterpoint.lineage.graph_records import edges_of
from counterpoint.lineage.incidents.changes_since_success import RecordsByKey
from counterpoint.lineage.incidents.context import STORE, IncidentContext, completion_context, failure_context
from counterpoint.lineage.incidents.deferred_failure import deferred_event, recheck_event
from counterpoint.lineage.incidents.failures import FailedRun, failure_report
from counterpoint.lineage.incidents.incident import (
    LEDGER_ID,
    IncidentEnding,
    IncidentLedger,
    IncidentLimits,
    IncidentRecord,
    IncidentState,
)
from counterpoint.lineage.incidents.incident_commit import incident_commit
from counterpoint.lineage.incidents.matching import IncidentChanges
from counterpoint.lineage.openlineage.events import RunEvent
from counterpoint.lineage.query_batcher import QueryBatcher
from counterpoint.lineage.records import JobRecord, RunRecord
from counterpoint.proto.memory import Commit, Get, Outgoing

log = structlog.get_logger()


async def commit_for_failure(
    event: RunEvent, batcher: QueryBatcher, limits: IncidentLimits, records: RecordsByKey, *, waited: bool
) -> tuple[Commit, str | None]:
    """Return the commit of a FAIL event, and the id of the incident that the run belongs to.

    Raises `Transient` or `Denied`.
    """
    now = batcher.memory.now
    run = _run(records, event)
    failure = failure_report(event, run).run.model_copy(
        update={"known_at": min(now, datetime.now(UTC)), "waited": waited}
    )
    context, successes, has_parts = await failure_context(batcher, failure, edges_of(records))
    own = [known for known in records.values() if isinstance(known, RunRecord)]
    failure = failure.model_copy(update={"whole": failure.whole or has_parts}).resolved_by((*successes, *own))
    if waited and _is_settled(context, failure):
        failure = failure.model_copy(update={"waited": False})
    changes = await context.match([failure], limits)
    home = _home(context, changes, failure)
    log.info("failure.settled", run_id=event.run_id, incident_id=home.incident_id if home else None)
    commit = await incident_commit(batcher, context, changes, records, event)
    waits = home is not None and home.state is IncidentState.WAITING and not failure.waited and failure.over_at is None
    timers = _timers(now, context, changes, limits, except_for=failure)
    if waits and (failure.retries_left or failure.whole or failure.statement):
        timers.append(send(deferred_event(event), due_at=now + limits.grace(failure)))
    commit = commit.model_copy(update={"messages": (*commit.messages, *timers)})
    return commit, home.incident_id if home else None


async def commit_for_completion(
    event: RunEvent, batcher: QueryBatcher, limits: IncidentLimits, records: RecordsByKey
) -> Commit:
    """Return the commit of a COMPLETE event. Raises `Transient` or `Denied`."""
    run, job = _run(records, event), records["jobs", event.job.node.id]
    assert isinstance(job, JobRecord)
    if job.last_failure is None:
        return Commit()
    context = await completion_context(batcher, run.job, run)
    resolved = []
    for incident in context.incidents.values():
        # The failures of a merged incident are in the incident it was merged into.
        for known in incident.members.values() if incident.ending is not IncidentEnding.MERGED else ():
            if known.job == run.job and (after := known.resolved_by([run])) != known:
                resolved.append(after)
    if not resolved:
        return Commit()
    changes = await context.match(resolved, limits)
    commit = await incident_commit(batcher, context, changes, records, event)
    timers = _timers(batcher.memory.now, context, changes, limits)
    return commit.model_copy(update={"messages": (*commit.messages, *timers)})


async def commit_for_task_end(task_id: str, memory: Memory) -> Commit:
    """Return the commit that closes the incident of an ended task and rechecks later failures.

    Raises `Transient` or `Denied`.
    """
    batcher = QueryBatcher(memory)
    context = IncidentContext(batcher, LineageGraph(batcher))
    ledger, found = await batcher.query(Get(store=STORE, id=LEDGER_ID), Get(store=STORE, id=task_id))
    context.set_ledger(ledger)
    context.add(found.items)
    await context.close_ended()
    if all(context.incidents[item_id] == record(item, IncidentRecord) for item_id, item in context.items.items()):
        return Commit()
    # The incident is only closed here; late failures come back as events of their own.
    limits = IncidentLimits(incidents_per_hour=0, retry_grace_s=0)
    changes = await context.match([], limits)
    commit = await incident_commit(batcher, context, changes, {}, None)
    rechecks = tuple(send(recheck_event(one)) for one in context.late)
    return commit.model_copy(update={"messages": (*commit.messages, *rechecks)})


async def with_new_edges(
    edge_ids: Iterable[str], records: RecordsByKey, batcher: QueryBatcher, effects: Commit
) -> Commit:
    """Add to a commit the checks of incidents that new edges connect.

    The ledger is written with them, so that a new edge and a new incident at once conflict.
    Raises `Transient` or `Denied`.
    """
    fresh = [
        edge
        for edge_id in edge_ids
        if isinstance(edge := records["edges", edge_id], LineageEdge) and edge.kind in FLOW_KINDS
    ]
    if not fresh:
        return effects
    (found,) = await batcher.query(Get(store=STORE, id=LEDGER_ID))
    ledger_item = found.items[0] if found.items else None
    ledger = record(ledger_item, IncidentLedger) if ledger_item else IncidentLedger()
    if not any(write.id == LEDGER_ID for write in effects.writes):
        effects = effects.model_copy(
            update={"writes": (*effects.writes, put(STORE, LEDGER_ID, ledger, existing=ledger_item))}
        )
    active = [span for span in ledger.spans if span.until is None]
    if not active or len(ledger.spans) < 2:
        return effects
    graph, sources, targets = LineageGraph(batcher), [edge.source for edge in fresh], [edge.target for edge in fresh]
    await graph.read(up=sources, down=targets, strict=False)
    up, down = graph.reachable("up", sources, MAX_DEPTH), graph.reachable("down", targets, MAX_DEPTH)
    causes = {s.incident_id for s in ledger.spans if s.job in up or any(whole in up for whole in s.within)}
    follow = [span for span in active if span.job in down and causes - {span.incident_id}]
    answers = await batcher.query(*(Get(store=STORE, id=span.incident_id) for span in follow))
    known = [one for answer in answers for _, one in readable(answer.items, IncidentRecord)]
    rechecks = tuple(send(recheck_event(incident.origin)) for incident in known)
    return effects.model_copy(update={"messages": (*effects.messages, *rechecks)})


def _timers(
    now: datetime,
    context: IncidentContext,
    changes: IncidentChanges,
    limits: IncidentLimits,
    *,
    except_for: FailedRun | None = None,
) -> list[Outgoing]:
    """Return timers for failures that begin to wait, except `except_for`, which has one."""
    timers = []
    for incident in changes.changed:
        if incident.state is not IncidentState.WAITING:
            continue
        before = context.incidents.get(incident.incident_id)
        known = before.members if before is not None and before.state is IncidentState.WAITING else {}
        origin = incident.origin
        if origin.run_id not in known and (except_for is None or origin.run_id != except_for.run_id):
            timers.append(send(recheck_event(origin, waited=True), due_at=now + limits.grace(origin)))
    return timers


def _is_settled(context: IncidentContext, failure: FailedRun) -> bool:
    """Whether all incidents of a failure have stopped waiting already."""
    homes = [
        i for i in context.incidents.values() if failure.run_id in i.members and i.ending is not IncidentEnding.MERGED
    ]
    return bool(homes) and all(incident.state is not IncidentState.WAITING for incident in homes)


def _home(context: IncidentContext, changes: IncidentChanges, failure: FailedRun) -> IncidentRecord | None:
    """Return the incident that a failure belongs to after the changes."""
    known = context.incidents | {incident.incident_id: incident for incident in changes.changed}
    homes = [i for i in known.values() if failure.run_id in i.members]
    return min(homes, key=lambda i: (not i.active, i.opened_at, i.incident_id), default=None)


def _run(records: RecordsByKey, event: RunEvent) -> RunRecord:
    run = records["runs", event.run_id]
    assert isinstance(run, RunRecord)
    return run
