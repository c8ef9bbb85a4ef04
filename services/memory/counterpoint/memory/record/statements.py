"""Gets, lists and walks as SQL, by columns that an index of the record holds.

Row-level security lets a condition down to an index only when nothing can leak through it: equality of a plain column
can, a field of a body or what a body contains cannot. So the fields that are listed by have columns of their own,
`by_` and the name, of their first 200 characters; the field itself is compared besides.
"""

import re
from collections.abc import Sequence
from typing import Any

from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import EdgeWalk, Filter, List

COLUMNS = "project, store, id, version, seq, author, label, integrity, schema_version, body, at"
GETS = f"""
SELECT found.* FROM unnest($2::text[], $3::text[], $4::boolean[]) AS wanted (store, id, shared)
CROSS JOIN LATERAL (
    SELECT {COLUMNS} FROM records
    WHERE project IN ($1, CASE WHEN wanted.shared THEN 'shared' ELSE $1 END)
        AND store = wanted.store AND id = wanted.id AND body IS NOT NULL
    ORDER BY project = $1 DESC LIMIT 1) AS found
"""
"""Records by store and id, of a project; where it has none and the store is shared, the shared one."""
KEYS = frozenset({"state", "error_signature", "source", "target", "parent_run_id", "root_run_id", "job", "namespace"})
"""Fields of bodies that have an indexed column."""
KEY_CHARS = 200

_FIELD = re.compile(r"[a-z][a-z0-9_]{0,40}")
_WALK = """
WITH RECURSIVE reached(id, node, key, hops) AS (
    SELECT r.id, r.body ->> '{to}', r.by_{to}, 1 FROM records r
    WHERE r.project = $1 AND r.store = $2 AND r.by_{of} = ANY ($3) AND r.body ->> '{of}' = ANY ($4)
    UNION
    SELECT r.id, r.body ->> '{to}', r.by_{to}, w.hops + 1 FROM reached w
    JOIN records r ON r.project = $1 AND r.store = $2 AND r.by_{of} = w.key AND r.body ->> '{of}' = w.node
    WHERE w.hops < $5)
SELECT {columns}, hops FROM records r JOIN (
    SELECT id AS reached_id, min(hops) AS hops FROM reached GROUP BY id ORDER BY 2 LIMIT $6) AS nearest
ON r.project = $1 AND r.store = $2 AND r.id = reached_id ORDER BY hops, id
"""


_BOTH = """
WITH RECURSIVE reached(id, node, hops) AS (
    SELECT NULL::text, node, 0 FROM unnest($4::text[]) AS node
    UNION
    SELECT r.id, r.other, w.hops + 1
    FROM reached w CROSS JOIN LATERAL (
        SELECT id, body ->> 'target' AS other FROM records
        WHERE project = $1 AND store = $2 AND by_source = left(w.node, 200) AND body ->> 'source' = w.node
        UNION ALL
        SELECT id, body ->> 'source' AS other FROM records
        WHERE project = $1 AND store = $2 AND by_target = left(w.node, 200) AND body ->> 'target' = w.node
        OFFSET 0) AS r
    WHERE w.hops < $5 AND cardinality($3::text[]) > 0)
SELECT {columns}, hops FROM records r JOIN (
    SELECT id AS reached_id, min(hops) AS hops FROM reached WHERE id IS NOT NULL GROUP BY id ORDER BY 2 LIMIT $6
) AS nearest ON r.project = $1 AND r.store = $2 AND r.id = reached_id ORDER BY hops, id
"""


def conditions(query: List, *, indexed: bool = True) -> tuple[list[str], list[Any]]:
    """Return the conditions of a list on each record, and their values; with `indexed` by the generated columns,
    which the history lacks. Raises `Permanent` for an illegal field name."""
    clauses = ["store = $1"]
    values: list[Any] = [query.store]

    def clause(condition: str, value: Any) -> None:
        values.append(value)
        clauses.append(f"{condition} ${len(values)}")

    if query.task_id is not None:
        clause("task_id =", query.task_id)
    for name, wanted in query.where.items():
        if not _FIELD.fullmatch(name):
            raise Permanent(
                ErrorCode.INVALID, (Problem(field=f"where.{name[:40]}", problem="is not a valid field name"),)
            )
        if not isinstance(wanted, str):
            clause("body @>", {name: wanted})
            continue
        clause(f"body ->> '{name}' =", wanted)
        if indexed and name in KEYS:
            clause(f"by_{name} =", wanted[:KEY_CHARS])
        elif name == "task_id":
            clause("task_id =", wanted)
    if query.cursor is not None:
        clause("seq >" if query.ascending else "seq <", query.cursor)
    return clauses, values


def listing(query: List, projects: Sequence[str]) -> tuple[str, list[Any]]:
    """The statement of a list over the records of some projects, and its values; it finds one row more than the
    limit when there is one. Raises `Permanent` as `conditions` does."""
    clauses, values = conditions(query)
    clauses.append("body IS NOT NULL")
    order = f"ORDER BY seq {'ASC' if query.ascending else 'DESC'} LIMIT {query.limit + 1}"
    # Each project by itself: an index has no order over several.
    parts = [
        f"(SELECT {COLUMNS} FROM records WHERE project = ${len(values) + n} AND {' AND '.join(clauses)} {order})"
        for n in range(1, len(projects) + 1)
    ]
    return f"SELECT * FROM ({' UNION ALL '.join(parts)}) AS of_each_project {order}", [*values, *projects]


def matching(store: str, filter: Filter, project: str) -> tuple[str, list[Any]]:
    """The statement that finds the rows of vectors whose records match, in a project and the shared one, and its
    values. Raises `Permanent` as `conditions` does."""
    where = dict(filter.where)
    metadata = where.pop("metadata", None) if store == "chunks" else None
    clauses, values = conditions(List(store=store, where=where))
    own = f"project IN (${len(values) + 1}, 'shared')"
    values.append(project)
    for condition, value in (("at >=", filter.since), ("at <", filter.until)):
        if value is not None:
            values.append(value)
            clauses.append(f"{condition} ${len(values)}")
    if metadata is not None:
        values.append({"metadata": metadata})
        described = f"SELECT project, id FROM records WHERE {own} AND store = 'documents' AND body @> ${len(values)}"
        clauses.append(f"(project, body ->> 'document_id') IN ({described})")
    records = f"SELECT project, id FROM records WHERE {own} AND {' AND '.join(clauses)} AND body IS NOT NULL"
    rows = f"SELECT row FROM vectors WHERE {own} AND store = $1 AND (project, id) IN ({records})"
    if filter.under is not None:
        values.append(filter.under)
        rows += f" AND starts_with(source, ${len(values)})"
    return rows, values


def walking(query: EdgeWalk, project: str) -> tuple[str, list[Any]]:
    """The statement of a walk over the edges of a project, and its values; each row has its `hops`."""
    columns = ", ".join(f"r.{name}" for name in COLUMNS.split(", "))
    start = list(query.start)
    keys = [node[:KEY_CHARS] for node in start]
    values: list[Any] = [project, query.store, keys, start, query.depth, query.limit]
    if query.direction == "both":
        return _BOTH.format(columns=columns), values
    of, to = ("source", "target") if query.direction == "down" else ("target", "source")
    return _WALK.format(of=of, to=to, columns=columns), values
