"""Known changes between the last success of a job and its failure."""

from collections.abc import Mapping

from counterpoint.lineage.differences import Difference, differences, upstream_differences
from counterpoint.lineage.incidents import Incident
from counterpoint.lineage.records import Job, Key, Record, Run
from counterpoint.proto.memory import Get, Walk
from counterpoint.recall import Memory, record
from counterpoint.recall.edges import Edge, EdgeKind
from counterpoint.recall.names import NodeKind, node_of

_INPUTS_LIMIT, _PRODUCERS_LIMIT = 20, 40

Records = Mapping[Key, Record]
"""The records that an event is about, as they are with it."""


async def changed_since(
    memory: Memory, incident: Incident, failed: Run | None, records: Records
) -> tuple[Job | None, list[Difference]]:
    """The failed job, and what differs from its last success before the failure. Raises `Transient` or `Denied`."""
    job = await _job(memory, incident.job, records)
    if job is None or failed is None or job.last_success is None or job.last_success.at >= incident.first_at:
        return job, []
    good = await _run(memory, job.last_success.run_id, records)
    if good is None:
        return job, []
    producers = await _producers(memory, failed.inputs[:_INPUTS_LIMIT])
    since = good.started_at or job.last_success.at
    return job, [*differences(good, failed), *upstream_differences(since, incident.last_at, producers)]


async def _job(memory: Memory, ref: str, records: Records) -> Job | None:
    job_id = node_of(ref).id
    known = records.get(("jobs", job_id))
    if isinstance(known, Job):
        return known
    item = await memory.get("jobs", job_id)
    return record(item, Job) if item else None


async def _run(memory: Memory, run_id: str, records: Records) -> Run | None:
    known = records.get(("runs", run_id))
    if isinstance(known, Run):
        return known
    item = await memory.get("runs", run_id)
    return record(item, Run) if item else None


async def _producers(memory: Memory, datasets: tuple[str, ...]) -> dict[str, list[Job]]:
    """The jobs that write each dataset, by its name."""
    if not datasets:
        return {}
    (found,) = await memory.query(Walk(store="edges", start=datasets, direction="up", depth=1, limit=500))
    edges = [record(item, Edge) for item in found.items]
    writes = [e for e in edges if e.kind is EdgeKind.DATA and e.ends[0].kind is NodeKind.JOB][:_PRODUCERS_LIMIT]
    if not writes:
        return {}
    jobs = await memory.query(*(Get(store="jobs", id=edge.ends[0].id) for edge in writes))
    producers: dict[str, list[Job]] = {}
    for edge, answer in zip(writes, jobs, strict=True):
        producers.setdefault(edge.ends[1].name, []).extend(record(item, Job) for item in answer.items)
    return producers
