"""Predicates of the demo on a task, and the fields shown when a check fails. Pure functions."""

from collections.abc import Callable
from typing import Any

from counterpoint.proto.tasks import ENDED, Task


def proposed(attempt: int) -> Callable[[Task], bool]:
    """Return a predicate: this attempt is proposed and waits for its outcome."""
    return lambda task: task.attempt == attempt and task.waiting_for == "outcome"


def waits_for(input_needed: str) -> Callable[[Task], bool]:
    """Return a predicate: the task waits for this input."""
    return lambda task: task.waiting_for == input_needed


def is_stopped(task: Task) -> bool:
    """Return whether the task waits for input."""
    return task.state == "input_required"


def is_ended(task: Task) -> bool:
    """Return whether the task has ended."""
    return task.state in ENDED


def likelihood(task: Task) -> float:
    """Return the likelihood of the proposal; 0 without one."""
    return (task.findings and task.findings.likelihood) or 0.0


def holds(text: str | None, quoted: str) -> bool:
    """Return whether a text quotes another, regardless of line breaks."""
    lines = (line.removeprefix(">").strip() for line in (text or "").splitlines())
    return " ".join(quoted.split()) in " ".join(" ".join(lines).split())


def state(task: Task) -> dict[str, Any]:
    """Return the fields that describe the state of a task."""
    shown = {"task_id", "state", "waiting_for", "attempt", "escalation", "confidence", "resumes", "resolution"}
    return task.model_dump(mode="json", include=shown, exclude_none=True)
