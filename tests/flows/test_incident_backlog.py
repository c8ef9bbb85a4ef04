"""Incidents on a running house: a backlog posted at once, what follows from a root, and the end of a task (row F5)."""

import asyncio
import json
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from counterpoint.cli.card import card, text
from counterpoint.local.stack import Stack
from counterpoint.proto.tasks import Task

ERRORS = ("DiskFull: no space left on device", "UndefinedTable: relation raw.orders does not exist")


def event(kind: str, second: float, job: str, run: str, **more: Any) -> dict[str, Any]:
    facets: dict[str, Any] = {}
    if error := more.get("error"):
        facets["errorMessage"] = {"message": error}
    if parent := more.get("parent"):
        facets["parent"] = {"job": {"namespace": "ns", "name": parent[0]}, "run": {"runId": parent[1]}}
    if more.get("task"):
        facets["airflow"] = {"task": {"retries": 0}, "taskInstance": {"try_number": 1}}
    kind_of_job = {"jobType": {"jobType": "DAG" if not more.get("parent") else "TASK", "integration": "AIRFLOW"}}
    return {
        "eventTime": (datetime.now(UTC) - timedelta(hours=1) + timedelta(seconds=second)).isoformat(),
        "eventType": kind,
        "run": {"runId": run, "facets": facets},
        "job": {"namespace": "ns", "name": job, "facets": kind_of_job},
        "inputs": [{"namespace": "db", "name": name} for name in more.get("reads", ())],
        "outputs": [{"namespace": "db", "name": name} for name in more.get("writes", ())],
    }


class Front:
    """The HTTP APIs of a house, in one project."""

    def __init__(self, stack: Stack, project: str, client: httpx.AsyncClient) -> None:
        endpoints = stack.endpoints
        self._client, self._project = client, project
        self._http, self._lineage = endpoints.http, endpoints.lineage
        self._headers = {"Authorization": f"Bearer {endpoints.token}"}

    async def post(self, events: list[dict[str, Any]], at_once: int = 20) -> None:
        room = asyncio.Semaphore(at_once)

        async def one(raw: dict[str, Any]) -> None:
            async with room:
                for _ in range(20):
                    answer = await self._client.post(
                        f"{self._lineage}/api/v1/lineage",
                        params={"project": self._project},
                        content=json.dumps(raw),
                        headers=self._headers,
                    )
                    if answer.status_code != 503:
                        break
                assert answer.status_code == 201, answer.text

        await asyncio.gather(*(one(raw) for raw in events))

    async def tasks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            query = {"project": self._project, "limit": "100"} | ({"cursor": cursor} if cursor else {})
            answer = (await self._client.get(f"{self._http}/v1/tasks", params=query, headers=self._headers)).json()
            found += answer["items"]
            cursor = answer.get("next_cursor")
            if cursor is None:
                return found

    async def task(self, task_id: str) -> dict[str, Any]:
        answer = await self._client.get(
            f"{self._http}/v1/tasks/{task_id}", params={"project": self._project}, headers=self._headers
        )
        found: dict[str, Any] = answer.json()
        return found

    async def cancel(self, task_id: str) -> None:
        answer = await self._client.post(
            f"{self._http}/v1/tasks/{task_id}/cancel",
            params={"project": self._project},
            json={"reason": "known already"},
            headers=self._headers,
        )
        assert answer.status_code == 202, answer.text

    async def report(self, task_id: str, note: str) -> None:
        answer = await self._client.post(
            f"{self._http}/v1/tasks/{task_id}/outcome",
            params={"project": self._project},
            json={"outcome": "succeeded", "note": note},
            headers=self._headers,
        )
        assert answer.status_code == 202, answer.text

    async def until(
        self, wanted: Callable[[list[dict[str, Any]]], bool], timeout_s: float = 60
    ) -> list[dict[str, Any]]:
        end = time.monotonic() + timeout_s
        while True:
            found = await self.tasks()
            if wanted(found):
                return found
            assert time.monotonic() < end, [(t["state"], t.get("title")) for t in found]
            await asyncio.sleep(0.1)


@pytest.fixture
async def front(stack: Stack, project: str) -> Any:
    async with httpx.AsyncClient(timeout=30) as client:
        yield Front(stack, project, client)


def live(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [task for task in tasks if task["state"] not in ("completed", "failed", "cancelled")]


@pytest.mark.slow
async def test_fifty_failed_flows_posted_at_once_are_fifty_right_tasks(front: Front) -> None:
    events = []
    for at in range(50):
        dag, flow, error = f"dag{at}", f"flow-{at}", f"{ERRORS[at % 2]} {'xyzw'[at % 4] * 3}"
        task = {"parent": (dag, flow), "task": True, "writes": [f"t{at}"]}
        events.append(event("START", at, f"{dag}.load", f"{flow}-1", **task))
        events.append(event("FAIL", at + 1, f"{dag}.load", f"{flow}-1", error=error, **task))
        events.append(event("FAIL", at + 2, dag, flow, error="task_failure"))
    random.Random(1).shuffle(events)
    await front.post(events)
    tasks = await front.until(lambda found: len(found) >= 50)
    assert {task["target"]["job"]["name"] for task in tasks} == {f"dag{at}.load" for at in range(50)}
    assert all("task_failure" not in task["error_message"] for task in tasks)
    assert all(len(task["title"]) <= 80 for task in tasks)


async def test_a_root_with_forty_that_follow_is_one_task_that_names_it(front: Front) -> None:
    events = [event("FAIL", 1, "d0.root", "r0", parent=("d0", "f0"), task=True, writes=["t0"], error=ERRORS[0])]
    for at in range(1, 41):
        more = {"parent": (f"d{at}", f"f{at}"), "task": True, "reads": [f"t{at // 2}"], "writes": [f"t{at}"]}
        events.append(event("START", at + 5, f"d{at}.use", f"r{at}", **more))
        events.append(event("FAIL", at + 6, f"d{at}.use", f"r{at}", error=f"FileNotFound: input {at}", **more))
        events.append(event("FAIL", at + 7, f"d{at}", f"f{at}", error="task_failure"))
    random.Random(2).shuffle(events)
    await front.post(events)

    def right(found: list[dict[str, Any]]) -> bool:
        standing = live(found)
        return len(standing) == 1 and standing[0]["context"].get("affected_count") == 40

    (task,) = live(await front.until(right))
    assert task["target"]["job"]["name"] == "d0.root"
    assert task["error_message"] == ERRORS[0]
    assert len(task["context"]["affected"]) == 40


async def test_a_failure_after_a_reported_success_is_a_new_task_that_names_the_last(front: Front) -> None:
    more = {"parent": ("dag", "flow"), "task": True}
    await front.post([event("FAIL", 1, "dag.load", "r-1", error=ERRORS[0], **more)])
    (first,) = await front.until(lambda found: len(live(found)) == 1)
    await front.until(lambda found: found[0]["state"] == "input_required")
    await front.report(first["task_id"], "Freed the disk.")
    await front.until(lambda found: found[0]["state"] == "completed")
    later = more | {"parent": ("dag", "flow-2")}
    await front.post([event("FAIL", 9, "dag.load", "r-2", error=ERRORS[0], **later)])
    (second,) = live(await front.until(lambda found: len(live(found)) == 1))
    assert second["task_id"] != first["task_id"]
    assert second["context"]["previous_incident"] == first["task_id"]
    assert second["context"]["repeats"]["count"] == 2


async def test_the_card_says_what_has_changed_since_the_last_success(front: Front) -> None:
    def run(kind: str, second: int, number: int, version: str, **more: Any) -> dict[str, Any]:
        raw = event(kind, second, "etl.load", f"e-{number}", parent=("etl", f"f-{number}"), reads=["orders"], **more)
        location = {"type": "git", "repoUrl": "https://github.com/acme/flows", "version": version, "url": "https://x"}
        raw["job"]["facets"]["sourceCodeLocation"] = location
        raw["run"]["facets"]["spark_properties"] = {"properties": {"spark.executor.memory": f"{8 // number}g"}}
        return raw

    history = [
        event("COMPLETE", 0, "fill", "fill-1", writes=["orders"]),
        run("START", 10, 1, "a1"),
        run("COMPLETE", 20, 1, "a1"),
        run("START", 30, 2, "b2"),
        run("FAIL", 40, 2, "b2", error=ERRORS[0], task=True),
    ]
    for raw in history:
        await front.post([raw])
    (task,) = live(await front.until(lambda found: len(live(found)) == 1))
    shown = text(card(Task.model_validate(await front.task(task["task_id"]))))
    section = " ".join(shown[shown.index("\nchanged ") :].split())
    assert "a1 → b2" in section
    assert "https://github.com/acme/flows/compare/a1...b2" in section
    assert "8g → 4g" in section
    assert "orders not written since" in section


async def test_after_a_cancelled_task_the_next_failure_is_a_new_one_that_names_it(front: Front) -> None:
    more = {"parent": ("dag", "flow"), "task": True}
    await front.post([event("FAIL", 1, "dag.load", "r-1", error=ERRORS[0], **more)])
    (first,) = await front.until(lambda found: len(live(found)) == 1)
    await front.cancel(first["task_id"])
    await front.until(lambda found: found[0]["state"] == "cancelled")
    await front.post([event("FAIL", 9, "dag.load", "r-2", error=ERRORS[0], parent=("dag", "flow-2"), task=True)])
    (second,) = live(await front.until(lambda found: len(live(found)) == 1))
    assert second["context"]["previous_incident"] == first["task_id"]
    assert second["context"]["repeats"]["count"] == 2
