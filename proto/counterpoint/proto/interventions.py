"""Interventions: what people and services ask of a task that is under way."""

from typing import Any, ClassVar

from pydantic import Field

from counterpoint.proto.messages import Id, Message
from counterpoint.proto.tasks import OverrideGiven, ShortText, Target


class Override(Message):
    """An instruction that outranks the developer's own judgement (row A6)."""

    TYPE: ClassVar[str] = "counterpoint.task.override.v1"

    task_id: Id
    instruction: ShortText
    reasoning: ShortText
    constraints: tuple[ShortText, ...] = Field(default=(), max_length=50)
    confidence_override: bool = False


class TaskOverridden(Message):
    """An override was given; the manager applies it."""

    TYPE: ClassVar[str] = "counterpoint.task.overridden.v1"

    task_id: Id
    override: OverrideGiven
    action_id: Id


class CancelTask(Message):
    """Somebody asked for a task to be cancelled."""

    TYPE: ClassVar[str] = "counterpoint.task.cancel.v1"

    task_id: Id
    by: str
    by_kind: str
    reason: str | None = None


class AmendTask(Message):
    """Point a task at another error than it was submitted with: what failed turned out to be something else.

    Work on the error before is set aside and begins again. Fields that are left out stay as they are, but `context`
    replaces what was there.
    """

    TYPE: ClassVar[str] = "counterpoint.task.amend.v1"

    task_id: Id
    by: str
    by_kind: str
    reason: ShortText
    title: str | None = Field(default=None, max_length=300)
    description: ShortText | None = None
    error_message: str | None = Field(default=None, max_length=16_000)
    target: Target | None = None
    context: dict[str, Any] | None = None
    source_ref: str | None = Field(default=None, max_length=2_000)
