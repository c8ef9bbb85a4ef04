"""Answers to Marquez's read API out of memory."""

from typing import Any

from counterpoint.lineage.marquez import graph_view, job_view, nodes_named
from counterpoint.lineage.records import Job, Run
from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.memory import Get, Item, List, Walk
from counterpoint.recall import Memory, names, record, records
from counterpoint.recall.edges import Edge
from counterpoint.recall.lineage import lineage_of
from counterpoint.recall.walks import EDGES_LIMIT

PAGE = 100


async def namespaces(memory: Memory) -> dict[str, Any]:
    """Every namespace that a job or dataset is in."""
    found = set[str]()
    for store in ("jobs", "datasets"):
        async for page in memory.pages(List(store=store, limit=PAGE)):
            found.update(item.body["namespace"] for item in page.items)
    return {"namespaces": [{"name": name} for name in sorted(found)]}


async def jobs(memory: Memory, namespace: str, limit: int, offset: int) -> dict[str, Any]:
    """The jobs of a namespace, at most `limit` after `offset`, those that changed last first."""
    known: list[Item] = []
    async for page in memory.pages(List(store="jobs", where={"namespace": namespace}, limit=PAGE)):
        known += page.items
        if len(known) >= offset + limit:
            break
    return {"jobs": [await _view(memory, item) for item in known[offset : offset + limit]]}


async def job(memory: Memory, namespace: str, name: str) -> dict[str, Any]:
    """One job. Raises `Permanent` with `not_found`."""
    item = await memory.get("jobs", names.job(namespace, name).id)
    if item is None:
        raise Permanent("not_found", (Problem(field="job", problem="is unknown"),))
    return await _view(memory, item)


async def graph(memory: Memory, node_id: str, depth: int) -> dict[str, Any]:
    """What is around a job or dataset, `depth` hops each way. Raises `Permanent` with `not_found`."""
    wanted = list(nodes_named(node_id))
    found = await memory.query(*(Get(store=f"{node.kind}s", id=node.id) for node in wanted)) if wanted else ()
    known = [node for node, answer in zip(wanted, found, strict=True) if answer.items]
    if not known:
        raise Permanent("not_found", (Problem(field="nodeId", problem="names no job or dataset that is known"),))
    return graph_view(await lineage_of(memory, known[0], depth=depth))


async def _view(memory: Memory, item: Item) -> dict[str, Any]:
    known = record(item, Job)
    node = names.job(known.namespace, known.name)
    into, out, runs = await memory.query(
        Walk(store="edges", start=(node.ref,), direction="up", depth=1, limit=EDGES_LIMIT),
        Walk(store="edges", start=(node.ref,), direction="down", depth=1, limit=EDGES_LIMIT),
        List(store="runs", where={"job": node.ref}, limit=1),
    )
    edges = [each for found in (into, out) for each in records(found.items, Edge)]
    latest = record(runs.items[0], Run) if runs.items else None
    return job_view(known, node, edges, item.at, latest)
