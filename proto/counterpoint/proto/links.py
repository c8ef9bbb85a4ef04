"""Links: pairs of tasks that a person has declared to be the same failure, or different ones (row F5)."""

import hashlib
from typing import Literal

from pydantic import Field

from counterpoint.proto.messages import Id, ProjectName, Shape, Time
from counterpoint.proto.tasks import JobRef

Relation = Literal["same", "different", "merged"]


class Side(Shape):
    """One task of a pair, with what its failure is recognised by. `attempt_id`: an attempt of it that was named."""

    task_id: Id
    error_signature: str | None = None
    error_message: str | None = None
    job: JobRef | None = None
    attempt_id: Id | None = None


class Link(Shape):
    """The word of a person, or of an agent on behalf of one, on two tasks; the record of the store `links`.

    There is one record for each pair, whatever the order, and the last word counts. `merged`: the same failure, and
    the second of `pair` is handled as a part of the first. Undoing it deletes the record.
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
        """The side that is not of `task_id`."""
        first, second = self.pair
        return second if first.task_id == task_id else first


def link_id(one: str, other: str) -> str:
    """The id of the record of a pair of tasks, whatever their order."""
    said = "\x1f".join(sorted((one, other)))
    return f"link-{hashlib.sha256(said.encode()).hexdigest()[:32]}"
