"""Live facts of incidents: what has grown since an incident's task was submitted, as lineage keeps it up to date."""

from collections.abc import Sequence
from typing import Any

from counterpoint.proto.memory import Get
from counterpoint.proto.tasks import Task
from counterpoint.recall import Memory

STORE = "incidents"
_PREFIX = "incident-"


async def with_incidents(memory: Memory, tasks: Sequence[Task]) -> list[Task]:
    """The tasks, those of incidents with the live facts in their context. Raises `Transient` or `Denied`."""
    wanted = [task.task_id for task in tasks if task.task_id.startswith(_PREFIX)]
    if not wanted:
        return list(tasks)
    found = await memory.query(*(Get(store=STORE, id=task_id) for task_id in wanted))
    facts = {item.id: item.body.get("live") for answer in found for item in answer.items}
    return [_with(task, facts.get(task.task_id)) for task in tasks]


def _with(task: Task, facts: Any) -> Task:
    if not isinstance(facts, dict):
        return task
    return task.model_copy(update={"context": {**(task.context or {}), **facts}})
