"""A question over its budget in a whole house: asked, approved by command, and answered by the model."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from flows.mortal_house import MortalHouse

pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("mortal house")]
COMMAND = Path(sys.executable).with_name("counterpoint")
SAID = "The runbook says that the disk of orders is 20 GB. [1]"
DOCUMENT = "# Disk of orders\n\nThe disk of orders is 20 GB. It is extended by the storage team.\n"
QUESTION = "How large is the disk of orders?"


async def counterpoint(house: MortalHouse, *arguments: str) -> tuple[int, Any]:
    """Exit code of a command in a process of its own, and its JSON."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERPOINT_")}
    process = await asyncio.create_subprocess_exec(
        str(COMMAND), *arguments, "--json", "--data-dir", str(house.data_dir), "--project", "orders",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env=clean,
    )  # fmt: skip
    out, _ = await process.communicate()
    return process.returncode or 0, json.loads(out)


async def test_a_budget_that_ends_is_lifted_by_a_person_and_two_decisions_are_one(
    whole_mortal_house: MortalHouse,
) -> None:
    house = await whole_mortal_house.with_project("orders", {"disk.md": DOCUMENT}, SAID)
    endpoints, outside = house.stack.endpoints, house.outside
    headers = {"Authorization": f"Bearer {endpoints.token}"}
    params = {"project": "orders"}
    async with httpx.AsyncClient(base_url=endpoints.http, headers=headers, params=params, timeout=120) as http:

        async def asked(task_id: str) -> dict[str, Any]:
            body = {"kind": "question", "description": QUESTION, "task_id": task_id, "budget": {"tokens": 50}}
            return dict((await http.post("/v1/tasks", json=body, headers={"Prefer": "wait=60"})).json())

        async def settled(task_id: str) -> dict[str, Any]:
            for _ in range(4):
                task = dict((await http.get(f"/v1/tasks/{task_id}", params={"wait": 30})).json())
                if task.get("waiting_for") != "approval":
                    return task
            raise AssertionError("the task waits for an approval still")

        waiting = await asked("t-1")
        assert (waiting["state"], waiting["waiting_for"]) == ("input_required", "approval"), waiting
        assert (waiting["escalation"]["code"], waiting["escalation"]["needs"][0]["kind"]) == ("budget", "budget")
        assert "20 GB" in waiting["proposal"]
        assert not outside.seen

        _, listed = await counterpoint(house, "approvals", "--task", "t-1")
        (approval,) = listed["items"]
        assert "the budget of the task: add" in approval["artifact"]
        code, approved = await counterpoint(house, "approve", approval["approval_id"])
        assert (code, approved["state"]) == (0, "approved")
        done = await settled("t-1")
        assert (done["state"], "The runbook says" in done["result"]) == ("completed", True), done
        assert outside.seen
        _, costs = await counterpoint(house, "costs", "--by", "task")
        assert "t-1" in [line["key"] for line in costs["lines"]]

        await asked("t-2")
        _, listed = await counterpoint(house, "approvals", "--task", "t-2")
        approval_id = listed["items"][0]["approval_id"]
        outcomes = await asyncio.gather(
            counterpoint(house, "approve", approval_id),
            counterpoint(house, "reject", approval_id, "--reason", "too dear"),
        )
        assert sorted(code for code, _ in outcomes) == [0, 1]
        (winner,), (loser,) = ([said for code, said in outcomes if code == each] for each in (0, 1))
        assert f"was {winner['state']} by {winner['decided_by']}" in loser["errors"][0]["problem"]
        done = await settled("t-2")
        assert (done["state"], "The runbook says" in done["result"]) == ("completed", winner["state"] == "approved")
        report = (await http.get("/v1/audit/verify")).json()
        assert report["ok"], report
