"""Open tasks about the same failure: the same error, of the same job, repository and systems."""

from collections.abc import Sequence

from counterpoint.client import Memory, records
from counterpoint.proto.findings import OPEN_SAME_FAILURE
from counterpoint.proto.memory import List
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import ENDED, SubmitTask, Task

_OPEN_TASKS = 200
_OPEN = ("working", "input_required")
"""States of an open task that has a record. There may be any number of ended ones with the same error."""


async def open_failure(memory: Memory, task: SubmitTask | Task) -> Task | None:
    """Return the oldest open task about the same failure; None without one. Raises `Transient` or `Denied`."""
    if task.kind != "troubleshoot" or not task.error_message:
        return None
    known, job = signature(task.error_message), task.target.job if task.target else None
    if known.generic and job is None:
        return None
    wanted = ({"error_signature": known.digest, "state": state} for state in _OPEN)
    found = await memory.query(
        *(List(store="tasks", where=where, limit=_OPEN_TASKS, ascending=True) for where in wanted)
    )
    tasks = records((item for answer in found for item in answer.items), Task)
    return open_same(sorted(tasks, key=lambda each: each.submitted_at), task)


async def with_open_failure(memory: Memory, task: Task) -> Task:
    """Return a task, with the oldest other open task about the same failure in its context.

    A task that has ended, or that is the oldest itself, has none. Raises `Transient` or `Denied`.
    """
    context = {name: value for name, value in (task.context or {}).items() if name != OPEN_SAME_FAILURE}
    other = await open_failure(memory, task) if task.state not in ENDED else None
    if other is not None and (other.submitted_at, other.task_id) < (task.submitted_at, task.task_id):
        named = other.model_dump(mode="json", include={"task_id", "submitted_by", "submitted_at"})
        context[OPEN_SAME_FAILURE] = named
    return task.model_copy(update={"context": context or None})


def open_same(tasks: Sequence[Task], task: SubmitTask | Task) -> Task | None:
    """Return the first of `tasks` with the same signature that is open and about the same failure."""
    for each in tasks:
        if each.state not in ENDED and each.task_id != task.task_id and _is_same_place(each, task):
            return each
    return None


def _is_same_place(one: Task, other: SubmitTask | Task) -> bool:
    """Return whether two tasks name the same job and repository, and no different systems."""
    if _place(one) != _place(other):
        return False
    systems, others = ({each.casefold() for each in task.systems} for task in (one, other))
    return not systems or not others or bool(systems & others)


def _place(task: Task | SubmitTask) -> tuple[object, object]:
    target = task.target
    return (target.job, target.repo) if target else (None, None)
