"""Approvals of lifts: decisions, deliveries and their task."""

from typing import Any

from agents.gateway_world import Door
from memory_service.house import PERSON, House

from counterpoint.client import Memory, put, record, send
from counterpoint.guard.policy import policy
from counterpoint.manager.approval_handlers import ApprovalDesk
from counterpoint.manager.handlers import ManagerHandlers
from counterpoint.manager.task_limits import TaskLimits
from counterpoint.proto.approvals import Approval, ApprovalDecided, ApprovalDecision
from counterpoint.proto.errors import Conflict
from counterpoint.proto.memory import Commit, Get, List
from counterpoint.proto.messages import Message, utc_now
from counterpoint.proto.tasks import Task

MANAGER = ManagerHandlers(TaskLimits(), ApprovalDesk(policy().approvals))


async def handle(door: Door, message_id: str, message: Message, handler: Any) -> list[str]:
    """The manager handles a message, again after a conflict: the ids of what it sends."""
    for _ in range(3):
        memory = Memory(door, "manager", door.house.delivery(message_id), utc_now())
        try:
            return list((await memory.step(await handler(message, memory))).message_ids)
        except Conflict:
            continue
    raise AssertionError("the manager met a conflict three times")


async def approval(house: House, project: str) -> Approval:
    """The approval of the project."""
    (item,) = (await house.answer("router", house.standing(project, principal=PERSON), List(store="approvals"))).items
    return record(item, Approval)


async def decide(door: Door, project: str, decision: Any = "approved") -> tuple[str, ApprovalDecided]:
    """A person decides through the router: the message to the manager."""
    memory = Memory(door, "router", door.house.standing(project, principal=PERSON), utc_now())
    waiting = await approval(door.house, project)
    item = await memory.get("approvals", waiting.approval_id)
    given = ApprovalDecision(decision=decision, artifact_sha256=waiting.artifact_sha256, reason="seen")
    decided = waiting.decided(given, PERSON, "person", memory.now)
    message = ApprovalDecided(
        approval_id=decided.approval_id,
        decision=decision,
        artifact_sha256=decided.artifact_sha256,
        by=PERSON,
        task_id="t-1",
    )
    write = put("approvals", decided.approval_id, decided, existing=item)
    done = await memory.step(Commit(writes=(write,), messages=(send(message),)))
    return done.message_ids[0], message


async def task(house: House, project: str) -> Task:
    (item,) = (await house.answer("router", house.standing(project), Get(store="tasks", id="t-1"))).items
    return record(item, Task)
