"""Details of an incident for its task: its run and job, its blast radius, and the changes since the last success."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from counterpoint.client import readable
from counterpoint.graph.lineage import blast_radius_of
from counterpoint.graph.names import node_of
from counterpoint.graph.radius import BlastRadius
from counterpoint.lineage.graph_records import owners_by_ref
from counterpoint.lineage.incidents.changes_since_success import RecordsByKey, changes_since_success
from counterpoint.lineage.incidents.context import IncidentContext
from counterpoint.lineage.incidents.incident import IncidentLedger, IncidentRecord
from counterpoint.lineage.incidents.run_differences import RunDifference
from counterpoint.lineage.incidents.task_messages import incident_task
from counterpoint.lineage.records import JobRecord, RunRecord
from counterpoint.proto.memory import Get
from counterpoint.proto.tasks import SubmitTask


@dataclass(frozen=True, slots=True)
class IncidentDetails:
    """Details of an incident: `run` is the run of its origin, `changed` the differences from the last success."""

    radius: BlastRadius
    run: RunRecord | None
    job: JobRecord | None
    changed: tuple[RunDifference, ...]

    def task(self, incident: IncidentRecord, ledger: IncidentLedger) -> SubmitTask:
        """Build the task of an incident."""
        code = self.job.code.model_dump(exclude_none=True) if self.job is not None and self.job.code else None
        return incident_task(incident, self.radius, ledger, run=self.run, code=code, changed=self.changed)


async def incident_details(
    context: IncidentContext, incident: IncidentRecord, records: RecordsByKey
) -> IncidentDetails:
    """Read the details of an incident. Raises `Transient` or `Denied`."""
    job_node, owners = node_of(incident.job), owners_by_ref(records.values())
    radius, (run, job, changed) = await asyncio.gather(
        blast_radius_of(context.batcher, job_node, extra_owners=owners, graph=context.graph),
        changes_since_success(context.batcher, context.graph, incident, records),
    )
    return IncidentDetails(radius, run, job, tuple(changed))


async def runs_by_id(context: IncidentContext, run_ids: Iterable[str], records: RecordsByKey) -> dict[str, RunRecord]:
    """Return runs by id: from the records of the event, else from memory.

    Raises `Transient` or `Denied`.
    """
    ids = set(run_ids)
    in_event = {run.run_id: run for run in records.values() if isinstance(run, RunRecord) and run.run_id in ids}
    answers = await context.batcher.query(*(Get(store="runs", id=run_id) for run_id in sorted(ids - in_event.keys())))
    return in_event | {item.id: run for answer in answers for item, run in readable(answer.items, RunRecord)}
