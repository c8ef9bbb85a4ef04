"""The line: the reasoning of one task as a graph of actions."""

from typing import Literal

from counterpoint.proto.decisions import Source
from counterpoint.proto.messages import Id, Shape, Time

ActionKind = Literal[
    "submit",
    "route",
    "plan",
    "search",
    "assess",
    "generate",
    "validate",
    "review",
    "propose",
    "answer",
    "escalate",
    "override",
    "approval",
    "outcome",
    "learn",
    "resume",
    "complete",
    "fail",
    "cancel",
    "late",
]


class Action(Shape):
    """One step of reasoning. `after` are the actions that led to it, `coordinates_with` concurrent ones.

    `seq` is the commit order; it is absent until the action is stored.
    """

    action_id: Id
    task_id: Id
    agent: str
    kind: ActionKind | str
    reasoning: str
    result: str | None = None
    after: tuple[Id, ...] = ()
    coordinates_with: tuple[Id, ...] = ()
    sources: tuple[Source, ...] = ()
    decision_id: Id | None = None
    at: Time
    seq: int | None = None
