"""Overrides as recorded, and the constraints that they set."""

from counterpoint.proto.messages import Id, Shape


class OverrideGiven(Shape):
    """A recorded override; `by` and `by_kind` are those of the principal, never of the body. `action_id`: its action on
    the line."""

    instruction: str
    reasoning: str
    constraints: tuple[str, ...] = ()
    confidence_override: bool = False
    by: str
    by_kind: str
    action_id: Id | None = None


class TaskConstraint(Shape):
    """A constraint that an override has set for all later proposals of its task; `by` and `by_kind` as in
    `OverrideGiven`."""

    text: str
    by: str
    by_kind: str
