"""Issue synchronization: timers of the work on issues of a forge (docs/issues.md)."""

from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from counterpoint.proto.messages import Id, Message

TrackerName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")]


class IssueDue(Message):
    """A synchronized issue is due to be compared with its forge.

    `turn` counts the calls planned for the issue; a message with another turn than its record has no effect.
    """

    TYPE: ClassVar[str] = "counterpoint.issue.due.v1"

    issue_id: Id
    turn: int = Field(ge=1)


class TrackerDue(Message):
    """A tracker is due to be polled for issues that have changed.

    `turn` counts its polls; a message with another turn than its record has no effect.
    """

    TYPE: ClassVar[str] = "counterpoint.tracker.due.v1"

    tracker: TrackerName
    turn: int = Field(ge=1)
