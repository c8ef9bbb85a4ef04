"""The context of a request to memory, and the terms of its replies."""

from typing import Any, Literal

from counterpoint.proto.errors import Problem
from counterpoint.proto.messages import ProjectName, Shape, Time


class Origin(Shape):
    """The context of a request: the inbound message, the fence of its delivery, and the handler's run over it.

    Each run starts with an empty read set. `capability` is the token of a work message. Work without a task has none
    and names the requesting `principal` instead; memory then applies the service's own grant, narrowed to `project`.
    """

    message_id: str
    fence: int = 0
    run: int = 0
    project: ProjectName
    task_id: str | None = None
    capability: str | None = None
    principal: str | None = None
    traceparent: str | None = None


class Item(Shape):
    """A record as read. `seq` orders it within its project; searches add `score` and `scores`."""

    store: str
    id: str
    project: ProjectName
    version: int
    body: dict[str, Any]
    author: str
    label: int
    integrity: int
    seq: int
    at: Time
    score: float | None = None
    scores: dict[str, float] | None = None


class Ref(Shape):
    """A reference to a version of a record."""

    store: str
    id: str
    version: int


class Refusal(Shape):
    """A refused request; `code` is an `ErrorCode` of `counterpoint.proto.errors`.

    `id` is the id of its leaf in the audit log, for `Explain`; transient refusals have none.
    """

    kind: Literal["transient", "permanent", "denied", "conflict"]
    code: str
    detail: str = ""
    needed: str = ""
    problems: tuple[Problem, ...] = ()
    id: str | None = None
