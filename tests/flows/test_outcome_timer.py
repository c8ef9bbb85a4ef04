"""The end of the wait for an outcome ends the incident too."""

from collections.abc import AsyncIterator

import httpx
import pytest_asyncio
from flows.incident_front import Front, event, live
from flows.own_stack import own_stack

ERROR = "LockTimeout: the partition ledger/2031 of the quarry index is held by run 7781"


@pytest_asyncio.fixture
async def front() -> AsyncIterator[Front]:
    """A house of its own that waits a second for outcomes."""
    async with own_stack(COUNTERPOINT_OUTCOME_WAIT_S="1") as stack, httpx.AsyncClient(timeout=30) as client:
        yield Front(stack, "quarry", client)


async def test_a_failure_after_the_wait_for_an_outcome_is_a_new_task_that_names_the_last(front: Front) -> None:
    async def fails(number: int) -> str:
        flow = (f"index.stones.{number}", f"flow-{number}")
        await front.post([event("FAIL", number, "index.stones", f"r-{number}", error=ERROR, parent=flow, task=True)])
        found = await front.until(lambda tasks: len(tasks) == number)
        return str(max(found, key=lambda task: task["submitted_at"])["task_id"])

    first = await fails(1)
    await front.until(lambda tasks: tasks[0]["state"] == "input_required")
    await front.report(first, "Released the lock of the run that had died.")
    await front.until(lambda tasks: not live(tasks))

    second = await fails(2)
    await front.until(lambda tasks: len(tasks) == 2 and not live(tasks))
    timed_out = await front.task(second)
    assert (timed_out["state"], timed_out["resolution"]) == ("completed", "proposed")
    assert "Released the lock" in timed_out["result"]

    third = await front.task(await fails(3))
    assert third["task_id"] not in {first, second}
    assert third["context"]["previous_incident"] == second
    assert third["context"]["repeats"]["count"] == 3
