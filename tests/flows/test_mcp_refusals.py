"""Calls of MCP that are refused: bad arguments, foreign ids, roles, tokens, hosts and addresses."""

import asyncio

import httpx
import pytest
from flows.mcp_desk import Desk, McpClient, called, lineage_events, refused
from mcp import MCPError
from mcp_types import PromptReference

from counterpoint.local.stack import Stack

pytestmark = pytest.mark.timeout(240)


async def test_bad_arguments_are_named(client: McpClient) -> None:
    code, text = await refused(client, "query_rag", query="", limit=0)
    assert code == "invalid"
    assert "query: must not be empty" in text
    assert "limit: must be at least 1" in text
    assert "errors.pydantic.dev" not in text
    code, text = await refused(client, "delegate_to_developer", task="x", kind="wish")
    assert (code, "kind: must be" in text) == ("invalid", True)
    code, text = await refused(client, "delegate_to_developer", task="x", job="no-slash")
    assert text.startswith("invalid: job: must be NAMESPACE/NAME")
    code, text = await refused(client, "log_attempt", outcome="failed")
    assert text.startswith("invalid: tried: is required")
    code, text = await refused(client, "get_task", task_id="../x")
    assert (code, "task_id" in text) == ("invalid", True)
    code, text = await refused(client, "ingest_to_rag", content="AWS_SECRET=AKIAIOSFODNN7EXAMPLE1", doc_type="x" * 60)
    assert (code, "doc_type" in text) == ("invalid", True)
    code, text = await refused(client, "get_task", task_id="x", nonsense=1)
    assert (code, "nonsense" in text) == ("invalid", True)
    secret = "ghp_" + "0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"
    for tool, arguments in (
        ("delegate_to_developer", {"task": f"log in with {secret}"}),
        ("log_attempt", {"outcome": "failed", "tried": f"used {secret}", "description": "x"}),
    ):
        code, text = await refused(client, tool, **arguments)
        assert secret not in text, tool
        assert code in ("sensitive", "refused"), (tool, text)
    unknown = await client.call_tool("no_such_tool", {}, raise_on_error=False)
    assert unknown.is_error


async def test_ids_of_another_project_are_not_found_in_any_field(
    desk: Desk, client: McpClient, http: httpx.AsyncClient
) -> None:
    session = {"task": "their failure", "error_message": "boom", "session_id": "theirs", "wait_s": 60}
    task = await called(client, "delegate_to_developer", **session)
    document = await called(client, "ingest_to_rag", content="# Theirs", doc_type="adr", source="theirs.md")
    await lineage_events(desk, http)
    other = Desk(desk.stack, f"{desk.project}-b")
    roles = ("submit", "report", "read", "ingest", "override")
    token = await other.principal(http, "foreign", *roles)
    task_id = task["task_id"]
    async with other.client(token) as foreign:
        instruction = {"instruction": "x", "reasoning": "y"}
        for tool, arguments in (
            ("get_task", {"task_id": task_id}), ("get_line", {"task_id": task_id}),
            ("override_developer", {"task_id": task_id} | instruction),
            ("log_attempt", {"task_id": task_id, "outcome": "failed"}),
        ):  # fmt: skip
            assert (await refused(foreign, tool, **arguments))[0] == "unknown_task", tool
        for tool, arguments in (
            ("get_troubleshooting_history", {"session_id": "theirs"}),
            ("get_dag_lineage", {"dag_id": "mcp_ingest"}), ("get_dag_lineage", {"dag_id": "prod/mcp_ingest"}),
            ("get_failure_blast_radius", {"dag_id": "mcp_ingest"}), ("override_developer", instruction),
        ):  # fmt: skip
            assert (await refused(foreign, tool, **arguments))[0] == "not_found", tool
        assert (await called(foreign, "query_rag", query="Theirs"))["items"] == []
        assert (await called(foreign, "get_troubleshooting_history", error_pattern="boom"))["items"] == []
        assert (await called(foreign, "list_escalations"))["items"] == []
        for uri in (
            f"task://{task_id}", f"card://{task_id}", f"line://{task_id}", "lineage://mcp_ingest",
            f"memory://documents/{document['document_id']}", f"memory://chunks/{document['document_id']}-00000",
        ):  # fmt: skip
            with pytest.raises(MCPError) as raised:
                await foreign.read_resource(uri)
            assert "not_found" in raised.value.error.message or "unknown_task" in raised.value.error.message
        for name in ("triage_incident", "write_runbook"):
            with pytest.raises(MCPError, match="unknown_task"):
                await foreign.get_prompt(name, {"task_id": task_id})
        completed = await foreign.complete(PromptReference(name="triage_incident"), {"name": "task_id", "value": ""})
        assert completed.values == []
    # A project that the caller has no role in is refused by name, however it is named.
    async with Desk(desk.stack, desk.project).client(token) as foreign:
        assert (await refused(foreign, "get_task", task_id=task_id))[0] == "role"
    async with other.client(token, url=f"{desk.stack.endpoints.http}/mcp") as foreign:
        assert (await refused(foreign, "get_task", task_id=task_id, project=desk.project))[0] == "role"


async def test_each_tool_needs_its_role(desk: Desk, http: httpx.AsyncClient) -> None:
    token = await desk.principal(http, "reader", "read")
    async with desk.client(token) as reader:
        for tool, arguments in (
            ("delegate_to_developer", {"task": "x"}), ("override_developer", {"instruction": "x", "reasoning": "y"}),
            ("ingest_to_rag", {"content": "x", "doc_type": "adr"}), ("decide_approval", {"approval_id": "x"}),
            ("log_attempt", {"outcome": "failed", "tried": "x", "description": "y"}),
            ("log_attempt", {"outcome": "failed", "task_id": "x"}),
        ):  # fmt: skip
            code, text = await refused(reader, tool, **arguments)
            assert (code, "needs" in text) == ("role", True), tool
    token = await desk.principal(http, "reporter", "report")
    async with desk.client(token) as reporter:
        for tool, arguments in (
            ("query_rag", {"query": "x"}), ("get_troubleshooting_history", {}), ("get_task", {"task_id": "x"}),
            ("get_line", {"task_id": "x"}), ("list_escalations", {}), ("check_provider_exists", {"system_name": "x"}),
            ("get_dag_lineage", {"dag_id": "x"}), ("get_failure_blast_radius", {"dag_id": "x"}),
        ):  # fmt: skip
            assert (await refused(reporter, tool, **arguments))[0] == "role", tool


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    },
}  # fmt: skip


ACCEPT = {"Accept": "application/json, text/event-stream"}


async def test_without_a_valid_token_nothing_is_served(stack: Stack) -> None:
    async with httpx.AsyncClient(base_url=stack.endpoints.http, timeout=60) as client:
        for headers in ({}, {"Authorization": "Bearer nobody"}, {"Authorization": f"Basic {stack.endpoints.token}"}):
            for method in ("POST", "GET", "DELETE"):
                response = await client.request(method, "/mcp", headers=headers | ACCEPT, json=INITIALIZE)
                assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")
                assert response.headers["www-authenticate"] == "Bearer"
        metadata = await client.get("/.well-known/oauth-protected-resource/mcp")
        assert metadata.status_code == 404


async def test_a_foreign_host_or_origin_is_refused(http: httpx.AsyncClient) -> None:
    accepted = await http.post("/mcp", json=INITIALIZE, headers=ACCEPT)
    assert accepted.status_code == 200
    rebound = await http.post("/mcp", json=INITIALIZE, headers=ACCEPT | {"Host": "evil.example.com"})
    assert rebound.status_code == 421
    foreign = await http.post("/mcp", json=INITIALIZE, headers=ACCEPT | {"Origin": "https://evil.example.com"})
    assert foreign.status_code == 403


async def test_the_url_is_checked(http: httpx.AsyncClient) -> None:
    for query in ("tools=most", "project=UPPER"):
        response = await http.post(f"/mcp?{query}", json=INITIALIZE, headers=ACCEPT)
        assert (response.status_code, response.json()["code"]) == (422, "invalid")


async def test_a_revoked_token_ends_its_session(desk: Desk, http: httpx.AsyncClient) -> None:
    token = await desk.principal(http, "leaving", "read")
    headers = ACCEPT | {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=desk.stack.endpoints.http, headers=headers, timeout=60) as leaving:
        opened = await leaving.post("/mcp", json=INITIALIZE)
        session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await leaving.post("/mcp", json=initialized, headers=session)
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert (await leaving.post("/mcp", json=listing, headers=session)).status_code == 200
        # The session is its principal's alone.
        assert (await http.post("/mcp", json=listing, headers=session | ACCEPT)).status_code == 404
        async with leaving.stream("GET", "/mcp", headers=session) as stream:
            assert stream.status_code == 200
            (await http.delete(f"/v1/principals/leaving-{desk.project}")).raise_for_status()
            assert (await leaving.post("/mcp", json=listing, headers=session)).status_code == 401
            async with asyncio.timeout(120):
                async for _ in stream.aiter_raw():
                    pass
