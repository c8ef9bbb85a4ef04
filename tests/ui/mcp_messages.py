"""Requests of protocol 2026-07-28 as they are on the wire, for what no client library sends."""

import json
from typing import Any

import httpx
from agents.router_house import PROJECT

VERSION = "2026-07-28"
TASKS = "io.modelcontextprotocol/tasks"
NAMES = {"tools/call": "name", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}


class RawClient:
    """A client that declares the extension for tasks, and that it can ask a person."""

    def __init__(self, url: str, token: str, project: str = PROJECT) -> None:
        self.url = f"{url}/mcp?project={project}"
        self.headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
        self.capabilities: dict[str, Any] = {"extensions": {TASKS: {}}, "elicitation": {"form": {}}}

    async def send(self, method: str, name: str | None = None, /, **params: Any) -> dict[str, Any]:
        """The reply to a request; `name` replaces what the header repeats."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        named = {"Mcp-Method": method, "Mcp-Name": name or params[NAMES[method]], "MCP-Protocol-Version": VERSION}
        async with httpx.AsyncClient(headers=self.headers | named, timeout=60, trust_env=False) as client:
            text = (await client.post(self.url, json=message)).text
        lines = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")]
        return dict(json.loads(lines[-1] if lines else text))

    async def result(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request that succeeds."""
        reply = await self.send(method, **params)
        assert "result" in reply, reply
        return dict(reply["result"])

    async def error(self, method: str, name: str | None = None, /, **params: Any) -> tuple[int, str]:
        """The code and message of a request that fails."""
        reply = await self.send(method, name, **params)
        assert "error" in reply, reply
        return reply["error"]["code"], reply["error"]["message"]
