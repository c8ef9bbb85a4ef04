"""Spending under the limits that apply to a task, and the records of limits that are lifted."""

from collections.abc import Sequence

from counterpoint.client import Memory, put, record, records
from counterpoint.manager.gateway.ledger import SpendRecord
from counterpoint.manager.gateway.lifts import CountedSpend
from counterpoint.manager.gateway.limited_spending import read_limited_spending
from counterpoint.manager.gateway.limits import applied_limits
from counterpoint.proto.approvals import Lift
from counterpoint.proto.limits import LIMITS_MAX, LimitScope, StoredLimit
from counterpoint.proto.limits import STORE as LIMITS
from counterpoint.proto.memory import Get, List, Write
from counterpoint.proto.tasks import Task

CALLER = "developer"
"""The agent whose calls a task pays for, besides tools of principals."""


async def read_counted(memory: Memory, task: Task, caller: str = CALLER) -> list[CountedSpend]:
    """Read the spending of a task, and that under each limit that applies to calls of an agent for it."""
    found, own = await memory.query(List(store=LIMITS, limit=LIMITS_MAX), Get(store="spend", id=task.task_id))
    names: dict[LimitScope, str | None] = {
        "project": task.project,
        "agent": caller,
        "session": task.session_id,
        "task": task.task_id,
    }
    limits = applied_limits(records(found.items, StoredLimit), names, memory.now)
    item = own.items[0] if own.items else None
    spend = record(item, SpendRecord) if item else SpendRecord.initial(task.task_id, task.budget)
    limited = await read_limited_spending(memory, limits)
    return [
        CountedSpend(task.task_id, spend, item),
        *(CountedSpend(limit.spend_id, spent, stored) for limit, spent, stored in limited),
    ]


def lifted(counted: Sequence[CountedSpend], lifts: Sequence[Lift]) -> tuple[Write, ...]:
    """Return the writes that lift limits; none if one of them is not as shown any more."""
    by_id = {each.spend_id: each for each in counted}
    if not all(lift.spend_id in by_id and by_id[lift.spend_id].is_as_shown(lift) for lift in lifts):
        return ()
    pairs = [(by_id[lift.spend_id], lift) for lift in lifts]
    return tuple(put("spend", each.spend_id, each.lifted(lift), existing=each.item) for each, lift in pairs)
