"""The HTTP APIs of a house as a scheduler and a person use them: events posted, tasks read, outcomes reported."""

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from counterpoint.local.stack import Stack


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


def live(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [task for task in tasks if task["state"] not in ("completed", "failed", "cancelled")]
