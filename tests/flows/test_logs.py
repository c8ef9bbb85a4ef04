"""The logs of a running house say what each service did about a task, and nothing of what its user wrote."""

import json
from typing import Any

import httpx

from counterpoint.local.stack import Stack

SECRET = "zanzibarquux"
TASKS = 3
STEPS = {
    "router": {"task.submitted", "task.routed"},
    "manager": {"task.delegated", "task.escalated"},
    "developer": {"task.worked", "decision.made"},
}


async def test_each_service_logs_what_it_did_about_each_task(
    stack: Stack, http: httpx.AsyncClient, project: str
) -> None:
    logs = stack.data_dir / "logs"
    before = {path.name: len(path.read_text()) for path in logs.glob("*.log")}
    for n in range(TASKS):
        task = {"task_id": f"t-{n}", "kind": "question", "description": f"Why does {SECRET} fail?", "project": project}
        waited = await http.post("/v1/tasks", json=task, headers={"Prefer": "wait=30"})
        waited.raise_for_status()
    said = {
        name: (logs / f"{name}.log").read_text()[before[f"{name}.log"] :]
        for name in ("postgres", *stack.endpoints.services)
    }
    for service, wanted in STEPS.items():
        events: list[dict[str, Any]] = [json.loads(line) for line in said[service].splitlines()]
        for n in range(TASKS):
            about = {
                event["event"] for event in events if event.get("task_id") == f"t-{n}" and event["project"] == project
            }
            assert wanted <= about, (service, about)
    assert not [name for name, text in said.items() if SECRET in text]
    assert "commit_steps" not in said["postgres"]
