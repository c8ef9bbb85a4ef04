"""Worker process that runs one Cypher query from its standard input on a database that is in use, read-only and within
fixed limits, and writes the rows as JSON.

It is run as a file, so that it imports nothing of this package but the limits.
"""

import json
import re
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from counterpoint.memory.sandbox import limits

if TYPE_CHECKING:
    from ladybug import Connection, QueryResult

MEMORY_LIMIT_BYTES = 256 * 1024 * 1024
"""Memory of a query beside the buffer pool."""
REPLY_BYTES = 700_000
"""Size limit of the rows of an answer, in bytes: it must fit into a message."""
_BUFFER_BYTES = 64 * 1024 * 1024
_DATABASE_BYTES = 8 * 1024**3
_LONGEST_WALK = 200
_OPERATOR = re.compile(r"\b([A-Z][A-Z_]+)\[\d+\]")
_FUNCTION = re.compile(r"Function: (\w+)")
_WRITE_OPERATOR = re.compile(
    r"^MERGE$|^SET_|ALTER|ATTACH|COPY|CREATE|DATABASE|DELETE|DROP|EXPORT|EXTENSION|IMPORT|INSERT|STANDALONE|TRANSACT"
)
"""Names of operators that write. Reading operators are many, and new ones are added."""
_READING_FUNCTIONS = frozenset({"READ_FTABLE"})


class QueryRefused(Exception):
    """The query is refused, for the reason given."""


def check_plan(plan: str) -> None:
    """Raise `QueryRefused` for a plan with an operator or a function that does more than read the graph."""
    wrong = {operator for operator in _OPERATOR.findall(plan) if _WRITE_OPERATOR.search(operator)}
    wrong |= set(_FUNCTION.findall(plan)) - _READING_FUNCTIONS
    if wrong:
        raise QueryRefused(f"{min(wrong)} is not allowed in a read-only query")


def opened(path: str) -> "Connection":
    """Open a database, and then drop the right to open anything."""
    # The engine imports the other three with the first parameter or value of their types.
    import datetime  # noqa: F401
    import decimal  # noqa: F401
    import uuid  # noqa: F401

    import ladybug

    limits.drop_rights()
    database = ladybug.Database(
        path, read_only=True, buffer_pool_size=_BUFFER_BYTES, max_num_threads=1, max_db_size=_DATABASE_BYTES
    )
    connection = ladybug.Connection(database, num_threads=1)
    _executed(connection, f"CALL var_length_extend_max_depth={_LONGEST_WALK}", {})
    limits.limit_memory(MEMORY_LIMIT_BYTES, further=True)
    limits.close()
    return connection


def answer(connection: "Connection", query: str, parameters: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """Return the first rows as JSON values. `cut`: there are more than the limit, or than fit into a message."""
    check_plan("\n".join(str(next(iter(row))) for row in _executed(connection, f"EXPLAIN {query}", parameters)))
    found = _executed(connection, query, parameters)
    kept: list[list[Any]] = []
    size = 0
    for row in found:
        plain = [_plain(value) for value in row]
        size += len(json.dumps(plain))
        if len(kept) == limit or size > REPLY_BYTES:
            return {"columns": found.get_column_names(), "rows": kept, "cut": True}
        kept.append(plain)
    return {"columns": found.get_column_names(), "rows": kept, "cut": False}


def _executed(connection: "Connection", query: str, parameters: Mapping[str, Any]) -> "QueryResult":
    found = connection.execute(query, dict(parameters))
    if isinstance(found, list):
        raise QueryRefused("must be one statement")
    return found


def _plain(value: Any) -> Any:
    """Return nodes and edges without the engine's own ids, which change at a rebuild."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {str(name): _plain(inner) for name, inner in value.items() if name not in ("_ID", "_SRC", "_DST")}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case _:
            return str(value)


def main() -> None:
    """Read the query from the standard input, and write its rows, or the reason why there are none."""
    asked = json.load(sys.stdin)
    try:
        connection = opened(asked["path"])
        # The time counts from here: a signal ends the process, whatever the engine does.
        signal.setitimer(signal.ITIMER_REAL, asked["timeout_ms"] / 1000)
        result = answer(connection, asked["query"], asked["parameters"], asked["limit"])
        signal.setitimer(signal.ITIMER_REAL, 0)
    except QueryRefused as refused:
        result = {"refused": str(refused)}
    except Exception as error:  # noqa: BLE001 - the engine's exceptions have no common base class
        result = {"error": str(error) or type(error).__name__}
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main()
