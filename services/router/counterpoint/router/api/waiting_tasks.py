"""Tasks that wait for input: escalations and proposals, without those that are handled as parts of others."""

from collections.abc import Sequence

from counterpoint.client import records
from counterpoint.proto.memory import List
from counterpoint.proto.tasks import Task
from counterpoint.router.api.context import RequestContext
from counterpoint.router.intake.incident_facts import facts_of, with_incidents
from counterpoint.router.intake.task_links import parts_of_open_tasks


async def escalated_tasks(
    context: RequestContext, limit: int, cursor: int | None = None
) -> tuple[list[Task], int | None]:
    """Return a page of the tasks that wait for a person or an agent, and the cursor after it. Raises `Denied`."""
    context.require("read")
    found = await context.fetch(_waiting(limit).model_copy(update={"cursor": cursor}))
    escalated = [task for task in records(found.items, Task) if task.escalation]
    return await _without_parts(context, escalated), found.next_cursor


async def waiting_tasks(context: RequestContext, limit: int) -> tuple[list[Task], bool]:
    """Return up to `limit` tasks that wait, last changed first, and whether there are more. Raises `Denied`.

    Proposals whose outcome nobody has reported are among them.
    """
    context.require("read")
    waiting = list[Task]()
    query = _waiting(limit + 1)
    async for found in context.memory().pages(query, await context.fetch(query)):
        waiting += await _without_parts(context, records(found.items, Task))
        if len(waiting) > limit:
            break
    return waiting[:limit], len(waiting) > limit


def _waiting(limit: int) -> List:
    return List(store="tasks", where={"state": "input_required"}, limit=limit)


async def _without_parts(context: RequestContext, tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks with live facts, except those that are handled as parts of others."""
    memory = context.memory()
    task_ids = [task.task_id for task in tasks]
    parts = await parts_of_open_tasks(memory, task_ids)
    facts = await facts_of(memory, task_ids)
    parts |= {task_id for task_id, each in facts.items() if each.get("merged_into")}
    return await with_incidents(memory, [task for task in tasks if task.task_id not in parts])
