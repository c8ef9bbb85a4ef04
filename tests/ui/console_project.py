"""A project of the running stack with principals of its own, for pages of the console."""

import asyncio
import os
import signal
from typing import Any

import httpx
from playwright.async_api import Page

from counterpoint.local.stack import Stack

TIMEOUT_S = 60.0
ROLES = ("submit", "report", "read", "ingest", "override", "approve", "audit")


class ConsoleProject:
    """A project: its principals, tasks and decisions over HTTP."""

    def __init__(self, http: httpx.AsyncClient, name: str) -> None:
        self.http = http
        self.name = name

    async def token(self, who: str, *roles: str) -> str:
        """Return the token of a new person with these roles, by default with all that people need."""
        body = {"name": f"{who}-{self.name}", "kind": "person", "projects": [self.name], "roles": roles or ROLES}
        response = await self.http.post("/v1/principals", json=body)
        assert response.status_code == 201, response.text
        return str(response.json()["token"])

    async def revoke(self, who: str) -> None:
        """Revoke the token of a person."""
        assert (await self.http.delete(f"/v1/principals/{who}-{self.name}")).status_code == 200

    async def submit(self, task_id: str, description: str = "Why?", **more: Any) -> dict[str, Any]:
        """Submit a task, and return it once it has ended or waits."""
        body = {"kind": "question", "description": description, "task_id": task_id, "project": self.name} | more
        response = await self.http.post("/v1/tasks", json=body, headers={"Prefer": "wait=30"})
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    async def decisions(self) -> list[str]:
        """Return the ids of all decisions, newest first."""
        found: list[str] = []
        cursor: str | None = None
        while True:
            params = {"project": self.name, "limit": 200} | ({"cursor": cursor} if cursor else {})
            page = (await self.http.get("/v1/decisions", params=params)).raise_for_status().json()
            found += [each["decision_id"] for each in page["items"]]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    def now(self, **query: Any) -> str:
        """Return the address of the page *now*."""
        return f"/#/now?{httpx.QueryParams({'project': self.name} | query)}"

    def incident(self, task_id: str, **query: Any) -> str:
        """Return the address of the page of a task."""
        return f"/#/incident/{task_id}?{httpx.QueryParams({'project': self.name} | query)}"


async def shows_decisions(page: Page, count: int) -> None:
    """Wait until the page has as many decisions."""
    await page.get_by_text(f"{count:,} decisions").wait_for()


async def kill_router(stack: Stack) -> None:
    """Kill the router, and wait until the supervisor has started it again."""
    pid = stack.endpoints.services["router"].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while stack.endpoints.services["router"].pid in (pid, None):
        await asyncio.wait_for(stack.ready("router"), TIMEOUT_S)
        await asyncio.sleep(0.02)
    await asyncio.wait_for(stack.ready("router"), TIMEOUT_S)
