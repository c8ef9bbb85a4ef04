"""A proposal that a constraint forbids is sent back once, and replayed as it was, on a whole stack."""

from typing import Any

import httpx
from flows.replayed_tasks import Tasks

from counterpoint.local.stack import Stack

ERROR = "billing.errors.LedgerLocked: ledger 4711 is locked by user batch_7"
REPORT = "The invoice run stops"
UNLOCK, RESTART = "Unlock the user batch_7 in the ledger", "Restart the ledger service"


async def test_a_forbidden_act_is_not_proposed_although_it_helped_before(
    stack: Stack, http: httpx.AsyncClient, project: str
) -> None:
    tasks = Tasks(stack, http, project)

    async def attempt(task_id: str, number: int) -> Any:
        for _ in range(100):
            params = {"project": project, "wait": 1}
            task = (await http.get(f"/v1/tasks/{task_id}", params=params)).json()
            if task["attempt"] == number and task.get("waiting_for") == "outcome":
                return task
        raise AssertionError(task)

    async def override(task_id: str, instruction: str, number: int, *constraints: str) -> None:
        given = {"instruction": instruction, "reasoning": "it is stale", "constraints": constraints}
        await tasks.post(f"/v1/tasks/{task_id}/override", given)
        await attempt(task_id, number)

    for task_id, fix, number in (("first", UNLOCK, 1), ("second", RESTART, 2), ("third", RESTART, 2)):
        await tasks.submit(task_id, "troubleshoot", REPORT, error_message=ERROR)
        await override(task_id, fix, number)
        await tasks.solved(task_id)
    shown = await tasks.submit("last", "troubleshoot", REPORT, error_message=ERROR)
    assert f"> {RESTART}" in shown["proposal"]
    await override("last", "Wait for the end of the batch", 2, "Do not restart the ledger service")
    await tasks.post("/v1/tasks/last/outcome", {"outcome": "failed", "error_message": ERROR})
    task = await attempt("last", 3)
    line = (await http.get("/v1/tasks/last/line", params={"project": project})).json()["items"]
    reviews = [each["result"] for each in line if each["agent"] == "judge"]
    assert reviews == ["pass", "pass", "send back", "pass"], task["proposal"]
    assert [each["rule"] for each in task["objections"]] == ["prohibition"]
    assert f"> {UNLOCK}" in task["proposal"]
    assert f"> {RESTART}" not in task["proposal"]
    attempts = (await http.get("/v1/attempts", params={"project": project, "task_id": "last"})).json()["items"]
    assert len(attempts) == 3
    await tasks.solved("last")
    report = await tasks.replay("last")
    assert report["verdict"] == "same", report
