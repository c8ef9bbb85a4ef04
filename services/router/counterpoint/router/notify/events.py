"""Events that receivers are told: from a message about a task to what each receiver gets. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from counterpoint.guard.policy import policy
from counterpoint.proto.approvals import Approval, ApprovalDecided, ApprovalRequested
from counterpoint.proto.messages import Message
from counterpoint.proto.tasks import (
    Task,
    TaskCancelled,
    TaskCompleted,
    TaskEscalated,
    TaskFailed,
    TaskProposed,
    TaskResumed,
)
from counterpoint.router.notify.receivers import EventName, Receiver
from counterpoint.router.notify.summary import (
    Audience,
    IncidentSummary,
    owners_of,
    severity_level,
    shortened,
    summary_of,
)

EVENTS: Mapping[type[Message], EventName] = {
    TaskProposed: "proposed",
    TaskEscalated: "escalated",
    ApprovalRequested: "approval_requested",
    ApprovalDecided: "approval_decided",
    TaskResumed: "resumed",
    TaskCompleted: "completed",
    TaskFailed: "failed",
    TaskCancelled: "cancelled",
}
CONSUMED: tuple[type[Message], ...] = tuple(kind for kind in EVENTS if kind is not ApprovalDecided)
"""Events that come by the bus; a person decides an approval in the router itself."""
TEXT_CHARS, ENTRIES, DEPTH = 4000, 50, 8
"""Bounds of the texts, lists and nesting in the data of an event."""


@dataclass(frozen=True)
class TaskEvent:
    """Something that happened to a task: the message, the task's record, and the highest label of what was read.

    Without a message the record alone has changed: that is told where the task was told of before.
    `facts` are those of its incident, `changed_at` is the time of the record, `approval` the one that it waits for.
    """

    message: Message | None
    message_id: str
    at: datetime
    task: Task
    label: int
    facts: Mapping[str, Any]
    changed_at: datetime
    approval: Approval | None = None

    @property
    def name(self) -> EventName | None:
        """The name of the event, None for a change of the record alone."""
        return EVENTS[type(self.message)] if self.message is not None else None

    @property
    def previous_incident(self) -> str | None:
        """The task of the incident of the same job before this one."""
        previous = (self.task.context or {}).get("previous_incident")
        return previous if isinstance(previous, str) else None


def audience_of(receiver: Receiver, event: TaskEvent) -> Audience | None:
    """Return as what a receiver is told of an event; None if it is not told."""
    return audience_of_task(receiver, event.task, event.facts, any_kind=(event.name or "").startswith("approval"))


def audience_of_task(
    receiver: Receiver, task: Task, facts: Mapping[str, Any], *, any_kind: bool = False
) -> Audience | None:
    """Return as what a receiver is told of a task, None if it is not. `facts` are those of its incident."""
    if receiver.projects and task.project not in receiver.projects:
        return None
    if not any_kind and task.kind not in receiver.told_kinds:
        return None
    if severity_level(task.priority) < severity_level(receiver.severity):
        return None
    if not receiver.owners:
        return "all"
    owner, downstream = owners_of(task, facts)
    if owner in receiver.owners:
        return "owner"
    return "downstream" if downstream & set(receiver.owners) else None


def opens(receiver: Receiver, event: TaskEvent) -> bool:
    """Whether an event is one that a receiver is told of at once; others only update what it was told before."""
    if isinstance(event.message, ApprovalRequested) and event.message.reminder < receiver.reminder:
        return False
    at_once = receiver.digest is None or receiver.digest.tells_at_once(event.task.priority)
    return event.name in receiver.events and (at_once or event.name == "approval_requested")


def incident_of(receiver: Receiver, event: TaskEvent, audience: Audience) -> IncidentSummary:
    """Return the summary for a receiver."""
    withheld = _is_above(receiver, event)
    return summary_of(
        event.task,
        event.facts,
        audience=audience,
        owners=receiver.owners,
        approval=event.approval,
        withheld=withheld,
    )


def cloud_event_of(receiver: Receiver, event: TaskEvent) -> dict[str, Any]:
    """Return an event as a CloudEvent with bounded texts. Above the receiver's clearance it holds the id alone."""
    assert event.message is not None
    data = event.message.model_dump(mode="json", exclude_none=True)
    if _is_above(receiver, event):
        data = {"task_id": event.task.task_id, "withheld": True}
    return {
        "specversion": "1.0",
        "id": event.message_id,
        "source": "counterpoint",
        "type": event.message.TYPE,
        "time": event.at.isoformat(),
        "subject": event.task.task_id,
        "project": event.task.project,
        "datacontenttype": "application/json",
        "data": bounded(data),
    }


def bounded(value: Any, depth: int = DEPTH) -> Any:
    """Return JSON with short texts and lists, for a receiver that takes small bodies."""
    if isinstance(value, str):
        return shortened(value, TEXT_CHARS)
    if depth == 0:
        return None
    if isinstance(value, dict):
        return {name: bounded(each, depth - 1) for name, each in list(value.items())[:ENTRIES]}
    if isinstance(value, list):
        return [bounded(each, depth - 1) for each in value[:ENTRIES]]
    return value


def _is_above(receiver: Receiver, event: TaskEvent) -> bool:
    return event.label > policy().level(receiver.clearance)
