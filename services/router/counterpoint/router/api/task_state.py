"""The state of a task, read at once or watched until the task is settled."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from counterpoint.client import record
from counterpoint.proto.memory import Get
from counterpoint.proto.tasks import ENDED, Task
from counterpoint.router.api.context import RequestContext
from counterpoint.router.intake import interventions
from counterpoint.router.intake.submissions import STORE, Submission, task_key


def is_settled(task_record: Task) -> bool:
    """Return whether a task has ended or waits for input."""
    return task_record.state in ENDED or task_record.state == "input_required"


async def wait_for_task(context: RequestContext, task_id: str, wait_s: float) -> Task:
    """Return a task once it is settled, or after `wait_s`. Raises `Permanent` `unknown_task`."""
    async with aclosing(watch_task(context, task_id, wait_s)) as readings:
        async for task_record in readings:
            if is_settled(task_record):
                break
    return task_record


async def watch_task(context: RequestContext, task_id: str, wait_s: float) -> AsyncGenerator[Task]:
    """Yield a task now and whenever it may have changed, for `wait_s` or until the router stops.

    Raises `Permanent` `unknown_task`.
    """
    settings, clock = context.resources.settings, asyncio.get_running_loop()
    deadline = clock.time() + min(wait_s, settings.wait_limit_s)
    with context.resources.hub.listen(context.project, task_id) as listener:
        while True:
            listener.clear()
            yield await listener.until_closed(current_task(context, task_id))
            remaining_s = deadline - clock.time()
            if remaining_s <= 0:
                return
            await listener.wait(min(remaining_s, settings.poll_s))
            if listener.closed:
                return


async def current_task(context: RequestContext, task_id: str) -> Task:
    """Return a task as it is. Raises `Permanent` `unknown_task`."""
    tasks_found, accepted = await context.memory().query(
        Get(store="tasks", id=task_id), Get(store=STORE, id=task_key(task_id))
    )
    submission = record(accepted.items[0], Submission) if accepted.items else None
    if tasks_found.items:
        task_record = record(tasks_found.items[0], Task)
        return task_record.model_copy(update={"ignored": submission.ignored}) if submission else task_record
    if submission is None:
        raise interventions.unknown_task(context.project)
    return submission.as_task()
