"""Gets, lists and walks as SQL, by columns with an index.

Row-level security passes a condition to an index only if it is leakproof: equality of a plain column is, a field or
containment of a body is not. So the fields that lists use have columns of their own, `by_` and the name, of their first
200 characters; the field itself is compared besides.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import EdgeWalk, Filter, List
from counterpoint.proto.providers import plain_text

_SQL = load_statements(__package__)

KEYS = frozenset({"state", "error_signature", "source", "target", "parent_run_id", "root_run_id", "job", "namespace"})
"""Fields of bodies that have an indexed column."""
KEY_CHARS = 200

_FIELD = re.compile(r"[a-z][a-z0-9_]{0,40}")
_PARAMETER = re.compile(r"\$(\d+)")


def conditions(query: List, *, indexed: bool = True) -> tuple[list[str], list[Any]]:
    """Return the conditions of a list on each record, and their values; with `indexed` by the generated columns,
    which history and view lack. Raises `Permanent` for an illegal field name."""
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
    if query.named_in is not None:
        values.append(f" {plain_text(query.named_in)} ")
        clauses.append(_SQL["named_in"].format(text=f"${len(values)}"))
    if query.cursor is not None:
        clause("seq >" if query.ascending else "seq <", query.cursor)
    return clauses, values


def relations(store: str) -> tuple[str, ...]:
    """Return the relations that together have the current records of a store."""
    return ("records", "joint_decisions") if store == "decisions" else ("records",)


def records_by_key(keys: Sequence[tuple[str, str, bool]]) -> tuple[str, list[Any]]:
    """Return the statement that reads records of project $1 by store and id, and its further values; the third field of
    a key says whether the shared record stands in for a missing one.

    The last key is repeated up to a power of two, so that there are few statements to be prepared.
    """
    repeated = (1 << (len(keys) - 1).bit_length()) - len(keys)
    keys = [*keys, *[keys[-1]] * repeated]
    rows = (f"(${n}::text, ${n + 1}::text, ${n + 2}::boolean)" for n in range(2, 2 + 3 * len(keys), 3))
    relation = "current_records" if any(store == "decisions" for store, _, _ in keys) else "records"
    statement = _SQL["records_by_key"].format(relation=relation, keys=", ".join(rows))
    return statement, [value for key in keys for value in key]


def listing(query: List, projects: Sequence[str]) -> tuple[str, list[Any]]:
    """Return the statement of a list over the records of some projects, and its values. Its result has one row more
    than the limit if there are more. Raises `Permanent` as `conditions` does."""
    places = relations(query.store)
    clauses, values = conditions(query, indexed=places == ("records",))
    clauses.append("body IS NOT NULL")
    parts = (
        _SQL["list_of_project"].format(
            relation=relation,
            project=f"${len(values) + n}",
            conditions=" AND ".join(clauses),
            **order_and_limit(query),
        )
        for n in range(1, len(projects) + 1)
        for relation in places
    )
    return union_of_lists(query, parts), [*values, *projects]


def joint(statements: Sequence[tuple[str, list[Any]]]) -> tuple[str, list[Any]]:
    """Return one statement for several with the same columns, and its values. Its rows have the index of their
    statement in `part`."""
    parts: list[str] = []
    values: list[Any] = []
    for n, (statement, own) in enumerate(statements):
        before = len(values)
        shifted = _PARAMETER.sub(lambda found, before=before: f"${int(found[1]) + before}", statement)  # type: ignore[misc]
        parts.append(_SQL["part"].format(number=n, statement=shifted))
        values += own
    return " UNION ALL ".join(parts), values


def order_and_limit(query: List) -> dict[str, Any]:
    """Return the fields of a template by which each part of a list and the whole are ordered and limited."""
    return {"direction": "ASC" if query.ascending else "DESC", "limit": query.limit + 1}


def union_of_lists(query: List, parts: Iterable[str]) -> str:
    """Return the statement of a list from its parts, each ordered and limited itself."""
    return _SQL["list_of_projects"].format(parts=" UNION ALL ".join(parts), **order_and_limit(query))


def matching(store: str, filter: Filter, project: str) -> tuple[str, list[Any]]:
    """Return the statement that finds the rows of vectors whose records match, in a project and the shared one, and
    its values. Raises `Permanent` as `conditions` does."""
    where = dict(filter.where)
    metadata = where.pop("metadata", None) if store == "chunks" else None
    clauses, values = conditions(List(store=store, where=where))

    def parameter(value: Any) -> str:
        values.append(value)
        return f"${len(values)}"

    own = parameter(project)
    for condition, value in (("at >=", filter.since), ("at <", filter.until)):
        if value is not None:
            clauses.append(f"{condition} {parameter(value)}")
    if metadata is not None:
        contained = parameter({"metadata": metadata})
        clauses.append(_SQL["of_matching_documents"].format(project=own, metadata=contained))
    rows = _SQL["matching_vectors"].format(project=own, conditions=" AND ".join(clauses))
    if filter.under is not None:
        rows += f" AND starts_with(source, {parameter(filter.under)})"
    return rows, values


def edge_walk(query: EdgeWalk, project: str, position: int | None = None) -> tuple[str, list[Any]]:
    """Return the statement of a walk over the edges of a project, and its values; each row has its `hops`.

    Edges after a position in the order of the project are left out.
    """
    start = list(query.start)
    keys = [node[:KEY_CHARS] for node in start]
    values: list[Any] = [project, query.store, keys, start, query.depth, query.limit, position]
    if query.direction == "both":
        return _SQL["walk_both_ways"], values
    source, target = ("source", "target") if query.direction == "down" else ("target", "source")
    return _SQL["walk_one_way"].format(source=source, target=target), values
