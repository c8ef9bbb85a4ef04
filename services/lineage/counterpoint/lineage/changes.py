"""Known changes between the last success of a job and its failure."""

import asyncio
from collections.abc import Iterable, Mapping

from counterpoint.lineage.differences import Difference, differences, upstream_differences
from counterpoint.lineage.incidents import Incident
from counterpoint.lineage.reads import Reads
from counterpoint.lineage.records import Job, Key, Record, Run
from counterpoint.proto.memory import Get
from counterpoint.recall import record
from counterpoint.recall.edges import EdgeKind
from counterpoint.recall.names import NodeKind, node_of
from counterpoint.recall.walks import Graph

_INPUTS_LIMIT, _PRODUCERS_LIMIT = 20, 40

Records = Mapping[Key, Record]
"""The records that an event is about, as they are with it."""


async def changed_since(
    reads: Reads, graph: Graph, incident: Incident, records: Records
) -> tuple[Run | None, Job | None, list[Difference]]:
    """The run of an incident's origin and its job, and what differs from its last success before the failure.

    Raises `Transient` or `Denied`.
    """
    failed, job = await asyncio.gather(
        _run(reads, incident.origin.run_id, records), _job(reads, node_of(incident.job).id, records)
    )
    if job is None or failed is None or job.last_success is None or job.last_success.at >= incident.first_at:
        return failed, job, []
    good, producers = await asyncio.gather(
        _run(reads, job.last_success.run_id, records), _producers(reads, graph, failed.inputs[:_INPUTS_LIMIT], records)
    )
    if good is None:
        return failed, job, []
    since = good.started_at or job.last_success.at
    return failed, job, [*differences(good, failed), *upstream_differences(since, incident.last_at, producers)]


async def _job(reads: Reads, job_id: str, records: Records) -> Job | None:
    known = records.get(("jobs", job_id))
    if isinstance(known, Job):
        return known
    (found,) = await reads.query(Get(store="jobs", id=job_id))
    return record(found.items[0], Job) if found.items else None


async def _run(reads: Reads, run_id: str, records: Records) -> Run | None:
    known = records.get(("runs", run_id))
    if isinstance(known, Run):
        return known
    (found,) = await reads.query(Get(store="runs", id=run_id))
    return record(found.items[0], Run) if found.items else None


async def _producers(reads: Reads, graph: Graph, datasets: Iterable[str], records: Records) -> dict[str, list[Job]]:
    """The jobs that write each dataset, by its name."""
    wanted = set(datasets)
    await graph.read(up=wanted, depth=1, strict=False)
    edges = sorted(
        (e for e in graph.edges if e.target in wanted and e.kind is EdgeKind.DATA and e.ends[0].kind is NodeKind.JOB),
        key=lambda edge: edge.id,
    )[:_PRODUCERS_LIMIT]
    jobs = await asyncio.gather(*(_job(reads, edge.ends[0].id, records) for edge in edges))
    producers: dict[str, list[Job]] = {}
    for edge, job in zip(edges, jobs, strict=True):
        if job is not None:
            producers.setdefault(edge.ends[1].name, []).append(job)
    return producers
