"""The records that reservations rest on: the calls, their spending, their task, and the limits of the project."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from counterpoint.client import Memory, record, records
from counterpoint.guard.capabilities import Grant
from counterpoint.manager.gateway.limited_spending import LimitedSpending, read_limited_spending
from counterpoint.manager.gateway.limits import applied_limits
from counterpoint.proto.errors import Denied, ErrorCode
from counterpoint.proto.limits import LIMITS_MAX, LimitScope, StoredLimit
from counterpoint.proto.limits import STORE as LIMITS
from counterpoint.proto.memory import Get, Item, List
from counterpoint.proto.messages import Shape, Time, utc_now
from counterpoint.proto.tasks import Budget


class CallingTask(Shape):
    """The fields of a task record that say whose limits apply, how urgent a call is, whether it is still needed, and
    which search of the web is permitted."""

    budget: Budget | None = None
    session_id: str | None = None
    priority: str = "normal"
    deadline: Time | None = None
    state: str = "working"
    autonomy: str = "supervised"
    permitted_search: str | None = None


@dataclass(frozen=True, slots=True)
class ReservationInput:
    """The records that reservations rest on: `calls` by id, as far as they are there."""

    calls: Mapping[str, Item]
    spend: Item | None
    task: CallingTask
    limited: tuple[LimitedSpending, ...]

    @property
    def limit_ids(self) -> tuple[str, ...]:
        """Ids of the records of spending under limits."""
        return tuple(limit.spend_id for limit, _, _ in self.limited)


async def read_reservation_input(
    memory: Memory, grant: Grant, scope: str, call_ids: Sequence[str], limit_ids: Sequence[str]
) -> ReservationInput:
    """Return the records of calls, their spending, their task, and the limits of the project with the spending under
    them. One request reads all if `limit_ids` are still the ids of that spending. Raises `Denied` `task`."""
    gets = [*(("model_calls", each) for each in call_ids), *(("spend", each) for each in (scope, *limit_ids))]
    if grant.task is not None:
        gets.append(("tasks", grant.task))
    limits, *results = await memory.query(
        List(store=LIMITS, limit=LIMITS_MAX), *(Get(store=store, id=each) for store, each in gets)
    )
    found = {key: result.items[0] if result.items else None for key, result in zip(gets, results, strict=True)}
    task = CallingTask()
    if grant.task is not None:
        item = found["tasks", grant.task]
        if item is None:
            raise Denied(ErrorCode.TASK, "a task that may be read, for its budget")
        task = record(item, CallingTask)
    names: dict[LimitScope, str | None] = {
        "project": grant.project,
        "agent": calling_agent(grant),
        "session": task.session_id,
        "task": grant.task,
    }
    limited = await read_limited_spending(
        memory,
        applied_limits(records(limits.items, StoredLimit), names, utc_now()),
        {each: found["spend", each] for each in limit_ids},
    )
    calls = {each: item for each in call_ids if (item := found["model_calls", each]) is not None}
    return ReservationInput(calls, found["spend", scope], task, tuple(limited))


def calling_agent(grant: Grant) -> str | None:
    """Return the service that calls the gateway with a token."""
    return next(iter(grant.agents), None)
