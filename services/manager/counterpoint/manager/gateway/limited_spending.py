"""The spending under limits, from their records or, for a new limit, from the calls that it counts."""

from collections.abc import Sequence

from counterpoint.client import Memory, record
from counterpoint.manager.gateway.ledger import SpendRecord
from counterpoint.manager.gateway.limits import AppliedLimit
from counterpoint.proto.memory import CostReport, Get, Item


async def read_limited_spending(
    memory: Memory, limits: Sequence[AppliedLimit]
) -> list[tuple[AppliedLimit, SpendRecord, Item | None]]:
    """Return the spending under each limit as it is now, and its record if there is one."""
    if not limits:
        return []
    stored = await memory.query(*(Get(store="spend", id=limit.spend_id) for limit in limits))
    items = [found.items[0] if found.items else None for found in stored]
    new = [limit for limit, item in zip(limits, items, strict=True) if item is None]
    reports = iter(await memory.query(*(limit.costs_so_far for limit in new)))
    spending = []
    for limit, item in zip(limits, items, strict=True):
        if item is None:
            spent = limit.opened(CostReport.model_validate(next(reports).report).total)
        else:
            spent = record(item, SpendRecord)
        spending.append((limit, limit.with_limit(spent), item))
    return spending
