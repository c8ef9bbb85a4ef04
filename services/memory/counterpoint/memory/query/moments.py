"""Moments: the state of a store right after a commit, or at a time.

A version is current from its own position in its project's order, or from that of the commit that restored it,
until that of the next version. The shared project has an order of its own: its moment is its last position at
that time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from counterpoint.memory.record.statements import COLUMNS, conditions
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import List
from counterpoint.proto.subjects import SHARED_PROJECT

_AT_COMMIT = """
SELECT max(seq) AS seq, max(at) AS at FROM (
    SELECT greatest(seq, changed) AS seq, at FROM records WHERE project = $1 AND commit_id = $2
    UNION ALL SELECT greatest(seq, changed), at FROM history WHERE project = $1 AND commit_id = $2
    UNION ALL SELECT seq, at FROM audit WHERE project = $1 AND id = $2) AS written
"""
_AT_TIME = """
SELECT max(seq) FROM (
    (SELECT seq FROM records WHERE project = $1 AND at <= $2 ORDER BY at DESC, seq DESC LIMIT 1)
    UNION ALL (SELECT seq FROM history WHERE project = $1 AND at <= $2 ORDER BY at DESC, seq DESC LIMIT 1)) AS written
"""
_THEN = """
SELECT {columns}, erased, task_id FROM {table}
WHERE project = {project} AND seq <= {seq} AND (changed IS NULL OR changed <= {seq}) {stood}
    AND {conditions} AND (body IS NOT NULL OR erased IS NOT NULL)
"""


@dataclass(frozen=True, slots=True)
class Moment:
    """The last place taken in the order of a project, and in that of the shared one."""

    project: str
    seq: int
    shared_seq: int

    def places(self, projects: Sequence[str]) -> list[tuple[str, int]]:
        """Each of these projects with its place."""
        return [(each, self.shared_seq if each != self.project else self.seq) for each in projects]


async def moment(connection: Any, project: str, as_of: str) -> Moment:
    """The moment right after a commit of the project, or at a time.

    Raises `Permanent` `unknown_commit` for a commit that is not the project's, `invalid` for what is neither.
    """
    at: datetime | None = None
    seq: int | None = None
    if (commit := _commit(as_of)) is not None:
        row = await connection.fetchrow(_AT_COMMIT, project, commit)
        if row["seq"] is None:
            raise Permanent(
                ErrorCode.UNKNOWN_COMMIT, (Problem(field="as_of", problem="is not a commit of this project"),)
            )
        at, seq = row["at"], row["seq"]
    else:
        at = _time(as_of)
        seq = await connection.fetchval(_AT_TIME, project, at)
    shared = await connection.fetchval(_AT_TIME, SHARED_PROJECT, at) if project != SHARED_PROJECT else seq
    return Moment(project, seq or 0, shared or 0)


def then(query: List, places: Sequence[tuple[str, int]], more: str = "", value: Any = None) -> tuple[str, list[Any]]:
    """The statement of a list over what some projects held at their places; `more` is a further condition on `value`,
    written `{value}` in it. What was erased since has no body. Raises `Permanent` as `conditions` does."""
    clauses, values = conditions(query, indexed=False)
    if more:
        values.append(value)
        clauses.append(more.format(value=f"${len(values)}"))
    parts = []
    for project, seq in places:
        values += [project, seq]
        at = f"${len(values)}"
        fixed = {"columns": COLUMNS, "project": f"${len(values) - 1}", "seq": at, "conditions": " AND ".join(clauses)}
        parts.append(_THEN.format(table="records", stood="", **fixed))
        parts.append(_THEN.format(table="history", stood=f"AND superseded > {at}", **fixed))
    order = f"ORDER BY seq {'ASC' if query.ascending else 'DESC'} LIMIT {query.limit + 1}"
    united = " UNION ALL ".join(f"({part} {order})" for part in parts)
    return f"SELECT * FROM ({united}) AS of_each_project {order}", values


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
