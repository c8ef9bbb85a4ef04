"""Ways to connect to MCP: the configurations of docs/mcp.md, and the bridge on standard input and output."""

import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from contract.pages import ROOT, blocks
from fastmcp import Client
from fastmcp.client.transports import ClientTransport, StdioTransport, StreamableHttpTransport
from mcp import MCPError
from openai.types.responses.tool_param import Mcp
from pydantic import TypeAdapter

from counterpoint.local.stack import Stack

pytestmark = pytest.mark.timeout(240)
COMMAND = Path(sys.executable).with_name("counterpoint")
SHOWN = [block.text for block in blocks((ROOT / "docs" / "mcp.md").read_text()) if block.language == "json"]
CONFIGURED: list[dict[str, Any]] = list(map(json.loads, SHOWN))
"""The configurations in the order of the page: Claude Code, Claude Desktop, Cursor, VS Code, the OpenAI SDK."""
SERVERS = ("mcpServers", "mcpServers", "mcpServers", "servers")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERPOINT_")}


def at(stack: Stack, url: str) -> str:
    """The path and query of a configured URL at a running stack."""
    return urlunsplit((*urlsplit(stack.endpoints.http)[:2], *urlsplit(url)[2:]))


def transport_of(stack: Stack, server: dict[str, Any]) -> ClientTransport:
    """The connection that a configuration describes, with this stack's address and token."""
    token = stack.endpoints.token
    if "command" in server:
        values = {"COUNTERPOINT_URL": stack.endpoints.http, "COUNTERPOINT_TOKEN": token}
        assert server["env"].keys() == values.keys()
        return StdioTransport(str(COMMAND.with_name(server["command"])), server["args"], env=ENVIRONMENT | values)
    headers = {name: value.replace("TOKEN", token) for name, value in server["headers"].items()}
    return StreamableHttpTransport(at(stack, server["url"]), headers=headers)


@pytest.mark.parametrize("number", range(4), ids=("claude-code", "claude-desktop", "cursor", "vs-code"))
async def test_a_configuration_connects_to_its_project(stack: Stack, number: int) -> None:
    server = CONFIGURED[number][SERVERS[number]]["counterpoint"]
    async with Client(transport_of(stack, server)) as client:
        result = await client.call_tool("call_tool", {"name": "list_escalations", "arguments": {}})
    assert result.structured_content is not None
    assert result.structured_content["project"] == "orders"


async def test_the_configuration_of_the_openai_sdk_is_one_of_its_tools(stack: Stack) -> None:
    tool = CONFIGURED[4]
    assert TypeAdapter(Mcp).validate_python(tool) == tool
    assert tool.keys() <= Mcp.__annotations__.keys()
    async with Client(at(stack, tool["server_url"]), auth=stack.endpoints.token) as client:
        assert await client.list_tools()


def test_every_configuration_has_three_lines() -> None:
    assert [len(text.splitlines()) for text in SHOWN] == [3] * 5


# the bridge


def bridge(stack: Stack, *options: str, **values: str) -> StdioTransport:
    """The bridge in a process of its own."""
    arguments = ["mcp", "--data-dir", str(stack.data_dir), *options]
    return StdioTransport(str(COMMAND), arguments, env=ENVIRONMENT | values)


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_the_bridge_serves_all_that_the_endpoint_does(stack: Stack, project: str, mode: str) -> None:
    progress: list[str | None] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        progress.append(message)

    async with Client(bridge(stack, "--project", project, "--all-tools"), mode=mode) as client:
        assert len(await client.list_tools()) == 13
        arguments = {"task": "ein Job fällt aus", "error_message": "boom – größer", "wait_s": 60}
        result = await client.call_tool("delegate_to_developer", arguments, progress_handler=on_progress)
        assert result.structured_content is not None
        task_id = result.structured_content["task_id"]
        assert result.structured_content["project"] == project
        assert progress[-1] == "input_required, attempt 1"
        (card,) = await client.read_resource(f"card://{task_id}")
        assert "boom – größer" in card.text
        with pytest.raises(MCPError, match="unknown_task"):
            await client.get_prompt("triage_incident", {"task_id": "nothing"})


async def test_the_bridge_says_why_it_cannot_serve(stack: Stack) -> None:
    with pytest.raises(MCPError, match="unauthenticated"):
        async with Client(bridge(stack, "--token", "nobody"), mode="legacy"):
            pass
    nowhere = StdioTransport(str(COMMAND), ["mcp", "--url", "http://127.0.0.1:9", "--token", "x"], env=ENVIRONMENT)
    with pytest.raises(MCPError, match="counterpoint up"):
        async with Client(nowhere, mode="legacy"):
            pass
