"""Tasks to replay, and an API that answers otherwise."""

import asyncio
import json
from typing import Any

import httpx
from typer.testing import CliRunner

from counterpoint.cli.main import app
from counterpoint.local.stack import Stack


class Tasks:
    """Tasks of one project on the running stack."""

    def __init__(self, stack: Stack, http: httpx.AsyncClient, project: str) -> None:
        self.where = ["--url", stack.endpoints.http, "--token", stack.endpoints.token, "--project", project]
        self.project = project
        self._http = http

    async def post(self, path: str, body: dict[str, Any], **params: Any) -> Any:
        params = {"project": self.project} | params
        reply = await self._http.post(path, json=body, params=params, headers={"Prefer": "wait=30"})
        reply.raise_for_status()
        return reply.json()

    async def submit(self, task_id: str, kind: str, description: str, **more: Any) -> Any:
        return await self.post("/v1/tasks", {"task_id": task_id, "kind": kind, "description": description, **more})

    async def until(self, task_id: str, *states: str, waiting_for: str | None = None) -> Any:
        async with asyncio.timeout(120):
            while True:
                params = {"project": self.project, "wait": "1"}
                task = (await self._http.get(f"/v1/tasks/{task_id}", params=params)).json()
                if task["state"] in states and task.get("waiting_for") == waiting_for:
                    return task

    async def solved(self, task_id: str, **outcome: Any) -> None:
        await self.post(f"/v1/tasks/{task_id}/outcome", {"outcome": "succeeded", **outcome})
        await self.until(task_id, "completed")

    async def run(self, *words: str) -> Any:
        return await asyncio.to_thread(CliRunner().invoke, app, [*words, *self.where])

    async def leaves(self) -> list[dict[str, Any]]:
        """The leaves of the project, commits and refusals."""
        params: dict[str, Any] = {"project": self.project, "limit": 4000}
        leaves = (await self._http.get("/v1/audit/leaves", params=params)).json()["items"]
        return [json.loads(leaf["body"]) for leaf in leaves if leaf.get("body")]

    async def writers_since(self, before: list[dict[str, Any]]) -> set[str | None]:
        """The services with a refusal, or a commit with an effect, since then. The router finishes events later."""
        new = [leaf for leaf in await self.leaves() if leaf not in before]
        return {leaf.get("service") for leaf in new if leaf.get("writes", True) or leaf.get("messages", True)}

    async def replay(self, *words: str, code: int = 0) -> Any:
        done = await self.run("replay", *words, "--json")
        assert done.exit_code == code, (done.output, done.exception)
        return json.loads(done.stdout)


class ChangedApi:
    """An API that returns the steps of a task with a change in each."""

    def __init__(self, page: dict[str, Any], find: str, replace: str) -> None:
        self._page = json.loads(json.dumps(page, ensure_ascii=False).replace(find, replace))

    def post(self, path: str, body: Any, **params: Any) -> Any:
        return self._page
