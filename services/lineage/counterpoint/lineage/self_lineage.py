"""Lineage of Counterpoint's own tasks: a job for each task, with its sources as inputs and its attempts as outputs.

A walk from a wrong document leads to the tasks that used it. The records are written when the task ends; memory's read
sets have the reads of each commit.
"""

from counterpoint.client import Memory, put, record
from counterpoint.graph.edges import EdgeKind, LineageEdge, edge
from counterpoint.graph.names import own_item, own_task
from counterpoint.lineage.records import JobRecord
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.memory import Get, List, Write

_LIMIT = 200
"""Maximum number of decisions, and of attempts, read of one task."""


async def task_lineage(task_id: str, memory: Memory) -> tuple[Write, ...]:
    """Return the writes of missing lineage records of a task. Raises `Transient` or `Denied`."""
    node, where = own_task(task_id), {"task_id": task_id}
    job, decisions, attempts = await memory.query(
        Get(store="jobs", id=node.id),
        List(store="decisions", where=where, limit=_LIMIT),
        List(store="attempts", where=where, limit=_LIMIT),
    )
    decision_records = [record(item, DecisionMade) for item in decisions.items]
    inputs = {(s.store, s.id) for each in decision_records for s in each.sources}
    outputs = {("attempts", record(item, Attempt).attempt_id) for item in attempts.items}
    edges = [edge(EdgeKind.DATA, own_item(*key), node) for key in sorted(inputs - outputs)]
    edges += [edge(EdgeKind.DATA, node, own_item(*key)) for key in sorted(outputs)]
    if not edges:
        return ()
    if job.items:
        return tuple(put("edges", each.id, each) for each in await _missing(edges, memory))
    job_write = put("jobs", node.id, JobRecord(namespace=node.namespace, name=node.name))
    return (*(put("edges", each.id, each) for each in edges), job_write)


async def _missing(edges: list[LineageEdge], memory: Memory) -> list[LineageEdge]:
    answers = await memory.query(*(Get(store="edges", id=each.id) for each in edges))
    return [each for each, answer in zip(edges, answers, strict=True) if not answer.items]
