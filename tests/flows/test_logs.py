"""The logs of a running house say what each service did about a task, and nothing of what its user wrote."""

import json
from collections.abc import Callable

import httpx
from bus.small_house import eventually

from counterpoint.local.stack import Stack

SECRET = "zanzibarquux"
TASKS = 3
STEPS = {
    "router": {"task.submitted", "task.routed"},
    "manager": {"task.delegated", "task.escalated"},
    "developer": {"task.worked", "decision.made"},
}


async def test_each_service_logs_its_work_on_each_task(stack: Stack, http: httpx.AsyncClient, project: str) -> None:
    logs = stack.data_dir / "logs"
    before = {path.name: len(path.read_text()) for path in logs.glob("*.log")}
    for n in range(TASKS):
        task = {"task_id": f"t-{n}", "kind": "question", "description": f"Why does {SECRET} fail?", "project": project}
        waited = await http.post("/v1/tasks", json=task, headers={"Prefer": "wait=30"})
        waited.raise_for_status()

    def written(name: str) -> str:
        return (logs / f"{name}.log").read_text()[before[f"{name}.log"] :]

    for service, wanted in STEPS.items():
        for n in range(TASKS):
            await eventually(
                lists(wanted, lambda service=service: written(service), project, f"t-{n}"), f"{service}, t-{n}"
            )
    names = ("postgres", *stack.endpoints.services)
    assert not [name for name in names if SECRET in written(name)]
    assert "commit_steps" not in written("postgres")


def lists(wanted: set[str], log: Callable[[], str], project: str, task_id: str) -> Callable[[], bool]:
    """Whether the log has the wanted events of the task. A service logs a step when memory has replied to it, which may
    be after the router has answered its user."""

    def complete() -> bool:
        whole = log().rpartition("\n")[0]
        events = [json.loads(line) for line in whole.splitlines()]
        return wanted <= {e["event"] for e in events if e.get("task_id") == task_id and e["project"] == project}

    return complete
