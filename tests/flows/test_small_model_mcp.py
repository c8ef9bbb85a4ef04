"""A real small model as the calling LLM, through a plain MCP client: it asks, delegates, overrides, and ends.

The order of the calls is given, because a model of this size keeps none. The arguments of each call are its own words,
written after what the calls before it have returned.
"""

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from mcp_types import TextContent

from counterpoint.local.small_model.package import QWEN, model_folder
from counterpoint.local.small_model.serve import serving
from counterpoint.local.stack import Stack

PAGE = "# Resolver\n\nWhen the workers resolve no names, check whether the firewall lets port 53 in from them."
SYSTEM = (
    "You are on call. Tonight the job fetch_orders failed with the error: "
    "could not resolve ldap.internal: DNS lookup timed out. "
    "A colleague says that the firewall has blocked port 53 since the last change. "
    "You call tools, one at a time, and answer with the arguments of the call as JSON."
)
STEPS = (
    ("query_rag", ("query",), "Ask for pages about resolvers and names that do not resolve."),
    ("delegate_to_developer", ("task", "error_message"), "Give the failure to the developer, with its exact error."),
    ("override_developer", ("instruction", "reasoning"), "Tell the developer to check the firewall for port 53 first."),
    ("log_attempt", ("outcome", "tried"), "Opening port 53 on the firewall has fixed it: report the success."),
)
"""The calls: the tool, the arguments that the model writes, and what it is told to do."""
RESULT_CHARS = 1500


@pytest.fixture
def model() -> Iterator[str]:
    """Serve the installed model at a URL."""
    folder = model_folder(QWEN)
    if not folder.installed:
        pytest.skip("the small model is not installed: `counterpoint model install`")
    with serving(QWEN, folder, 0, Path(os.devnull)) as (url, _):
        yield url


class CallingModel:
    """The model and the client that it calls tools with."""

    def __init__(self, model: httpx.AsyncClient, client: Client[Any], tools: dict[str, Any]) -> None:
        self.model, self.client, self.tools = model, client, tools
        self.messages = [{"role": "system", "content": SYSTEM}]

    async def call(self, tool: str, fields: tuple[str, ...], told: str, **given: Any) -> dict[str, Any]:
        """Let the model write the arguments of a call, make it, and show the model the result."""
        described = self.tools[tool].description
        self.messages.append({"role": "user", "content": f"{told}\n\nThe tool is {tool}: {described}"})
        properties = self.tools[tool].input_schema["properties"]
        schema = {
            "type": "object",
            "properties": {name: _plain(properties[name]) for name in fields},
            "required": list(fields),
            "additionalProperties": False,
        }
        reply = await self.model.post(
            "/chat/completions",
            json={
                "model": QWEN.name, "messages": self.messages, "temperature": 0, "max_tokens": 300,
                "response_format": {"type": "json_schema", "json_schema": {"name": tool, "schema": schema}},
            },
        )  # fmt: skip
        written = reply.raise_for_status().json()["choices"][0]["message"]["content"]
        print(tool, written)
        result = await self.client.call_tool(tool, json.loads(written) | given)
        text = "\n".join(each.text for each in result.content if isinstance(each, TextContent))
        self.messages += [{"role": "assistant", "content": written}, {"role": "user", "content": text[:RESULT_CHARS]}]
        assert result.structured_content is not None
        return result.structured_content


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """The type of an argument without bounds, which the grammar of the model would spell out."""
    return {"type": "string", **{name: schema[name] for name in ("enum", "description") if name in schema}}


@asynccontextmanager
async def calling(model: str, stack: Stack, token: str, project: str) -> AsyncIterator[CallingModel]:
    """A calling agent in a project."""
    transport = StreamableHttpTransport(f"{stack.endpoints.http}/mcp?project={project}&tools=all", auth=token)
    async with httpx.AsyncClient(base_url=model, timeout=300) as http, Client(transport, mode="2026-07-28") as client:
        yield CallingModel(http, client, {tool.name: tool for tool in await client.list_tools()})


@pytest.mark.model
@pytest.mark.timeout(600)
async def test_a_real_model_asks_delegates_overrides_and_ends(
    model: str, stack: Stack, project: str, http: httpx.AsyncClient
) -> None:
    roles = ["submit", "report", "read", "override"]
    body = {"name": f"llm-{project}", "kind": "agent", "projects": [project], "roles": roles}
    token = (await http.post("/v1/principals", json=body)).raise_for_status().json()["token"]
    document = {"source": "resolver.md", "text": PAGE, "project": project}
    (await http.post("/v1/documents", json=document)).raise_for_status()
    ask, delegate, override, end = STEPS
    async with calling(model, stack, token, project) as caller:
        found = await caller.call(*ask)
        assert [each["source"] for each in found["items"]] == ["resolver.md"]
        task = await caller.call(*delegate, wait_s=60)
        assert (task["kind"], task["state"]) == ("troubleshoot", "input_required")
        task_id = task["task_id"]
        overridden = await caller.call(*override, task_id=task_id, wait_s=60)
        assert (overridden["waiting_for"], overridden["attempt"] >= 1) == ("outcome", True)
        instruction = json.loads(caller.messages[-2]["content"])["instruction"]
        assert instruction.split(".")[0] in overridden["proposal"]
        reported = await caller.call(*end, task_id=task_id)
        assert (reported["status"], reported["late"]) == ("reported", False)
        line = (await caller.client.call_tool("get_line", {"task_id": task_id})).structured_content
    assert line is not None
    agents = {each["kind"]: each["agent"] for each in line["actions"]}
    assert {agents[kind] for kind in ("submit", "override", "outcome")} == {"calling_llm"}
    ended: dict[str, Any] = {}
    while ended.get("state") != "completed":
        answer = await http.get(f"/v1/tasks/{task_id}", params={"project": project, "wait": 20})
        ended = answer.raise_for_status().json()
    assert ended["resolution"] == "resolved"
