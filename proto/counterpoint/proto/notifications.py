"""Notifications: the work of telling receivers outside what happened to a task (docs/notify.md)."""

from typing import ClassVar

from pydantic import Field

from counterpoint.proto.messages import Id, Message


class NotificationDue(Message):
    """A delivery to a receiver is due; with `approval_id`, those that tell of the decision on an approval; with
    `task_id`, those that have told of a task that has changed without an event.

    `turn` counts the calls planned for the delivery; a message with another turn than its record has no effect.
    """

    TYPE: ClassVar[str] = "counterpoint.notification.due.v1"

    delivery_id: Id
    turn: int = Field(ge=1)
    approval_id: Id | None = None
    task_id: Id | None = None
