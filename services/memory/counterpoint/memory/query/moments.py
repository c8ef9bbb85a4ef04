"""Moments: the state of a store right after a commit, or at a time.

A version is current from its own position in its project's order, or from that of the commit that restored it, until
that of the next version. The shared project has an order of its own: its moment is its last position at that time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from counterpoint.memory.record.sql_files import load_statements
from counterpoint.memory.record.statements import conditions, order_and_limit, relations, union_of_lists
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import List
from counterpoint.proto.subjects import SHARED_PROJECT

_SQL = load_statements(__package__)


@dataclass(frozen=True, slots=True)
class Moment:
    """Last position in the order of a project, and in that of the shared one."""

    project: str
    seq: int
    shared_seq: int

    def positions(self, projects: Sequence[str]) -> list[tuple[str, int]]:
        """Return each of these projects with its position."""
        return [(each, self.shared_seq if each != self.project else self.seq) for each in projects]


async def moment(connection: Any, project: str, as_of: str) -> Moment:
    """Return the moment right after a commit of the project, or at a time.

    Raises `Permanent` `unknown_commit` for a commit of another project or none, `invalid` for anything else than an id
    or a time.
    """
    at: datetime | None = None
    seq: int | None = None
    if (commit := _commit(as_of)) is not None:
        row = await connection.fetchrow(_SQL["position_of_commit"], project, commit)
        if row["seq"] is None:
            raise Permanent(
                ErrorCode.UNKNOWN_COMMIT, (Problem(field="as_of", problem="is not a commit of this project"),)
            )
        at, seq = row["at"], row["seq"]
    else:
        at = _time(as_of)
        seq = await connection.fetchval(_SQL["position_at_time"], project, at)
    shared = (
        await connection.fetchval(_SQL["position_at_time"], SHARED_PROJECT, at) if project != SHARED_PROJECT else seq
    )
    return Moment(project, seq or 0, shared or 0)


def then(query: List, positions: Sequence[tuple[str, int]], record_id: str | None = None) -> tuple[str, list[Any]]:
    """Return the statement of a list as some projects were at their positions, and its values; with `record_id`, of
    the record alone. Erased records have no body. Raises `Permanent` as `conditions` does."""
    clauses, values = conditions(query, indexed=False)
    if record_id is not None:
        values.append(record_id)
        clauses.append(f"id = ${len(values)}")
    parts = []
    for project, seq in positions:
        values += [project, seq]
        fields = {"project": f"${len(values) - 1}", "position": f"${len(values)}", "conditions": " AND ".join(clauses)}
        for relation in relations(query.store):
            current = fields | {"relation": relation}
            parts.append(_SQL["current_versions_then"].format(**current, **order_and_limit(query)))
        parts.append(_SQL["superseded_versions_then"].format(**fields, **order_and_limit(query)))
    return union_of_lists(query, parts), values


def _commit(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        problem = Problem(field="as_of", problem="is neither the id of a commit nor a time")
        raise Permanent(ErrorCode.INVALID, (problem,)) from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)
