"""Commits: the effects of one step, and the messages that memory sends about them."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from counterpoint.proto.errors import Problem
from counterpoint.proto.memory.request import Origin, Ref, Refusal
from counterpoint.proto.messages import Id, Message, ProjectName, Shape, Time
from counterpoint.proto.upcast import current_version


class Write(Shape):
    """A new version of a record. `expect` is the version the writer read, 0 for a new record; no `body` deletes it.

    `schema_version` is the writer's; a writer older than the stored version is refused.
    """

    store: str
    id: str
    body: dict[str, Any] | None = None
    expect: int = Field(default=0, ge=0)
    schema_version: int = Field(default_factory=lambda given: current_version(given.get("store", "")), ge=1)


class Outgoing(Shape):
    """A message to send; its type determines the subject. With `due_at` it is a timer, cancelled by its id `timer`."""

    type: str
    data: dict[str, Any]
    task_id: str | None = None
    due_at: Time | None = None
    timer: str | None = None


class DeadLetter(Shape):
    """A message that cannot be handled, as received, with the error."""

    code: str
    problems: tuple[Problem, ...] = ()
    subject: str
    headers: dict[str, str] = {}
    body: str


class Commit(Shape):
    """The effects of one step, applied once and atomically.

    Only the `last` step may send workflow messages or change workflow state.
    """

    step: str = "done"
    last: bool = True
    writes: tuple[Write, ...] = ()
    messages: tuple[Outgoing, ...] = ()
    cancel_timers: tuple[str, ...] = ()
    dead_letter: DeadLetter | None = None


class CommitRequest(Shape):
    """A commit with its context.

    `reads` is the number of answered query requests of this delivery: memory refuses the commit as transient when it no
    longer has their read set.
    """

    origin: Origin
    reads: int = 0
    commit: Commit


class CommitReply(Shape):
    """The outcome of a commit.

    `replayed`: the step was applied before, and this is its stored outcome. `stale`: the task is at a later version,
    and nothing was applied. `versions` maps `store/id` to the version written.
    """

    status: Literal["done", "replayed", "stale", "refused"]
    versions: dict[str, int] = {}
    message_ids: tuple[str, ...] = ()
    refusal: Refusal | None = None


class RecordsChanged(Message):
    """A commit was applied: what its service read and wrote. Published on `changes.<project>.<service>`.

    If no service acts on it, it is only live. `ended`: the commit ended its task.
    """

    TYPE: ClassVar[str] = "counterpoint.records.changed.v1"

    commit_id: Id
    project: ProjectName
    service: str
    task_id: Id | None = None
    reads: tuple[Ref, ...] = ()
    writes: tuple[Ref, ...] = ()
    ended: bool = False
    at: Time


class MessageDied(Message):
    """A message was dead-lettered."""

    TYPE: ClassVar[str] = "counterpoint.message.died.v1"

    dead_letter_id: Id
    consumer: str
    subject: str
    code: str
    problems: tuple[Problem, ...] = ()
