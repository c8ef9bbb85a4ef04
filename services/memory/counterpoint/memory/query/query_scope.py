"""Scope of queries: the store that each reads, and whether a request needs a transaction."""

from collections.abc import Sequence
from typing import TypeVar

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

_READS_AT_ONCE = 16
"""Maximum number of reads in one statement. A much longer statement would not be kept prepared."""
_Statement = TypeVar("_Statement")


def store_of(query: MemoryQuery) -> str:
    """Return the store whose read right a query needs."""
    if isinstance(query, AuditQuery):
        return "audit"
    return _STORE_OF.get(query.op) or query.store  # type: ignore[union-attr]


def is_record_read(query: MemoryQuery) -> bool:
    """Whether a query is one for records by key or a list, as they are now."""
    return isinstance(query, Get | List) and query.as_of is None


def read_statements(reads: Sequence[_Statement]) -> list[Sequence[_Statement]]:
    """Group reads by the statement that they are part of."""
    return [reads[start : start + _READS_AT_ONCE] for start in range(0, len(reads), _READS_AT_ONCE)]


def one_statement(queries: Sequence[MemoryQuery]) -> bool:
    """Whether a request is answered by one statement, which needs no transaction to see one state."""
    if len(queries) == 1 and isinstance(queries[0], Line | EdgeWalk):
        return queries[0].as_of is None
    # All records by key are one read.
    reads = sum(isinstance(query, List) for query in queries) + any(isinstance(query, Get) for query in queries)
    return reads <= _READS_AT_ONCE and all(map(is_record_read, queries))
