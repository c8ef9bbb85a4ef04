"""Resources, subscriptions and tasks of the protocol, on the real stack with a real client."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from flows.mcp_desk import Desk, McpClient, called, ended_task, read
from mcp import MCPError
from mcp.client.subscriptions import ResourceUpdated, listen
from mcp_types import (
    PromptReference,
    ResourceTemplateReference,
    ResourceUpdatedNotification,
    TextContent,
)
from ui.mcp_messages import RawClient

pytestmark = pytest.mark.timeout(240)


async def test_a_task_is_a_resource_a_card_and_a_line(client: McpClient, desk: Desk) -> None:
    assert await read(client, "escalations://open") == "Nothing waits."
    task = await called(client, "delegate_to_developer", task="x fails", error_message="boom 7", wait_s=60)
    task_id = task["task_id"]
    assert json.loads(await read(client, f"task://{task_id}"))["task_id"] == task_id
    assert (await read(client, f"card://{task_id}")).startswith("### boom 7")
    assert "### boom 7" in await read(client, "escalations://open")
    assert json.loads(await read(client, f"line://{task_id}"))["items"]
    added = await called(client, "ingest_to_rag", content="# A page", doc_type="markdown", source="a.md")
    stored = json.loads(await read(client, f"memory://documents/{added['document_id']}"))
    assert stored["source"] == "a.md"
    for uri in ("task://nothing", "card://nothing", "line://nothing", "memory://documents/x", "lineage://nothing"):
        with pytest.raises(MCPError) as raised:
            await client.read_resource(uri)
        assert raised.value.error.code == -32602, uri
        assert "not" in raised.value.error.message
    with pytest.raises(MCPError):
        await client.read_resource("memory://principals/x")

    triage = await client.get_prompt("triage_incident", {"task_id": task_id})
    runbook = await client.get_prompt("write_runbook", {"task_id": task_id})
    handover = await client.get_prompt("hand_over_shift", {})
    for prompt in (triage, runbook, handover):
        (message,) = prompt.messages
        assert isinstance(message.content, TextContent)
        assert "### boom 7" in message.content.text
        assert ("**Not recorded:** the cause." in message.content.text) == (prompt is runbook)
    with pytest.raises(MCPError, match="unknown_task"):
        await client.get_prompt("triage_incident", {"task_id": "nothing"})
    for arguments in ({}, {"task": task_id}):
        with pytest.raises(MCPError, match=r"invalid: arguments: .*task_id"):
            await client.get_prompt("write_runbook", arguments)

    for reference in (
        PromptReference(name="triage_incident"),
        ResourceTemplateReference(uri="task://{task_id}{?project}"),
    ):
        completed = await client.complete(reference, {"name": "task_id", "value": task_id[:6]})
        assert completed.values == [task_id]


@pytest.mark.filterwarnings("ignore:resources/")
async def test_a_change_of_a_task_is_told_to_its_subscribers_alone(
    desk: Desk, client: McpClient, http: httpx.AsyncClient
) -> None:
    task = await called(client, "delegate_to_developer", task="x fails", error_message="boom 8", wait_s=60)
    uri = f"card://{task['task_id']}"
    other = Desk(desk.stack, f"{desk.project}-b")
    token = await other.principal(http, "foreign", "read")
    told: list[str] = []

    async def on_message(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            told.append(str(message.params.uri))
            news.set()

    news = asyncio.Event()
    async with (
        desk.client(mode="legacy", message_handler=on_message) as session,
        other.client(token) as foreign,
        listen(client.session, resource_subscriptions=[uri]) as stream,
        listen(foreign.session, resource_subscriptions=[uri, f"{uri}?project={desk.project}"]) as nothing,
        asyncio.timeout(60),
    ):
        await session.session.subscribe_resource(uri)
        waiting = asyncio.create_task(anext(nothing))
        await called(client, "log_attempt", task_id=task["task_id"], outcome="succeeded")
        assert await anext(stream) == ResourceUpdated(uri=uri)
        await news.wait()
        assert set(told) == {uri}
        await ended_task(client, task["task_id"])
        assert not waiting.done()
        waiting.cancel()
        await session.session.unsubscribe_resource(uri)


async def test_a_delegated_task_is_one_of_the_protocol_which_is_polled_and_cancelled(desk: Desk) -> None:
    client = RawClient(desk.stack.endpoints.http, desk.stack.endpoints.token, desk.project)

    async def until(task_id: str, status: str) -> dict[str, Any]:
        async with asyncio.timeout(60):
            while (shown := await client.result("tasks/get", taskId=task_id))["status"] != status:
                await client.result("tools/call", name="get_task", arguments={"task_id": plain(task_id), "wait_s": 5})
        return shown

    def plain(task_id: str) -> str:
        return task_id.removeprefix(f"{desk.project}:")

    arguments = {"task": "x fails", "error_message": "boom 9"}
    created = await client.result("tools/call", name="delegate_to_developer", arguments=arguments)
    assert created["resultType"] == "task"
    assert created["pollIntervalMs"] > 0
    shown = await until(created["taskId"], "completed")
    result = shown["result"]["structuredContent"]
    assert (result["task_id"], result["state"]) == (plain(created["taskId"]), "input_required")
    assert "### boom 9" in shown["result"]["content"][0]["text"]
    assert shown["lastUpdatedAt"] > shown["createdAt"] == created["createdAt"]
    await client.result("tasks/cancel", taskId=created["taskId"])
    assert "result" not in await until(created["taskId"], "cancelled")

    invalid = await client.result("tools/call", name="delegate_to_developer", arguments={"task": ""})
    assert (invalid["resultType"], invalid["isError"]) == ("complete", True)
    client.capabilities = {}
    plainly = await client.result("tools/call", name="delegate_to_developer", arguments=arguments | {"wait_s": 60})
    assert (plainly["resultType"], plainly["structuredContent"]["state"]) == ("complete", "input_required")
