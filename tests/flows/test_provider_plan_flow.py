"""The missing-provider story on a running stack: the plan is offered as an artifact, and memory stores it."""

import asyncio

import httpx

PATH = "docs/provider_plan_zeppo_mail.md"


async def test_the_plan_of_a_missing_provider_becomes_a_document_that_is_found(
    http: httpx.AsyncClient, project: str
) -> None:
    body = {"kind": "plan", "description": "Send the reports by Zeppo Mail", "systems": ["Zeppo Mail"]}
    asked = await http.post("/v1/tasks", json={**body, "project": project}, headers={"Prefer": "wait=45"})
    task = asked.raise_for_status().json()
    assert (task["state"], task["waiting_for"]) == ("input_required", "documents")
    assert task["escalation"]["code"] == "no_provider"
    assert [each["path"] for each in task["artifacts"]] == [PATH]
    async with asyncio.timeout(45):
        while True:
            wanted = {"text": "Zeppo Mail provider plan", "project": project}
            found = (await http.post("/v1/search", json=wanted)).raise_for_status().json()
            if PATH in str(found):
                break
    cancelled = await http.post(
        f"/v1/tasks/{task['task_id']}/cancel", json={"reason": "no need"}, params={"project": project}
    )
    cancelled.raise_for_status()
