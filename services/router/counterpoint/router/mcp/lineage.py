"""Tools about lineage: the jobs and data sets around a DAG, and what its failure reaches."""

from typing import Annotated, Literal

from pydantic import Field

from counterpoint.client import Memory
from counterpoint.graph.lineage import blast_radius_of, lineage_of
from counterpoint.graph.names import Node
from counterpoint.graph.radius import BlastRadius, Direction, Lineage
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import List
from counterpoint.router.api.jobs import known_job, parse_job
from counterpoint.router.mcp.caller import Project, caller

_NAMESAKES = 20

Depth = Annotated[int, Field(ge=1, le=100, description="Maximum number of hops between jobs.")]
DagId = Annotated[str, Field(min_length=1, max_length=1_000, description="A DAG or job: its name, or NAMESPACE/NAME.")]


async def get_dag_lineage(
    dag_id: DagId, depth: Depth = 2, direction: Literal["up", "down", "both"] = "both", project: Project = None
) -> Lineage:
    """Return the jobs and data sets around a DAG, with hops and owners. Upstream hops are negative.

    Example: {"dag_id": "orders_ingest", "depth": 2, "direction": "down"}
    """
    context = caller(project)
    context.require("read")
    memory = context.memory()
    return await lineage_of(memory, await job_named(memory, dag_id), depth=depth, direction=Direction(direction))


async def get_failure_blast_radius(
    dag_id: DagId,
    task_id: Annotated[str | None, Field(max_length=500, description="The task of the DAG that failed.")] = None,
    depth: Depth = 20,
    project: Project = None,
) -> BlastRadius:
    """Return what a failure of a DAG, or of one task of it, reaches: jobs and data sets with hops and owners.

    Example: {"dag_id": "orders_ingest", "task_id": "fetch_orders"}
    """
    context = caller(project)
    context.require("read")
    memory = context.memory()
    start = await job_named(memory, f"{dag_id}.{task_id}" if task_id else dag_id)
    return await blast_radius_of(memory, start, depth=depth)


async def job_named(memory: Memory, name: str) -> Node:
    """Return the job of `NAMESPACE/NAME`, or of a name that only one namespace has.

    Raises `Permanent` `not_found` or `ambiguous`, whose problems list the namespaces.
    """
    if "/" in name:
        job = parse_job(name)
        return await known_job(memory, job.namespace, job.name, "dag_id")
    (found,) = await memory.query(List(store="jobs", where={"name": name}, limit=_NAMESAKES))
    namespaces = sorted({str(item.body["namespace"]) for item in found.items})
    if len(namespaces) > 1:
        problems = (Problem(field="dag_id", problem=f"{namespace}/{name} is one") for namespace in namespaces)
        raise Permanent(ErrorCode.AMBIGUOUS, tuple(problems))
    if not namespaces:
        raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="dag_id", problem="is not a known job"),))
    return await known_job(memory, namespaces[0], name, "dag_id")
