"""Stub services: handlers that decide nothing, so that only bus, memory, record and relay are measured.

`python -m counterpoint.bench.stub_services NAME` runs one of them, with `idle` one that consumes nothing. A task takes
the usual path: submitted over NATS, routed, delegated, worked, completed.
"""

import asyncio
import sys
from datetime import datetime
from decimal import Decimal

from counterpoint.bus import BusSettings, Service
from counterpoint.client import Memory, act, decide, put, record, send
from counterpoint.local.service import ServiceName
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

NAMES: tuple[ServiceName, ...] = ("router", "manager", "developer", "lineage")


def routed(task_id: str, project: str, message: SubmitTask, submitted_at: datetime) -> TaskRouted:
    """Return the router's message for a submission."""
    return TaskRouted(
        task_id=task_id,
        project=project,
        task=message,
        submitted_by="bench",
        submitted_by_kind="system",
        submitted_at=submitted_at,
        lane="answer",
        reason="a stub",
        action_id=task_id,
    )


def delegated(message: TaskRouted) -> TaskDelegated:
    """Return the manager's delegation."""
    return TaskDelegated(
        task_id=message.task_id,
        project=message.project,
        session_id=message.task_id,
        attempt=1,
        task=message.task,
        lane="answer",
    )


def worked(message: TaskDelegated, action_id: str) -> TaskWorked:
    """Return the developer's result."""
    return TaskWorked(task_id=message.task_id, attempt=1, outcome="answered", text="done", action_id=action_id)


def completed(message: TaskWorked) -> TaskCompleted:
    """Return the manager's end of the task."""
    return TaskCompleted(
        task_id=message.task_id,
        resolution="answered",
        result="done",
        cost_usd=Decimal(0),
        tokens=0,
        duration_ms=0,
        findings=Findings(),
    )


def decision_of(message: TaskRouted) -> DecisionMade:
    """Return the manager's decision to delegate."""
    return DecisionMade(
        decision_id=message.task_id,
        task_id=message.task_id,
        project=message.project,
        agent="manager",
        decision_type="plan",
        decision="delegate",
        reasoning="a stub",
        made_at=message.submitted_at,
    )


async def on_submit(message: SubmitTask, memory: Memory) -> Commit:
    """Route a submission."""
    task_id = message.task_id or memory.id("task")
    return Commit(messages=(send(routed(task_id, memory.project, message, memory.now)),))


async def on_routed(message: TaskRouted, memory: Memory) -> Commit:
    """Record the task and delegate it."""
    task = Task(
        task_id=message.task_id,
        project=message.project,
        kind="question",
        state="working",
        description=message.task.description,
        submitted_by=message.submitted_by,
        submitted_at=message.submitted_at,
    )
    planned = act(memory, "manager", "plan", "a stub")
    return Commit(
        writes=(put("tasks", message.task_id, task), put("actions", planned.action_id, planned)),
        messages=(send(delegated(message)), send(decide(memory, "manager", "plan", "delegate", "a stub"))),
    )


async def on_delegated(message: TaskDelegated, memory: Memory) -> Commit:
    """Read the task and answer it."""
    await memory.query(Get(store="tasks", id=message.task_id))
    answered = act(memory, "developer", "answer", "a stub")
    return Commit(
        writes=(put("actions", answered.action_id, answered),),
        messages=(send(worked(message, answered.action_id)),),
    )


async def on_worked(message: TaskWorked, memory: Memory) -> Commit:
    """Complete the task."""
    item = await memory.get("tasks", message.task_id)
    assert item is not None
    task = record(item, Task).model_copy(update={"state": "completed"})
    return Commit(writes=(put("tasks", message.task_id, task, item),), messages=(send(completed(message)),))


async def on_changed(message: RecordsChanged, memory: Memory) -> Commit:
    """Commit nothing."""
    return Commit()


def stub_service(name: str, settings: BusSettings) -> Service:
    """Return the stub of a service."""
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


if __name__ == "__main__":
    name, *idle = sys.argv[1:]
    asyncio.run((Service(name, BusSettings()) if idle else stub_service(name, BusSettings())).run())
