"""The commit of changed incidents: records, tasks, amendments, cancellations, outcomes and decisions."""

import asyncio
from collections.abc import Collection, Iterable, Sequence

from counterpoint.client import Memory, decide, put, readable, record, send
from counterpoint.lineage.incidents.changes_since_success import RecordsByKey
from counterpoint.lineage.incidents.context import STORE, IncidentContext
from counterpoint.lineage.incidents.details import incident_details, runs_by_id
from counterpoint.lineage.incidents.incident import (
    LEDGER_ID,
    IncidentEnding,
    IncidentRecord,
    IncidentState,
)
from counterpoint.lineage.incidents.joins import parent_by_part, parts_by_parent
from counterpoint.lineage.incidents.matching import IncidentChanges
from counterpoint.lineage.incidents.run_differences import describe_changes
from counterpoint.lineage.incidents.task_messages import amendment, cancellation, live_facts, observed_outcome
from counterpoint.lineage.openlineage.events import RunEvent
from counterpoint.lineage.query_batcher import QueryBatcher
from counterpoint.lineage.records import RunRecord
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.memory import Commit, Get, Outgoing, Write
from counterpoint.proto.tasks import SubmitTask
from counterpoint.proto.words import quantity

AGENT = "lineage"


async def incident_commit(
    batcher: QueryBatcher,
    context: IncidentContext,
    changes: IncidentChanges,
    records: RecordsByKey,
    event: RunEvent | None,
) -> Commit:
    """Build the commit: changed records, submitted, amended and cancelled tasks, outcomes, and decisions.

    Raises `Transient` or `Denied`.
    """
    changed = {incident.incident_id: incident for incident in changes.changed}
    for incident_id, incident in context.incidents.items():
        if incident_id not in changed and incident != record(context.items[incident_id], IncidentRecord):
            changed[incident_id] = incident
    with_task_message = [*changes.opened, *changes.repointed]
    cards, remembered, moved, outcomes = await asyncio.gather(
        asyncio.gather(*(incident_details(context, incident, records) for incident in with_task_message)),
        _with_histories(context, changed, {incident.incident_id for incident in with_task_message}),
        _moved_runs(batcher, context, changed.values(), event),
        _recoveries(context, changes.recovered, records),
    )
    changed |= remembered
    tasks: list[SubmitTask] = []
    for incident, card in zip(with_task_message, cards, strict=True):
        error = card.run.error_message if card.run else None
        incident = changed[incident.incident_id].model_copy(update={"error_message": error or ""})
        changed[incident.incident_id] = incident
        tasks.append(card.task(incident, changes.ledger))
    messages = [send(task) for task in tasks[: len(changes.opened)]]
    for task in tasks[len(changes.opened) :]:
        messages.append(send(amendment(task, changed[task.task_id or ""])))
    for incident in changes.merged:
        into = changed.get(incident.closed_by or "") or context.incidents.get(incident.closed_by or "")
        messages.append(send(cancellation(incident, into)))
    messages += [send(outcome) for outcome in outcomes]
    messages += _decisions(batcher.memory, context, changes)
    writes: list[Write] = []
    for incident_id in sorted(changed):
        if incident_id not in context.items or changed[incident_id] != record(
            context.items[incident_id], IncidentRecord
        ):
            writes.append(put(STORE, incident_id, changed[incident_id], existing=context.items.get(incident_id)))
    writes += moved
    if changes.ledger != context.ledger:
        writes.append(put(STORE, LEDGER_ID, changes.ledger, existing=context.ledger_item))
    return Commit(writes=tuple(writes), messages=tuple(messages))


async def _with_histories(
    context: IncidentContext, changed: dict[str, IncidentRecord], with_task_message: Collection[str]
) -> dict[str, IncidentRecord]:
    """Return the active incidents with their history and the live facts of their tasks, by id.

    The history of a job is read for incidents in `with_task_message`; for others it is used if it was read before.
    """
    incidents = context.incidents | changed
    above, below = parent_by_part(incidents), parts_by_parent(incidents)

    async def with_current(incident: IncidentRecord) -> IncidentRecord:
        if incident.incident_id in with_task_message or context.has_listed(incident.job):
            incident = await context.with_history(incident, incidents)
        incident_id = incident.incident_id
        return incident.model_copy(
            update={"live": live_facts(incident, below.get(incident_id, ()), above.get(incident_id))}
        )

    active = [i for i in incidents.values() if i.has_task and i.active]
    to_describe = [i for i in active if i.incident_id in changed or context.has_listed(i.job) or i.joins or i.parts]
    return {incident.incident_id: incident for incident in await asyncio.gather(*map(with_current, to_describe))}


async def _moved_runs(
    batcher: QueryBatcher, context: IncidentContext, changed: Iterable[IncidentRecord], event: RunEvent | None
) -> tuple[Write, ...]:
    """Return the writes of runs whose failures moved to another incident."""
    before = {run: i.incident_id for i in context.incidents.values() for run in i.members}
    after = {run: i.incident_id for i in changed if i.ending is not IncidentEnding.MERGED for run in i.members}
    members = {incident_id: set(incident.members) for incident_id, incident in context.incidents.items()}
    moved = {
        run: home
        for run, home in after.items()
        if run in before and run not in members.get(home, ()) and (event is None or run != event.run_id)
    }
    found = await batcher.query(*(Get(store="runs", id=run_id) for run_id in sorted(moved)))
    runs = [pair for answer in found for pair in readable(answer.items, RunRecord)]
    return tuple(
        put("runs", item.id, run.model_copy(update={"incident": moved[item.id]}), existing=item)
        for item, run in runs
        if run.incident != moved[item.id]
    )


async def _recoveries(
    context: IncidentContext, recovered: Sequence[IncidentRecord], records: RecordsByKey
) -> list[ReportOutcome]:
    """Return the observed outcomes of recovered incidents, with the differences between the failed and the completed
    run."""
    ends = {incident.closed_by for incident in recovered if incident.closed_by}
    runs = await runs_by_id(context, {incident.origin.run_id for incident in recovered} | ends, records)
    outcomes = []
    for incident in recovered:
        failed, success = runs.get(incident.origin.run_id), runs.get(incident.closed_by or "")
        outcomes.append(observed_outcome(incident, describe_changes(failed, success) if failed and success else ()))
    return outcomes


def _decisions(memory: Memory, context: IncidentContext, changes: IncidentChanges) -> list[Outgoing]:
    """Return the decisions on changed incidents that are not waiting."""
    kinds: list[tuple[str, Iterable[IncidentRecord]]] = [
        ("opened", changes.opened),
        ("capped", changes.capped),
        ("repointed", changes.repointed),
        ("merged", changes.merged),
        ("closed", changes.recovered),
    ]
    kind_by_id = {incident.incident_id: kind for kind, incidents in kinds for incident in incidents}
    messages = []
    for incident in changes.changed:
        before = context.incidents.get(incident.incident_id)
        has_joined = before is not None and incident.active and incident.state is not IncidentState.WAITING
        kind = kind_by_id.get(incident.incident_id, "joined" if has_joined else None)
        if kind is not None:
            task_id = incident.incident_id if incident.has_task and kind != "merged" else None
            messages.append(
                send(
                    decide(
                        memory, AGENT, "incident", kind, _reason(incident), task_id=task_id, step=incident.incident_id
                    )
                )
            )
    return messages


def _reason(incident: IncidentRecord) -> str:
    flows, failures = quantity(incident.count, "flow"), quantity(len(incident.failures), "failure")
    counts = f"{flows}, {failures}, {incident.affected_count} downstream"
    end = f", {incident.ending.value} {incident.closed_by}" if incident.ending else ""
    return f"{incident.incident_id}: {counts}{end}"
