"""Questions about recoveries: one a day for the same failure of the same job, however often it comes and goes."""

from datetime import datetime, timedelta

from counterpoint.client import Memory, records
from counterpoint.proto.attempts import TaskOutcomeReported
from counterpoint.proto.memory import List
from counterpoint.proto.tasks import ENDED, Task

INTERVAL = timedelta(days=1)
"""Time in which the cause of a recovery is asked for once."""
_RECOVERIES = 50
"""Ended tasks about the same failure that are looked at, the last changed first."""


async def is_asked(memory: Memory, task: Task, message: TaskOutcomeReported) -> bool:
    """Return whether an observed recovery of the same failure has been asked about within the interval.

    Raises `Transient` or `Denied`.
    """
    if message.evidence != "observed" or message.outcome != "succeeded" or task.state in ENDED:
        return False
    job = task.target.job if task.target else None
    if task.error_signature is None or job is None:
        return False
    same = {"error_signature": task.error_signature, "state": "completed", "target": {"job": job.model_dump()}}
    (found,) = await memory.query(List(store="tasks", where=same, limit=_RECOVERIES))
    since = memory.now - INTERVAL
    return any(_is_known(one, task, since) for one in records(found.items, Task))


def _is_known(one: Task, task: Task, since: datetime) -> bool:
    """Return whether another task ended after a time, and asks for its cause or was told it afterwards."""
    if one.task_id == task.task_id or one.ended_at is None or one.ended_at < since:
        return False
    return any(need.kind == "outcome" for need in one.needs) or _was_told(one, one.ended_at)


def _was_told(task: Task, ended_at: datetime) -> bool:
    """Return whether an outcome was reported after the end of a task."""
    told = (each["at"] for each in task.outcomes.values() if each.get("evidence") == "reported" and each.get("at"))
    return any(datetime.fromisoformat(at) > ended_at for at in told)
