"""Order and wording of tasks in lists."""

from collections.abc import Sequence
from typing import Any

_KINDS = {"troubleshoot": 0, "develop": 1, "plan": 1, "question": 2}
_PRIORITIES = {"urgent": 0, "high": 1, "normal": 2, "low": 3}

TaskRow = dict[str, Any]
"""A task as HTTP gives it."""


def title(task: TaskRow) -> str:
    """Return the title of a task, in at most 80 characters."""
    from counterpoint.proto.titles import title_of

    job = ((task.get("target") or {}).get("job") or {}).get("name")
    return title_of(task["description"], task.get("title"), task.get("error_message"), job)


def by_submission(tasks: Sequence[TaskRow]) -> list[TaskRow]:
    """Return tasks by the time they were submitted, the latest first."""
    return sorted(tasks, key=lambda task: task.get("submitted_at") or "", reverse=True)


def by_urgency(tasks: Sequence[TaskRow]) -> list[TaskRow]:
    """Return waiting tasks by urgency: incidents, plans and code, then questions; within these by priority, number of
    downstream nodes, and time, the latest first."""
    return sorted(by_submission(tasks), key=_urgency)


def _urgency(task: TaskRow) -> tuple[int, int, int]:
    rests = (task.get("findings") or {}).get("downstream") or ()
    known = {(row["kind"], row["namespace"], row["name"]) for row in rests if not row.get("claimed_by")}
    return _KINDS.get(task["kind"], 1), _PRIORITIES.get(task.get("priority", "normal"), 2), -len(known)
