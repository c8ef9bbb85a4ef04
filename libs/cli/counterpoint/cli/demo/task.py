"""Questions that the demo asks of a task, and the part of it that is shown where a check fails. Pure."""

from collections.abc import Callable
from typing import Any

from counterpoint.proto.tasks import ENDED, Task


def proposed(attempt: int) -> Callable[[Task], bool]:
    """Whether that attempt is proposed and waits for its outcome."""
    return lambda task: task.attempt == attempt and task.waiting_for == "outcome"


def waits_for(what: str) -> Callable[[Task], bool]:
    """Whether the task waits for that."""
    return lambda task: task.waiting_for == what


def is_stopped(task: Task) -> bool:
    """Whether the task waits for anything."""
    return task.state == "input_required"


def is_ended(task: Task) -> bool:
    """Whether the task is over."""
    return task.state in ENDED


def likelihood(task: Task) -> float:
    """The probability that what is proposed is right; 0 where there is none."""
    return (task.findings and task.findings.likelihood) or 0.0


def holds(text: str | None, quoted: str) -> bool:
    """Whether a text quotes another, wherever its lines break."""
    lines = (line.removeprefix(">").strip() for line in (text or "").splitlines())
    return " ".join(quoted.split()) in " ".join(" ".join(lines).split())


def state(task: Task) -> dict[str, Any]:
    """The fields of a task that say where it stands."""
    shown = {"task_id", "state", "waiting_for", "attempt", "escalation", "confidence", "resumes", "resolution"}
    return task.model_dump(mode="json", include=shown, exclude_none=True)
