"""The lineage of our own tasks (row F4): what a task rested on and the attempts it left, as edges of a job of its own.

A job for each task, so that a walk from a wrong document leads to the tasks that used it and to no others. It is
written when the task ends. Who read what, commit by commit, is in memory's read sets.
"""

from counterpoint.lineage.records import Job
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.memory import Get, List, Write
from counterpoint.recall import Memory, put, record
from counterpoint.recall.edges import Edge, EdgeKind, edge
from counterpoint.recall.names import own_item, own_task

_LIMIT = 200
"""Decisions and attempts of one task that are looked at."""


async def traced(task_id: str, memory: Memory) -> tuple[Write, ...]:
    """The records that are missing in the lineage of a task. Raises `Transient` or `Denied`."""
    node, about = own_task(task_id), {"task_id": task_id}
    job, decisions, attempts = await memory.query(
        Get(store="jobs", id=node.id),
        List(store="decisions", where=about, limit=_LIMIT),
        List(store="attempts", where=about, limit=_LIMIT),
    )
    made = [record(item, DecisionMade) for item in decisions.items]
    used = {(s.store, s.id) for each in made for s in each.sources}
    left = {("attempts", record(item, Attempt).attempt_id) for item in attempts.items}
    edges = [edge(EdgeKind.DATA, own_item(*key), node) for key in sorted(used - left)]
    edges += [edge(EdgeKind.DATA, node, own_item(*key)) for key in sorted(left)]
    if not edges:
        return ()
    if job.items:
        return tuple(put("edges", each.id, each) for each in await _unknown(edges, memory))
    own = put("jobs", node.id, Job(namespace=node.namespace, name=node.name))
    return (*(put("edges", each.id, each) for each in edges), own)


async def _unknown(edges: list[Edge], memory: Memory) -> list[Edge]:
    known = await memory.query(*(Get(store="edges", id=each.id) for each in edges))
    return [each for each, answer in zip(edges, known, strict=True) if not answer.items]
