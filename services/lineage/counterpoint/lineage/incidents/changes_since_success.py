"""Known changes between the last success of a job and its failure."""

import asyncio
from collections.abc import Iterable, Mapping

from counterpoint.client import record
from counterpoint.graph.edges import EdgeKind
from counterpoint.graph.names import NodeKind, node_of
from counterpoint.graph.walks import LineageGraph
from counterpoint.lineage.incidents.incident import IncidentRecord
from counterpoint.lineage.incidents.run_differences import RunDifference, run_differences, upstream_differences
from counterpoint.lineage.query_batcher import QueryBatcher
from counterpoint.lineage.records import GraphRecord, JobRecord, RecordKey, RunRecord
from counterpoint.proto.memory import Get

_INPUTS_LIMIT, _PRODUCERS_LIMIT = 20, 40

RecordsByKey = Mapping[RecordKey, GraphRecord]
"""Records of an event by store and id, with its changes."""


async def changes_since_success(
    batcher: QueryBatcher, graph: LineageGraph, incident: IncidentRecord, records: RecordsByKey
) -> tuple[RunRecord | None, JobRecord | None, list[RunDifference]]:
    """Return the run and job of an incident's origin, and the differences from the last success before it.

    Raises `Transient` or `Denied`.
    """
    failed, job = await asyncio.gather(
        _run(batcher, incident.origin.run_id, records), _job(batcher, node_of(incident.job).id, records)
    )
    if job is None or failed is None or job.last_success is None or job.last_success.at >= incident.first_at:
        return failed, job, []
    good, producers = await asyncio.gather(
        _run(batcher, job.last_success.run_id, records),
        _producers(batcher, graph, failed.inputs[:_INPUTS_LIMIT], records),
    )
    if good is None:
        return failed, job, []
    since = good.started_at or job.last_success.at
    return (
        failed,
        job,
        [*run_differences(good, failed), *upstream_differences(since, incident.last_at, producers, job.parent)],
    )


async def _job(batcher: QueryBatcher, job_id: str, records: RecordsByKey) -> JobRecord | None:
    fresh = records.get(("jobs", job_id))
    if isinstance(fresh, JobRecord):
        return fresh
    (result,) = await batcher.query(Get(store="jobs", id=job_id))
    return record(result.items[0], JobRecord) if result.items else None


async def _run(batcher: QueryBatcher, run_id: str, records: RecordsByKey) -> RunRecord | None:
    fresh = records.get(("runs", run_id))
    if isinstance(fresh, RunRecord):
        return fresh
    (result,) = await batcher.query(Get(store="runs", id=run_id))
    return record(result.items[0], RunRecord) if result.items else None


async def _producers(
    batcher: QueryBatcher, graph: LineageGraph, datasets: Iterable[str], records: RecordsByKey
) -> dict[str, list[JobRecord]]:
    """Return the jobs that write each dataset, by dataset name."""
    ids = set(datasets)
    await graph.read(up=ids, depth=1, strict=False)
    edges = sorted(
        (e for e in graph.edges if e.target in ids and e.kind is EdgeKind.DATA and e.ends[0].kind is NodeKind.JOB),
        key=lambda edge: edge.id,
    )[:_PRODUCERS_LIMIT]
    jobs = await asyncio.gather(*(_job(batcher, edge.ends[0].id, records) for edge in edges))
    producers: dict[str, list[JobRecord]] = {}
    for edge, job in zip(edges, jobs, strict=True):
        if job is not None:
            producers.setdefault(edge.ends[1].name, []).append(job)
    return producers
