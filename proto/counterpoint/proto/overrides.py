"""Overrides as recorded, and the constraints that they set."""

from counterpoint.proto.messages import Shape


class OverrideGiven(Shape):
    """A recorded override; `by` and `by_kind` are those of the principal, never of the body."""

    instruction: str
    reasoning: str
    constraints: tuple[str, ...] = ()
    confidence_override: bool = False
    by: str
    by_kind: str


class TaskConstraint(Shape):
    """A constraint that an override has set for all later proposals of its task; `by` and `by_kind` as in
    `OverrideGiven`."""

    text: str
    by: str
    by_kind: str
