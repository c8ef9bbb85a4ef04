"""The records that a reservation rests on: the call, its spending, its task, and the limits of the project."""

from dataclasses import dataclass

from counterpoint.client import Memory, record, records
from counterpoint.guard.capabilities import Grant
from counterpoint.manager.gateway.limits import AppliedLimit, applied_limits
from counterpoint.proto.errors import Denied, ErrorCode
from counterpoint.proto.limits import LIMITS_MAX, LimitScope, StoredLimit
from counterpoint.proto.limits import STORE as LIMITS
from counterpoint.proto.memory import Get, Item, List
from counterpoint.proto.messages import Shape, Time, utc_now
from counterpoint.proto.tasks import Budget


class CallingTask(Shape):
    """The fields of a task record that say whose limits apply, how urgent a call is, and whether it is still needed."""

    budget: Budget | None = None
    session_id: str | None = None
    priority: str = "normal"
    deadline: Time | None = None
    state: str = "working"


@dataclass(frozen=True, slots=True)
class ReservationInput:
    """The records that a reservation rests on."""

    call: Item | None
    spend: Item | None
    task: CallingTask
    limits: tuple[AppliedLimit, ...]


async def read_reservation_input(memory: Memory, grant: Grant, scope: str, call_id: str) -> ReservationInput:
    """Return the records of the call, its spending, its task, and the limits of the project. Raises `Denied` `task`."""
    gets = [Get(store="model_calls", id=call_id), Get(store="spend", id=scope)]
    if grant.task is not None:
        gets.append(Get(store="tasks", id=grant.task))
    limits, *results = await memory.query(List(store=LIMITS, limit=LIMITS_MAX), *gets)
    call, spend, *tasks = (result.items[0] if result.items else None for result in results)
    if tasks == [None]:
        raise Denied(ErrorCode.TASK, "a task that may be read, for its budget")
    task = record(tasks[0], CallingTask) if tasks and tasks[0] else CallingTask()
    names: dict[LimitScope, str | None] = {
        "project": grant.project,
        "agent": calling_agent(grant),
        "session": task.session_id,
        "task": grant.task,
    }
    return ReservationInput(call, spend, task, applied_limits(records(limits.items, StoredLimit), names, utc_now()))


def calling_agent(grant: Grant) -> str | None:
    """Return the service that calls the gateway with a token."""
    return next(iter(grant.agents), None)
