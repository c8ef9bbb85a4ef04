"""Scope of queries: the store that each reads, and whether a request needs a transaction."""

from collections.abc import Sequence

from counterpoint.proto.memory import AuditQuery, EdgeWalk, Get, Line, List, MemoryQuery

_STORE_OF = {
    "line": "actions",
    "costs": "spend",
    "log_after": "decisions",
    "cypher": "projections",
    "rebuild": "projections",
    "reembed": "projections",
    "health": "projections",
    "organisation_limits": "limits",
    "recorded_step": "audit",
    "recorded_answer": "audit",
}


def store_of(query: MemoryQuery) -> str:
    """Return the store whose read right a query needs."""
    if isinstance(query, AuditQuery):
        return "audit"
    return _STORE_OF.get(query.op) or query.store  # type: ignore[union-attr]


def one_statement(queries: Sequence[MemoryQuery]) -> bool:
    """Whether a request is answered by one statement, which needs no transaction to see one state."""
    if any(getattr(query, "as_of", None) is not None for query in queries):
        return False
    if len(queries) == 1:
        return isinstance(queries[0], Get | List | Line | EdgeWalk)
    return all(isinstance(query, Get) for query in queries)
