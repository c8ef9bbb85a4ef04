"""Joint decisions: decisions that are stored in the rows of the actions which name them.

An action and its decision repeat each other. If a commit inserts both, the row of the action has the identity of the
decision and the fields of its body that do not follow from the action; the view `current_records` shows both. A commit
that writes one of them again separates them first.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic_core import from_json

from counterpoint.memory.record.canonical import canonical
from counterpoint.memory.record.plan import PlannedWrite

_SAME = {
    "agent": "agent",
    "task_id": "task_id",
    "decision_id": "decision_id",
    "sources": "sources",
    "reasoning": "reasoning",
    "made_at": "at",
    "decision": "result",
    "decision_type": "kind",
}
"""Fields of a decision that follow from fields of its action, as in the function `decision_body` of the database."""


class JointDecision(NamedTuple):
    """A decision in the row of an action: index of its write, and as JSON the fields that do not follow from the
    action."""

    at: int
    fields: str


def joint_decisions(project: str, writes: Sequence[PlannedWrite]) -> dict[int, JointDecision]:
    """Return the decisions that are stored with actions of the same commit, by the index of the action."""
    decisions = {row.id: index for index, row in enumerate(writes) if row.store == "decisions" and _is_new(row)}
    joint: dict[int, JointDecision] = {}
    if not decisions:
        return joint
    for index, row in enumerate(writes):
        if row.store != "actions" or not _is_new(row):
            continue
        action = from_json(row.body or "{}")
        decision_id = action.get("decision_id")
        at = decisions.get(decision_id) if isinstance(decision_id, str) else None
        if at is None or writes[at].stamps != row.stamps:
            continue
        fields = _fields(project, action, from_json(writes[at].body or "{}"))
        if fields is not None:
            joint[index] = JointDecision(at, fields)
            del decisions[writes[at].id]
    return joint


def _is_new(row: PlannedWrite) -> bool:
    return row.expect == 0 and row.body is not None and row.place is None


def _fields(project: str, action: Mapping[str, Any], decision: Mapping[str, Any]) -> str | None:
    """Return the fields of a decision that differ from what its action implies; None if one is missing."""
    implied = {name: action.get(field) for name, field in _SAME.items()} | {"project": project}
    if not implied.keys() <= decision.keys():
        return None
    differs = {
        name: value for name, value in decision.items() if name not in implied or not _same(implied[name], value)
    }
    return canonical(differs)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON. Equal numbers, and true and 1, may differ."""
    return one == other if isinstance(one, str) else canonical(one) == canonical(other)
