"""Reply limit: the bus carries 1 MiB, so the longest results of a reply lose their last items."""

from collections.abc import Sequence

from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import QueryPlan, QueryResult

_PAGED = frozenset({QueryPlan.LIST, QueryPlan.LOG})
"""Plans whose results continue after the `seq` of their last item."""
_AROUND_BYTES = 500
"""Size of one result without its items, in bytes."""


def shortened(found: Sequence[QueryResult], limit_bytes: int) -> tuple[QueryResult, ...]:
    """Return the results with as many items as fit. Results that were cut are `partial`, and pages have a cursor.
    Raises `Permanent` `too_large` if one item of each is still too large."""
    weights = [[len(item.model_dump_json(exclude_none=True).encode()) + 1 for item in each.items] for each in found]
    counts = [len(each) for each in weights]
    totals = [sum(each) for each in weights]
    while sum(totals) > limit_bytes - _AROUND_BYTES * len(found):
        at = max(range(len(found)), key=lambda n: totals[n] if counts[n] > 1 else -1)
        if counts[at] <= 1:
            problem = Problem(field="queries", problem=f"the reply exceeds {limit_bytes} bytes; request less")
            raise Permanent(ErrorCode.TOO_LARGE, (problem,))
        counts[at] -= 1
        totals[at] -= weights[at][counts[at]]
    return tuple(_first(each, count) for each, count in zip(found, counts, strict=True))


def _first(answer: QueryResult, count: int) -> QueryResult:
    if count == len(answer.items):
        return answer
    items = answer.items[:count]
    cursor = items[-1].seq if answer.plan in _PAGED else answer.next_cursor
    return answer.model_copy(update={"items": items, "partial": True, "next_cursor": cursor})
