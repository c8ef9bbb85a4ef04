"""Tasks under way: from their first message to their last, each once, and none for ever."""

import asyncio

import pytest
from bus.small_house import eventually

from counterpoint.proto.messages import Message
from counterpoint.proto.tasks import TaskCompleted, TaskEscalated, TaskProposed, TaskRouted, TaskSubmitted
from counterpoint.router.intake import running_tasks
from counterpoint.router.intake.running_tasks import RunningTasks


def heard(tasks: RunningTasks, message: type[Message], *task_ids: str) -> None:
    for task_id in task_ids:
        tasks.on_message("live.tasks.p.x", {"ce-type": message.TYPE, "ce-correlationid": task_id})


async def test_a_task_is_under_way_from_its_submission_to_its_end() -> None:
    tasks = RunningTasks(2)
    heard(tasks, TaskSubmitted, "a", "a", "b")
    assert tasks.limiter.locked()
    heard(tasks, TaskRouted, "a")
    heard(tasks, TaskCompleted, "c")
    assert tasks.limiter.locked()
    for end, task_id in ((TaskCompleted, "a"), (TaskProposed, "b"), (TaskEscalated, "b")):
        heard(tasks, end, task_id)
        assert not tasks.limiter.locked()


async def test_the_end_of_a_task_lets_the_next_one_in() -> None:
    tasks = RunningTasks(1)
    heard(tasks, TaskSubmitted, "a")
    let_in = asyncio.Event()

    async def wait() -> None:
        async with tasks.limiter.slot("p"):
            let_in.set()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    assert not let_in.is_set()
    heard(tasks, TaskCompleted, "a")
    await waiting


async def test_a_task_without_an_end_stops_counting_as_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_tasks, "LOAD_LIMIT_S", 0.01)
    tasks = RunningTasks(1)
    heard(tasks, TaskSubmitted, "a", "b")
    async with tasks.limiter.slot("p"):
        heard(tasks, TaskSubmitted, "c")
    await eventually(lambda: not tasks.limiter.locked())
