"""Priority orders the waiting tasks of a project, on the whole house."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from flows.conftest import Outsider, publisher

from counterpoint.local.stack import Stack

PROJECT = "queue"


async def test_an_urgent_task_behind_fifty_low_ones_is_worked_on_before_most_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTERPOINT_TASKS_UNDER_WAY", "1")
    stack = Stack(tmp_path / "data", http_port=0)
    await stack.start()
    try:
        async with publisher(stack) as outsider:
            for n in range(50):
                await submit(outsider, f"low-{n}", "low")
            await submit(outsider, "urgent-1", "urgent")
            await asyncio.gather(*(routed(outsider, name) for name in ("urgent-1", *(f"low-{n}" for n in range(50)))))
            order = [body["task_id"] for subject, _, body in outsider.seen if subject.endswith(".delegated")]
    finally:
        await stack.stop()
    assert order.index("urgent-1") < 25, order


async def submit(outsider: Outsider, task_id: str, priority: str) -> None:
    task: dict[str, Any] = {
        "kind": "question", "description": f"What is {task_id}?", "task_id": task_id, "priority": priority,
    }  # fmt: skip
    await outsider.submit(PROJECT, task)


async def routed(outsider: Outsider, task_id: str) -> None:
    await outsider.until(lambda subject, body: subject.endswith(".delegated") and body.get("task_id") == task_id)
