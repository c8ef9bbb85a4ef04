"""Recorded steps: what a step of a task was given, and what it did, for a replay."""

import hashlib
import json
from typing import Any, Literal

from pydantic import Field

from counterpoint.proto.memory.commit import Outgoing, Write
from counterpoint.proto.messages import Shape, Time


class RecordedStep(Shape):
    """A commit of the project with its inbound message; the `report` is a `StepRecord`."""

    op: Literal["recorded_step"] = "recorded_step"
    commit_id: str


class RecordedAnswer(Shape):
    """Answer `number` to request `request` of the delivery that made a commit, as it was given then.

    The `report` has the salted hash of its `query`, and the `problems` of `StepRecord`.
    """

    op: Literal["recorded_answer"] = "recorded_answer"
    commit_id: str
    request: int = Field(ge=0)
    number: int = Field(ge=0)


class RecordedMessage(Shape):
    """The inbound message of a step."""

    type: str
    data: dict[str, Any]


class StepProblem(Shape):
    """A reason why a step cannot be rebuilt: a content `differs` from what the audit log attests, was `erased`, or was
    a `report`, of which the record has only the query."""

    kind: Literal["differs", "erased", "report"]
    problem: str


class StepRecord(Shape):
    """A step as it was committed. `answers` are the numbers of answers to each of its requests.

    `inbound` is None for a message that is not in the log: of an intake, or of a request over HTTP. `salt` is that of
    the leaf.
    """

    commit_id: str
    service: str
    step: str
    message_id: str
    project: str
    task_id: str | None = None
    fence: int = 0
    at: Time
    inbound: RecordedMessage | None = None
    writes: tuple[Write, ...] = ()
    messages: tuple[Outgoing, ...] = ()
    cancel_timers: tuple[str, ...] = ()
    answers: tuple[int, ...] = ()
    salt: str = ""
    read_set: tuple[str | None, ...] | None = None
    problems: tuple[StepProblem, ...] = ()


def query_digest(query: Shape) -> bytes:
    """Return the SHA-256 of a query. Fields at their defaults are left out, so that a later field changes none."""
    named = json.dumps([type(query).__name__, query.model_dump(mode="json", exclude_defaults=True)], sort_keys=True)
    return hashlib.sha256(named.encode()).digest()


def salted(digest: bytes, salt: bytes) -> str:
    """Return the hash of a query as the record has it, by the salt of the leaf."""
    return hashlib.sha256(salt + digest).hexdigest()
