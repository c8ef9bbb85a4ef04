"""Interventions in a task in progress."""

from typing import Any, ClassVar

from pydantic import Field

from counterpoint.proto.links import RemovedLink
from counterpoint.proto.messages import Id, Message
from counterpoint.proto.overrides import OverrideGiven
from counterpoint.proto.tasks import ShortText, Target


class Override(Message):
    """An instruction that takes precedence over the developer's own judgement."""

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
    """Cancel a task on behalf of a principal."""

    TYPE: ClassVar[str] = "counterpoint.task.cancel.v1"

    task_id: Id
    by: str
    by_kind: str
    reason: str | None = None


class AmendTask(Message):
    """Change the error of a task, whose failure turned out to be another one, or tell it of new or removed links.

    Work restarts; after a change of links only if that changes its card. Omitted fields keep their values; `context`
    replaces the former context as a whole.
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
    links: tuple[Id, ...] = Field(default=(), max_length=400)
    removed_links: tuple[RemovedLink, ...] = Field(default=(), max_length=400)
