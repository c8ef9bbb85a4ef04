"""Live facts of incidents, kept up to date by lineage after the submission of an incident's task."""

from collections.abc import Iterable, Sequence
from typing import Any

from counterpoint.client import Memory
from counterpoint.proto.tasks import Task

STORE = "incidents"
_PREFIX = "incident-"


async def facts_of(memory: Memory, task_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the live facts of incidents by task id. Raises `Transient` or `Denied`."""
    incident_ids = [task_id for task_id in task_ids if task_id.startswith(_PREFIX)]
    items = await memory.get_all(STORE, incident_ids)
    return {item.id: item.body["live"] for item in items if "live" in item.body}


async def with_incidents(memory: Memory, tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks, with live facts in the context of incidents. Raises `Transient` or `Denied`."""
    facts = await facts_of(memory, (task.task_id for task in tasks))
    return [_with_facts(task, facts.get(task.task_id, {})) for task in tasks]


def _with_facts(task: Task, facts: dict[str, Any]) -> Task:
    return task.model_copy(update={"context": {**(task.context or {}), **facts}}) if facts else task
