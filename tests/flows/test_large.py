"""The largest submission that is allowed goes the whole way, and lists of such tasks come in pages that fit."""

import httpx

from counterpoint.proto.messages import MESSAGE_LIMIT_BYTES

TASKS = 6


async def test_tasks_of_the_largest_size_are_worked_on_and_listed(http: httpx.AsyncClient, project: str) -> None:
    log = "x" * (MESSAGE_LIMIT_BYTES - 300)
    asked = {"kind": "question", "description": "Who owns the moon?", "context": {"log": log}, "project": project}
    for number in range(TASKS):
        answer = await http.post("/v1/tasks", json={**asked, "task_id": f"large-{number}"})
        assert answer.status_code == 202, answer.text
    for number in range(TASKS):
        answer = await http.get(f"/v1/tasks/large-{number}", params={"project": project, "wait": 30})
        task = answer.json()
        assert (task["state"], task["waiting_for"]) == ("input_required", "documents")
        assert task["context"]["log"] == log
    listed, cursor = [], None
    while True:
        page = await http.get("/v1/tasks", params={"project": project} | ({"cursor": cursor} if cursor else {}))
        assert page.status_code == 200, page.text
        assert page.json()["items"]
        listed += [task["task_id"] for task in page.json()["items"]]
        cursor = page.json()["next_cursor"]
        if cursor is None:
            break
    assert sorted(listed) == [f"large-{number}" for number in range(TASKS)]
    lines = []
    async with http.stream("GET", "/v1/tasks/large-0/events", params={"project": project}) as stream:
        async for line in stream.aiter_lines():
            lines.append(line)
            if "counterpoint.task.escalated.v1" in line:
                break
    assert any("counterpoint.task.delegated.v1" in line or "counterpoint.task.submitted.v1" in line for line in lines)
