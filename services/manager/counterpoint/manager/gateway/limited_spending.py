"""The spending under limits, from their records or, for a new limit, from the calls that it counts."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from counterpoint.client import Memory, record
from counterpoint.manager.gateway.ledger import SpendRecord
from counterpoint.manager.gateway.limits import AppliedLimit
from counterpoint.proto.memory import CostReport, Get, Item

LimitedSpending = tuple[AppliedLimit, SpendRecord, Item | None]
"""A limit, the spending under it, and the record of that if there is one."""


async def read_limited_spending(
    memory: Memory,
    limits: Sequence[AppliedLimit],
    known: Mapping[str, Item | None] = MappingProxyType({}),
) -> list[LimitedSpending]:
    """Return the spending under each limit as it is now, and its record if there is one. `known` has records that were
    read already, by id."""
    if not limits:
        return []
    unread = [limit.spend_id for limit in limits if limit.spend_id not in known]
    stored = await memory.query(*(Get(store="spend", id=each) for each in unread))
    items = {
        **known,
        **{each: found.items[0] if found.items else None for each, found in zip(unread, stored, strict=True)},
    }
    new = [limit for limit in limits if items[limit.spend_id] is None]
    reports = iter(await memory.query(*(limit.costs_so_far for limit in new)))
    spending = []
    for limit in limits:
        item = items[limit.spend_id]
        if item is None:
            spent = limit.opened(CostReport.model_validate(next(reports).report).total)
        else:
            spent = record(item, SpendRecord)
        spending.append((limit, limit.with_limit(spent), item))
    return spending
