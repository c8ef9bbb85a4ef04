"""A calling agent at the MCP endpoint of the running stack, and what it reads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastmcp import Client
from fastmcp.client.client import CallToolResult
from fastmcp.client.transports import StreamableHttpTransport
from mcp_types import TextContent, TextResourceContents

from counterpoint.local.stack import Stack
from counterpoint.router.mcp.problems import META

ERROR = "could not resolve ldap.internal: DNS lookup timed out"


McpClient = Client[Any]


MODES = ("2026-07-28", "legacy")


class Desk:
    """A calling agent at the endpoint, in one project."""

    def __init__(self, stack: Stack, project: str) -> None:
        self.stack, self.project = stack, project
        self.url = f"{stack.endpoints.http}/mcp?project={project}"

    @asynccontextmanager
    async def client(
        self, token: str | None = None, url: str | None = None, **options: Any
    ) -> AsyncIterator[McpClient]:
        """A connected client, by default the administrator's."""
        transport = StreamableHttpTransport(url or self.url, auth=token or self.stack.endpoints.token)
        async with Client(transport, **{"mode": "2026-07-28"} | options) as client:
            yield client

    async def principal(self, http: httpx.AsyncClient, name: str, *roles: str, kind: str = "agent") -> str:
        """The token of a new principal of the project."""
        body = {"name": f"{name}-{self.project}", "kind": kind, "projects": [self.project], "roles": list(roles)}
        return str((await http.post("/v1/principals", json=body)).raise_for_status().json()["token"])


async def called(client: McpClient, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured result of a call that succeeds."""
    result = await client.call_tool(tool, arguments)
    assert result.structured_content is not None
    return result.structured_content


async def refused(client: McpClient, tool: str, **arguments: Any) -> tuple[str, str]:
    """The code of a refused call, and its text."""
    result = await client.call_tool(tool, arguments, raise_on_error=False)
    assert result.is_error, result
    assert result.meta is not None
    return str(result.meta[META]["code"]), text_of(result)


def text_of(result: CallToolResult) -> str:
    """The text of a result."""
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def read(client: McpClient, uri: str) -> str:
    """The text of a resource."""
    (content,) = await client.read_resource(uri)
    assert isinstance(content, TextResourceContents)
    return content.text


async def ended_task(client: McpClient, task_id: str) -> dict[str, Any]:
    """A task that is about to end, once it has."""
    async with asyncio.timeout(60):
        while True:
            task = await called(client, "get_task", task_id=task_id, wait_s=10)
            if task["state"] == "completed":
                return task


async def lineage_events(desk: Desk, http: httpx.AsyncClient) -> None:
    """Two jobs one after the other, and a name in two namespaces."""
    token = await desk.principal(http, "airflow", "report", kind="system")
    rows: tuple[tuple[str, str, str, str], ...] = (
        ("prod", "mcp_ingest", "raw", "orders"), ("prod", "mcp_daily", "orders", "revenue"),
        ("prod", "mcp_twice", "x", "y"), ("test", "mcp_twice", "x", "y"),
    )  # fmt: skip
    async with httpx.AsyncClient(base_url=desk.stack.endpoints.lineage, timeout=60) as lineage:
        for number, (namespace, name, source, target) in enumerate(rows):
            event = {
                "eventType": "COMPLETE",
                "eventTime": f"2026-11-20T03:0{number}:00Z",
                "producer": "https://example.com",
                "run": {"runId": f"018f6b2e-0000-7000-8000-00000000000{number}"},
                "job": {"namespace": namespace, "name": name},
                "inputs": [{"namespace": "db", "name": source}],
                "outputs": [{"namespace": "db", "name": target}],
            }
            headers = {"Authorization": f"Bearer {token}"}
            (await lineage.post("/api/v1/lineage", json=event, headers=headers)).raise_for_status()
