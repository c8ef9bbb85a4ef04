"""Replays of finished tasks of every kind, part of `counterpoint bench agents`."""

import asyncio
from itertools import islice
from pathlib import Path
from typing import Any

import httpx

from counterpoint.bench.report import BenchReport, Measurement, progress, settled
from counterpoint.bench.synthetic_incidents import synthetic_incidents
from counterpoint.bench.temporary_stack import temporary_stack
from counterpoint.cli.address import Address
from counterpoint.cli.api import ApiClient
from counterpoint.cli.replay.many import ManyReplays
from counterpoint.cli.replay.processes import ReplayProcesses
from counterpoint.cli.replay.task import TaskReport

TASKS, AT_ONCE, PROJECT = 200, 4, "replays"
POLLS = 600
KINDS = ("question", "troubleshoot", "plan", "develop")
_PAGE = "The disk of the ledger export is 20 GB. If it is full, restart the export after the old files are removed."


async def measure_replays(folder: Path, report: BenchReport) -> None:
    """Measure the share of finished tasks whose contexts and decisions are rebuilt as they were."""
    async with temporary_stack(folder) as (stack, http):
        http.params = http.params.set("project", PROJECT)
        await _work(http)
        address = Address(stack.endpoints.http, stack.endpoints.token)
        report.note_load()
        progress(f"replay of {TASKS} tasks")
        same = [share_of_equal(each) for each in await asyncio.to_thread(_replayed, address)]
    if len(same) != TASKS:
        raise ValueError(f"{len(same)} of {TASKS} tasks were replayed")
    name = f"replay of {TASKS} finished tasks of every kind: contexts and decisions equal"
    report.measures.append(Measurement(name, "%", (100 * sum(same) / TASKS,), 100.0, at_least=True))


def share_of_equal(report: TaskReport) -> bool:
    """Whether every context of a task was rebuilt, and its decisions are the same."""
    return report.verdict == "same" and report.contexts > 0


async def _work(http: httpx.AsyncClient) -> None:
    """Let tasks of every kind end: some are answered or proposed, some escalate and are cancelled."""
    past = list(islice(synthetic_incidents(TASKS), TASKS))
    (await http.post("/v1/attempts", json={"incidents": past[: TASKS // 2]})).raise_for_status()
    (await http.post("/v1/documents", json={"source": "export.md", "text": _PAGE})).raise_for_status()
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with slots:
            await _ended(http, _task(KINDS[number % len(KINDS)], past[number]))

    await asyncio.gather(*map(one, range(TASKS)))


def _task(kind: str, incident: dict[str, Any]) -> dict[str, Any]:
    if kind == "question":
        return {"kind": kind, "description": "How large is the disk of the ledger export?"}
    if kind == "troubleshoot":
        return {"kind": kind, **{name: incident[name] for name in ("title", "description", "error_message")}}
    return {
        "kind": kind,
        "description": f"Load the ledger export every night. {incident['title']}",
        "systems": ["Snowflake"],
    }


async def _ended(http: httpx.AsyncClient, body: dict[str, Any]) -> None:
    submitted = await http.post("/v1/tasks", json=body, headers={"Prefer": "wait=30"})
    task = await settled(http, submitted.raise_for_status().json(), PROJECT)
    if task["state"] != "input_required":
        return
    url = f"/v1/tasks/{task['task_id']}"
    if task.get("waiting_for") == "outcome":
        reported = await http.post(f"{url}/outcome", json={"outcome": "succeeded", "note": "it runs again"})
    else:
        reported = await http.post(f"{url}/cancel", json={"reason": "it is not needed any more"})
    reported.raise_for_status()
    for _ in range(POLLS):
        if (await http.get(url)).raise_for_status().json()["state"] != "input_required":
            return
        await asyncio.sleep(0.05)
    raise ValueError(f"task {task['task_id']} does not end")


def _replayed(address: Address) -> list[TaskReport]:
    with ApiClient(address) as api, ReplayProcesses() as processes:
        replays = ManyReplays(api, PROJECT, processes, progress)
        replays.run()
    if replays.failed:
        raise ValueError(f"not replayed: {replays.failed[:3]}")
    return replays.reports
