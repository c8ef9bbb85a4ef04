"""Timers of a task: its deadline, the wait for an outcome or an approval, the delay before a reassessment, and the
quiet time after which an incident is closed.

A timer carries the version of the task's record and is stale when the record has changed. So every commit that writes
the record cancels the timers and sets those of the new state.
"""

from datetime import UTC, datetime, timedelta
from typing import Literal

from counterpoint.client import send
from counterpoint.manager.task_limits import TaskLimits
from counterpoint.proto.memory import Outgoing
from counterpoint.proto.tasks import ENDED, Task, TaskDue

Timer = Literal["deadline", "outcome", "reassess", "quiet", "approval"]
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def timer_name(task_id: str, timer: Timer) -> str:
    """Return the name of a timer, which cancels it."""
    return f"{task_id}.{timer}"


def set_timer(task_id: str, timer: Timer, due_at: datetime) -> Outgoing:
    """Return the message of a timer that is due at `due_at`."""
    return send(TaskDue(task_id=task_id, timer=timer), due_at=due_at, timer=timer_name(task_id, timer))


def tool_reminder(task_id: str, approval_id: str, due_at: datetime) -> Outgoing:
    """Return the message that is due when an approval for a tool is reminded of. It has no name, so that it is not
    stale when the task, which goes on meanwhile, has changed."""
    return send(TaskDue(task_id=task_id, timer="tool_approval", approval_id=approval_id), due_at=due_at)


def running_timers(task: Task) -> tuple[str, ...]:
    """Return the names of all timers that may be set in the task's state."""
    timers: list[Timer] = []
    if task.state not in ENDED:
        timers += ["deadline"] if task.deadline else []
        timers += ["outcome"] if task.waiting_for == "outcome" else []
        timers += ["quiet"] if task.quiet_s else []
        timers += ["approval"] if task.waiting_for == "approval" else []
        timers += ["reassess"] if task.waiting_for == "documents" else []
    return tuple(timer_name(task.task_id, timer) for timer in timers)


def needed_timers(task: Task, now: datetime, limits: TaskLimits) -> tuple[Outgoing, ...]:
    """Return the timers that a task needs after a transition."""
    timers: list[Outgoing] = []
    if task.state not in ENDED:
        if task.quiet_s:
            timers.append(set_timer(task.task_id, "quiet", now + timedelta(seconds=task.quiet_s)))
        if task.deadline:
            timers.append(set_timer(task.task_id, "deadline", task.deadline))
        if task.waiting_for == "approval" and task.approval:
            timers.append(set_timer(task.task_id, "approval", task.approval.next_check(now)))
        if task.waiting_for == "outcome":
            timers.append(set_timer(task.task_id, "outcome", now + timedelta(seconds=limits.outcome_wait_s)))
    return tuple(timers)


def next_reassessment(now: datetime, limits: TaskLimits) -> datetime:
    """Return the end of the current slot of `reassess_s` seconds. All ingests in a slot cause one reassessment."""
    slot = timedelta(seconds=limits.reassess_s)
    return now + slot - (now - _EPOCH) % slot


def reassessment(task_id: str, now: datetime, limits: TaskLimits) -> Outgoing:
    """Return the timer of a reassessment, at the end of the current slot."""
    return set_timer(task_id, "reassess", next_reassessment(now, limits))
