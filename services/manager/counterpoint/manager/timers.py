"""The timers of a task: its deadline, the wait for an outcome, the pause before confidence is recomputed, and the
quiet time after which an incident is over.

A timer carries the version of the task's record at which it was set and is stale once that has moved on, so every
commit that writes the record cancels what was set and sets what the new state needs.
"""

from datetime import UTC, datetime, timedelta
from typing import Literal

from counterpoint.client import send
from counterpoint.manager.task_limits import TaskLimits
from counterpoint.proto.memory import Outgoing
from counterpoint.proto.tasks import ENDED, Task, TaskDue

Timer = Literal["deadline", "outcome", "reassess", "quiet"]
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def name_of(task_id: str, timer: Timer) -> str:
    """The name by which a timer is cancelled."""
    return f"{task_id}.{timer}"


def set_timer(task_id: str, timer: Timer, due_at: datetime) -> Outgoing:
    """A timer that comes due at `due_at`."""
    return send(TaskDue(task_id=task_id, timer=timer), due_at=due_at, timer=name_of(task_id, timer))


def running_timers(task: Task) -> tuple[str, ...]:
    """The names of the timers that may be set for a task in this state."""
    timers: list[Timer] = []
    if task.state not in ENDED:
        timers += ["deadline"] if task.deadline else []
        timers += ["outcome"] if task.waiting_for == "outcome" else []
        timers += ["quiet"] if task.quiet_s else []
        timers += ["reassess"] if task.waiting_for == "documents" else []
    return tuple(name_of(task.task_id, timer) for timer in timers)


def needed_timers(task: Task, now: datetime, limits: TaskLimits) -> tuple[Outgoing, ...]:
    """The timers that a task needs that has just come into its state."""
    timers: list[Outgoing] = []
    if task.state not in ENDED:
        if task.quiet_s:
            timers.append(set_timer(task.task_id, "quiet", now + timedelta(seconds=task.quiet_s)))
        if task.deadline:
            timers.append(set_timer(task.task_id, "deadline", task.deadline))
        if task.waiting_for == "outcome":
            timers.append(set_timer(task.task_id, "outcome", now + timedelta(seconds=limits.outcome_wait_s)))
    return tuple(timers)


def next_reassessment(now: datetime, limits: TaskLimits) -> datetime:
    """The end of the current slot of `reassess_s` seconds, so that all that is ingested in one slot counts once."""
    slot = timedelta(seconds=limits.reassess_s)
    return now + slot - (now - _EPOCH) % slot


def reassessment(task_id: str, now: datetime, limits: TaskLimits) -> Outgoing:
    """The timer after which confidence is recomputed; the same moment for all that happens in one slot."""
    return set_timer(task_id, "reassess", next_reassessment(now, limits))
