"""Four services that do next to nothing, so that what remains is the house itself: bus, memory, record, relay.

`toys.py NAME [ORDERS]` runs one of them as a process, which with ORDERS dies where it is told to (see `house`).
A task goes the usual way: submitted by NATS, routed, delegated, worked, completed.
"""

import asyncio
import sys
from pathlib import Path

from counterpoint.bus import BusSettings, Service
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.findings import Findings
from counterpoint.proto.memory import Commit, Get, RecordsChanged
from counterpoint.proto.tasks import (
    SubmitTask,
    Task,
    TaskCompleted,
    TaskDelegated,
    TaskRouted,
    TaskWorked,
)
from counterpoint.recall import Memory, act, decide, put, record, send

NAMES = ("router", "manager", "developer", "lineage")


def routed(task_id: str, project: str, message: SubmitTask, memory_now: object) -> TaskRouted:
    """The router's word."""
    return TaskRouted(
        task_id=task_id,
        project=project,
        task=message,
        submitted_by="bench",
        submitted_by_kind="system",
        submitted_at=memory_now,  # type: ignore[arg-type]
        lane="answer",
        reason="a toy",
        action_id=task_id,
    )


def delegated(message: TaskRouted) -> TaskDelegated:
    """The manager's first word."""
    return TaskDelegated(
        task_id=message.task_id,
        project=message.project,
        session_id=message.task_id,
        attempt=1,
        task=message.task,
        lane="answer",
    )


def worked(message: TaskDelegated, action_id: str) -> TaskWorked:
    """The developer's word."""
    return TaskWorked(task_id=message.task_id, attempt=1, outcome="answered", text="done", action_id=action_id)


def completed(message: TaskWorked) -> TaskCompleted:
    """The manager's last word."""
    return TaskCompleted(
        task_id=message.task_id,
        resolution="answered",
        result="done",
        cost_usd="0",  # type: ignore[arg-type]
        tokens=0,
        duration_ms=0,
        findings=Findings(),
    )


def decision_of(message: TaskRouted) -> DecisionMade:
    """The manager's decision."""
    return DecisionMade(
        decision_id=message.task_id,
        task_id=message.task_id,
        project=message.project,
        agent="manager",
        decision_type="plan",
        decision="delegate",
        reasoning="a toy",
        made_at=message.submitted_at,
    )


async def on_submit(message: SubmitTask, memory: Memory) -> Commit:
    """Route it."""
    task_id = message.task_id or memory.id("task")
    return Commit(messages=(send(routed(task_id, memory.project, message, memory.now)),))


async def on_routed(message: TaskRouted, memory: Memory) -> Commit:
    """Make the record and delegate."""
    task = Task(
        task_id=message.task_id,
        project=message.project,
        kind="question",
        state="working",
        description=message.task.description,
        submitted_by=message.submitted_by,
        submitted_at=message.submitted_at,
    )
    planned = act(memory, "manager", "plan", "a toy")
    return Commit(
        writes=(put("tasks", message.task_id, task), put("actions", planned.action_id, planned)),
        messages=(send(delegated(message)), send(decide(memory, "manager", "plan", "delegate", "a toy"))),
    )


async def on_delegated(message: TaskDelegated, memory: Memory) -> Commit:
    """Read the task and answer."""
    await memory.query(Get(store="tasks", id=message.task_id))
    answered = act(memory, "developer", "answer", "a toy")
    return Commit(
        writes=(put("actions", answered.action_id, answered),),
        messages=(send(worked(message, answered.action_id)),),
    )


async def on_worked(message: TaskWorked, memory: Memory) -> Commit:
    """Complete it."""
    seen = await memory.get("tasks", message.task_id)
    assert seen is not None
    task = record(seen, Task).model_copy(update={"state": "completed"})
    return Commit(writes=(put("tasks", message.task_id, task, seen),), messages=(send(completed(message)),))


async def on_changed(message: RecordsChanged, memory: Memory) -> Commit:
    """Take note."""
    return Commit()


def toy(name: str, settings: BusSettings) -> Service:
    """One of the services."""
    service = Service(name, settings)
    match name:
        case "router":
            service.on(SubmitTask)(on_submit)
        case "manager":
            service.on(TaskRouted)(on_routed)
            service.on(TaskWorked)(on_worked)
            service.on(RecordsChanged)(on_changed)
        case "developer":
            service.on(TaskDelegated)(on_delegated)
        case "lineage":
            service.on(RecordsChanged)(on_changed)
        case _:
            raise ValueError(name)
    return service


def _main(name: str, orders: str | None = None) -> None:
    if orders is not None:
        from chaos.house import AWAITS, Orders, patch

        given = Orders(Path(orders))
        for point in AWAITS.values():
            if point.service == name:
                patch(point, given)
    asyncio.run(toy(name, BusSettings()).run())


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    _main(*sys.argv[1:])
