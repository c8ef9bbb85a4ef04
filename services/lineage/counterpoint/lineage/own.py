"""The lineage of our own tasks (row F4): what a service read and wrote for a task, as edges of a job of its own.

A job for each task and service, and not one for each service, so that a walk from a wrong document leads to the tasks
that used it and to no others. What has been written down once is not written again.
"""

from collections import OrderedDict
from collections.abc import Sequence

from counterpoint.lineage.records import Job
from counterpoint.proto.memory import Commit, Get, RecordsChanged, Ref, Write
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


class Tracer:
    """Writes the lineage of our own tasks down.

    The first commit of a job finds nothing there, so what it adds is written without a look; where something was there
    all the same (another process, another life of this one), memory says so by a conflict, and the second run looks.
    `remembered` jobs are those known to have begun.
    """

    def __init__(self, remembered: int = 10_000) -> None:
        self._begun: OrderedDict[str, None] = OrderedDict()
        self._remembered = remembered

    async def trace(self, changed: RecordsChanged, memory: Memory) -> Commit:
        """The commit that adds what is new in the lineage of a task. Raises `Transient` or `Denied`."""
        found = edges_of(changed)
        if found is None:
            return Commit()
        step, edges = found
        if self._begins(step.id) and memory.origin.run == 0:
            return Commit(writes=_new(step, edges))
        job, *known = await memory.query(Get(store="jobs", id=step.id), *(Get(store="edges", id=e.id) for e in edges))
        unknown = tuple(e for e, answer in zip(edges, known, strict=True) if not answer.items)
        return Commit(writes=_new(None if job.items else step, unknown))

    def _begins(self, step_id: str) -> bool:
        """Whether this is the first that is heard of a job."""
        if step_id in self._begun:
            return False
        self._begun[step_id] = None
        if len(self._begun) > self._remembered:
            self._begun.popitem(last=False)
        return True


def _new(step: Node | None, edges: Sequence[Edge]) -> tuple[Write, ...]:
    writes = [put("edges", e.id, e) for e in edges]
    if step is not None:
        writes.append(put("jobs", step.id, Job(namespace=step.namespace, name=step.name)))
    return tuple(writes)


def _items(refs: tuple[Ref, ...]) -> list[Node]:
    return list(dict.fromkeys(own_item(ref.store, ref.id) for ref in refs if ref.store in STORES))
