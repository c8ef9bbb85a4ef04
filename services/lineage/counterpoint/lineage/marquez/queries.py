"""Queries of Marquez's read API on the memory service."""

from typing import Any

from counterpoint.client import Memory, record, records
from counterpoint.graph import names
from counterpoint.graph.edges import LineageEdge
from counterpoint.graph.lineage import lineage_of
from counterpoint.graph.walks import EDGES_LIMIT
from counterpoint.lineage.marquez.views import graph_view, job_view, parse_node_id
from counterpoint.lineage.records import JobRecord, RunRecord
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import EdgeWalk, Get, Item, List

PAGE = 100


async def namespaces(memory: Memory) -> dict[str, Any]:
    """List the namespaces of jobs and datasets."""
    answers = set[str]()
    for store in ("jobs", "datasets"):
        async for page in memory.pages(List(store=store, limit=PAGE)):
            answers.update(item.body["namespace"] for item in page.items)
    return {"namespaces": [{"name": name} for name in sorted(answers)]}


async def jobs(memory: Memory, namespace: str, limit: int, offset: int) -> dict[str, Any]:
    """List the jobs of a namespace, latest change first, at most `limit` after `offset`."""
    stored: list[Item] = []
    async for page in memory.pages(List(store="jobs", where={"namespace": namespace}, limit=PAGE)):
        stored += page.items
        if len(stored) >= offset + limit:
            break
    return {"jobs": [await _view(memory, item) for item in stored[offset : offset + limit]]}


async def job(memory: Memory, namespace: str, name: str) -> dict[str, Any]:
    """Return one job. Raises `Permanent` with `not_found`."""
    item = await memory.get("jobs", names.job(namespace, name).id)
    if item is None:
        raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="job", problem="is unknown"),))
    return await _view(memory, item)


async def graph(memory: Memory, node_id: str, depth: int) -> dict[str, Any]:
    """Return the lineage graph around a job or dataset, `depth` hops each way. Raises `Permanent` with `not_found`."""
    nodes = list(parse_node_id(node_id))
    answers = await memory.query(*(Get(store=f"{node.kind}s", id=node.id) for node in nodes))
    stored = [node for node, answer in zip(nodes, answers, strict=True) if answer.items]
    if not stored:
        raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="nodeId", problem="is not a known job or dataset"),))
    return graph_view(await lineage_of(memory, stored[0], depth=depth))


async def _view(memory: Memory, item: Item) -> dict[str, Any]:
    stored = record(item, JobRecord)
    node = names.job(stored.namespace, stored.name)
    into, out, runs = await memory.query(
        EdgeWalk(store="edges", start=(node.ref,), direction="up", depth=1, limit=EDGES_LIMIT),
        EdgeWalk(store="edges", start=(node.ref,), direction="down", depth=1, limit=EDGES_LIMIT),
        List(store="runs", where={"job": node.ref}, limit=1),
    )
    edges = [each for answers in (into, out) for each in records(answers.items, LineageEdge)]
    latest = record(runs.items[0], RunRecord) if runs.items else None
    return job_view(stored, node, edges, item.at, latest)
