"""Message log of a project, in pages."""

from typing import Any

from counterpoint.guard.capabilities import Grant
from counterpoint.memory.record.message_bodies import whole_body
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.errors import Denied, ErrorCode
from counterpoint.proto.memory import Item, LogAfter, QueryPlan, QueryResult

_SQL = load_statements(__package__)


async def log_page(connection: Any, grant: Grant, query: LogAfter) -> QueryResult:
    """Return a page of the log of a project. Raises `Denied` `task` for the log of another task."""
    if grant.task is not None and query.task_id != grant.task:
        raise Denied(ErrorCode.TASK, "the log of the capability's task")
    kinds = list(query.kinds)
    rows = await connection.fetch(_SQL["log_after"], grant.project, query.after, kinds, query.task_id, query.limit)
    place = await connection.fetchrow(_SQL["log_bounds"], grant.project)
    last, forgotten = (place["last_seq"], place["forgotten_seq"]) if place else (0, 0)
    items = [
        Item(
            store="messages",
            id=str(row["id"]),
            project=grant.project,
            version=1,
            body={
                "type": row["type"],
                "subject": row["subject"],
                "task_id": row["task_id"],
                "data": whole_body(row),
                "time": row["at"].isoformat(),
            },
            author=row["sender"],
            label=0,
            integrity=2,
            seq=row["seq"],
            at=row["at"],
        )
        for row in rows
    ]
    # A reader that has all its messages is at the end of the log, even if other messages follow.
    cursor = rows[-1]["seq"] if len(rows) == query.limit else max(last, query.after)
    gap = query.after < forgotten
    return QueryResult(items=tuple(items), tier="record", plan=QueryPlan.LOG, took_us=0, next_cursor=cursor, gap=gap)
