"""Links: pairs of tasks that a person has declared to be the same failure, or different ones."""

import hashlib
from typing import Literal

from pydantic import Field

from counterpoint.proto.messages import Id, ProjectName, Shape, Time
from counterpoint.proto.tasks import JobRef

Relation = Literal["same", "different", "merged"]


class Side(Shape):
    """One task of a pair, with the identity of its failure. `attempt_id`: the attempt that was named."""

    task_id: Id
    error_signature: str | None = None
    error_message: str | None = None
    job: JobRef | None = None
    attempt_id: Id | None = None


class Link(Shape):
    """A statement of a person, or of an agent on behalf of one, about two tasks; a record of the store `links`.

    Each unordered pair has one record, and the last statement counts. `merged`: the same failure, and the second task
    of `pair` is handled as part of the first. Undoing a link deletes the record.
    """

    link_id: Id
    project: ProjectName
    relation: Relation | str
    pair: tuple[Side, ...] = Field(min_length=2, max_length=2)
    reason: str | None = None
    by: str
    by_kind: str
    at: Time

    def other(self, task_id: str) -> Side:
        """Return the side of the other task."""
        first, second = self.pair
        return second if first.task_id == task_id else first


class RemovedLink(Shape):
    """A link between a task and another one that a person has undone. `attempt_id`: the attempt that was named."""

    relation: Relation | str
    task_id: Id
    attempt_id: Id | None = None


def link_id(one: str, other: str) -> str:
    """Return the record id of an unordered pair of tasks."""
    identity = "\x1f".join(sorted((one, other)))
    return f"link-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"
