"""The lineage of our own tasks (row F4): what a service read and wrote for a task, as edges of a job of its own.

A job for each task and service, and not one for each service, so that a walk from a wrong document leads to the tasks
that used it and to no others. What has been written down once is not written again.
"""

from counterpoint.lineage.records import Job
from counterpoint.proto.memory import Commit, Get, RecordsChanged, Ref
from counterpoint.recall import Memory, put
from counterpoint.recall.edges import Edge, EdgeKind, edge
from counterpoint.recall.names import Node, own_item, own_step

STORES = frozenset(
    {
        "documents",
        "chunks",
        "entities",
        "relationships",
        "providers",
        "attempts",
        "decisions",
        "plans",
        "coder_memory",
        "planner_memory",
        "judge_memory",
    }
)
"""What tasks use and leave behind; the rest of the stores is how they are run."""


def edges_of(changed: RecordsChanged) -> tuple[Node, tuple[Edge, ...]] | None:
    """The job that a commit was part of and its edges; None when it is no task's or used and left nothing."""
    if changed.task_id is None:
        return None
    step = own_step(changed.task_id, changed.service)
    used = [edge(EdgeKind.DATA, item, step) for item in _items(changed.reads)]
    left = [edge(EdgeKind.DATA, step, item) for item in _items(changed.writes)]
    return (step, (*used, *left)) if used or left else None


async def trace(changed: RecordsChanged, memory: Memory) -> Commit:
    """The commit that adds what is new in the lineage of a task. Raises `Transient` or `Denied`."""
    found = edges_of(changed)
    if found is None:
        return Commit()
    step, edges = found
    job, *known = await memory.query(Get(store="jobs", id=step.id), *(Get(store="edges", id=e.id) for e in edges))
    writes = [put("edges", e.id, e) for e, answer in zip(edges, known, strict=True) if not answer.items]
    if not job.items:
        writes.append(put("jobs", step.id, Job(namespace=step.namespace, name=step.name)))
    return Commit(writes=tuple(writes))


def _items(refs: tuple[Ref, ...]) -> list[Node]:
    return list(dict.fromkeys(own_item(ref.store, ref.id) for ref in refs if ref.store in STORES))
