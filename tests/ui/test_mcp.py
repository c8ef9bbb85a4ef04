"""MCP in front of a house in memory: approvals decided at the client, OAuth metadata, hosts, the end of the router."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastmcp.client.elicitation import ElicitResult
from mcp import MCPError
from mcp.client.subscriptions import ResourceUpdated, listen
from mcp_types import ResourceTemplateReference, TextContent
from ui.http_front import put_task
from ui.mcp_front import McpClient, McpFront, mcp_front
from ui.pending_approvals import put_approval

from counterpoint.proto.approvals import ApprovalDecided
from counterpoint.router import open_streams
from counterpoint.router.mcp import subscriptions
from counterpoint.router.mcp.problems import META

MODES = pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
ACCEPT = {"Accept": "application/json, text/event-stream"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}


@pytest_asyncio.fixture
async def front() -> AsyncIterator[McpFront]:
    """An endpoint with the usual settings."""
    async with mcp_front() as front:
        yield front


def answering(answer: Any, asked: list[str]) -> Any:
    """A person at the client who gives an answer; `asked` holds the questions."""

    async def handler(message: str, response_type: Any, params: Any, context: Any) -> Any:
        asked.append(message)
        return answer() if callable(answer) else answer

    return handler


async def problem(client: McpClient, tool: str, **arguments: Any) -> tuple[str, str]:
    """The code and the text of a refused call."""
    result = await client.call_tool(tool, arguments, raise_on_error=False)
    assert result.is_error, result
    assert result.meta is not None
    (content,) = result.content
    assert isinstance(content, TextContent)
    return str(result.meta[META]["code"]), content.text


# approvals


@MODES
async def test_the_person_at_the_client_reads_the_text_and_decides(front: McpFront, mode: str) -> None:
    approval = put_approval(front)  # type: ignore[arg-type]
    asked: list[str] = []
    answer = {"decision": "rejected", "reason": "too dear"}
    async with front.client(mode=mode, elicitation_handler=answering(answer, asked)) as client:
        decided = (await client.call_tool("decide_approval", {"approval_id": "a1"})).structured_content
        assert decided is not None
        assert (decided["state"], decided["decided_by"], decided["reason"]) == ("rejected", "me", "too dear")
        assert asked == [f"{approval.summary}\n\n{approval.artifact}"]
        again = (await client.call_tool("decide_approval", {"approval_id": "a1"})).structured_content
        assert again == decided
    assert len(asked) == 1
    (sent,) = front.house.of_type(ApprovalDecided)
    assert (sent.decision, sent.by, sent.artifact_sha256) == ("rejected", "me", approval.artifact_sha256)


@MODES
async def test_a_text_that_changed_under_the_question_is_not_approved(front: McpFront, mode: str) -> None:
    put_approval(front)  # type: ignore[arg-type]

    def changed() -> dict[str, str]:
        put_approval(front, artifact="delete everything")  # type: ignore[arg-type]
        return {"decision": "approved", "reason": ""}

    async with front.client(mode=mode, elicitation_handler=answering(changed, [])) as client:
        code, text = await problem(client, "decide_approval", approval_id="a1")
    assert (code, text.startswith("conflict: artifact_sha256: is not that of the text")) == ("conflict", True)
    assert not front.house.of_type(ApprovalDecided)


@MODES
async def test_without_an_answer_nothing_is_decided(front: McpFront, mode: str) -> None:
    approval = put_approval(front)  # type: ignore[arg-type]
    declined = answering(ElicitResult(action="decline"), [])
    async with front.client(mode=mode, elicitation_handler=declined) as client:
        assert await problem(client, "decide_approval", approval_id="a1") == (
            "invalid",
            "invalid: decision: the person gave no answer\nCorrect the fields.",
        )
        code, text = await problem(client, "decide_approval", approval_id="a1", decision="approved")
        assert (code, "artifact_sha256: is required" in text) == ("invalid", True)
        given = {"approval_id": "a1", "decision": "rejected", "artifact_sha256": approval.artifact_sha256}
        code, text = await problem(client, "decide_approval", **given)
        assert (code, "reason must be given" in text) == ("invalid", True)
    assert not front.house.of_type(ApprovalDecided)


@MODES
async def test_a_client_that_cannot_ask_gives_the_decision_itself(front: McpFront, mode: str) -> None:
    approval = put_approval(front)  # type: ignore[arg-type]
    async with front.client(mode=mode) as client:
        code, text = await problem(client, "decide_approval", approval_id="a1")
        assert (code, approval.artifact_sha256 in text) == ("invalid", True)
        given = {"approval_id": "a1", "decision": "approved", "artifact_sha256": approval.artifact_sha256}
        assert (await client.call_tool("decide_approval", given)).structured_content["state"] == "approved"  # type: ignore[index]


@MODES
async def test_an_agent_cannot_decide(front: McpFront, mode: str) -> None:
    put_approval(front)  # type: ignore[arg-type]
    asked: list[str] = []
    token = front.house.token_of("llm", "read", "override", kind="agent")
    answer = answering({"decision": "approved", "reason": ""}, asked)
    async with front.client(token, mode=mode, elicitation_handler=answer) as client:
        code, text = await problem(client, "decide_approval", approval_id="a1")
    assert (code, "needs a person" in text) == ("role", True)
    assert not asked


# arguments


async def test_an_argument_that_is_missing_or_unknown_is_named(front: McpFront) -> None:
    async with front.client() as client:
        _, text = await problem(client, "query_rag", text="stock tables")
    assert "query: is required" in text
    assert "text: is no parameter" in text


# subscriptions


async def test_changes_of_records_lineage_and_waiting_tasks_are_announced(
    front: McpFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "_LOOK_S", 0.01)
    around = ["before"]

    async def lineage_around(context: Any, job: str) -> Any:
        return SimpleNamespace(model_dump_json=lambda: f"{job} {around[0]}")

    monkeypatch.setattr(subscriptions, "lineage_around", lineage_around)
    front.house.put("documents", "d1", {"source": "a.md"})
    front.house.put("plans", "p1", {"name": "x"})
    uris = ["memory://documents/d1", "escalations://open", "lineage://prod%2Fload"]
    never = ["memory://plans/p1", "memory://documents/none", "nothing://x", "memory://[x"]
    async with (
        front.client() as client,
        listen(client.session, resource_subscriptions=[*uris, *never]) as stream,
        asyncio.timeout(60),
    ):
        front.house.put("documents", "d1", {"source": "b.md"})
        front.house.put("plans", "p1", {"name": "y"})
        assert await anext(stream) == ResourceUpdated(uri=uris[0])
        escalation = {"to": "human", "code": "no_model", "needs": []}
        put_task(front, "t1", "input_required", waiting_for="override", escalation=escalation)  # type: ignore[arg-type]
        assert await anext(stream) == ResourceUpdated(uri=uris[1])
        around[0] = "after"
        assert await anext(stream) == ResourceUpdated(uri=uris[2])


async def test_there_are_no_more_subscriptions_than_the_limit(front: McpFront) -> None:
    uris = [f"task://t{number}" for number in range(subscriptions.SUBSCRIPTIONS + 1)]
    async with front.client() as client:
        with pytest.raises(MCPError, match="at most"):
            async with listen(client.session, resource_subscriptions=uris):
                pass


async def test_streams_of_subscriptions_count_as_event_streams_of_the_principal(
    front: McpFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_streams, "LIMIT", 1)
    async with (
        front.client() as client,
        front.client() as another,
        listen(client.session, resource_subscriptions=["task://t1"]),
    ):
        with pytest.raises(MCPError, match="too_many_streams"):
            async with listen(another.session, resource_subscriptions=["task://t1"]):
                pass


# completion


async def test_only_ids_of_stores_that_are_resources_are_completed(front: McpFront) -> None:
    for store in ("documents", "submissions", "webhook_deliveries"):
        front.house.put(store, f"id-in-{store}", {"source": "a.md"})
    reference = ResourceTemplateReference(type="ref/resource", uri="memory://{store}/{record_id}{?project}")
    completed = {}
    async with front.client() as client:
        for store in ("documents", "submissions", "webhook_deliveries", "none"):
            argument = {"name": "record_id", "value": "id"}
            completed[store] = (await client.complete(reference, argument, {"store": store})).values
    assert completed == {"documents": ["id-in-documents"], "submissions": [], "webhook_deliveries": [], "none": []}


# the endpoint


async def test_a_refusal_names_the_oauth_metadata_where_an_identity_provider_is_configured() -> None:
    settings = {"mcp_url": "https://cp.example.com/mcp", "mcp_authorization_servers": ("https://id.example.com",)}
    async with mcp_front(**settings) as front, httpx.AsyncClient(base_url=front.url) as http:
        refused = await http.post("/mcp", json=INITIALIZE)
        url = "https://cp.example.com/.well-known/oauth-protected-resource/mcp"
        assert refused.headers["www-authenticate"] == f'Bearer resource_metadata="{url}"'
        for path in (".well-known/oauth-protected-resource/mcp", ".well-known/oauth-protected-resource"):
            assert (await http.get(f"/{path}")).json() == {
                "resource": "https://cp.example.com/mcp",
                "authorization_servers": ["https://id.example.com"],
                "bearer_methods_supported": ["header"],
                "resource_name": "Counterpoint",
            }


async def test_a_configured_host_is_answered_and_another_is_not() -> None:
    async with mcp_front(mcp_hosts=("cp.example.com",)) as front:
        headers = ACCEPT | {"Authorization": f"Bearer {front.house.token_of('me')}"}
        async with httpx.AsyncClient(base_url=front.url, headers=headers) as http:
            for host, status in (("cp.example.com", 200), ("localhost", 200), ("other.example.com", 421)):
                assert (await http.post("/mcp", json=INITIALIZE, headers={"Host": host})).status_code == status


async def test_the_server_is_loaded_by_a_principal_alone_and_ends_with_the_router() -> None:
    async with mcp_front() as front:
        headers = ACCEPT | {"Authorization": f"Bearer {front.house.token_of('me')}"}
        async with httpx.AsyncClient(base_url=front.url, headers=headers, timeout=60) as http:
            nobody = {"Authorization": "Bearer nobody"}
            assert (await http.post("/mcp", json=INITIALIZE, headers=nobody)).status_code == 401
            assert not front.endpoint.is_running
            opened = await http.post("/mcp", json=INITIALIZE)
            assert front.endpoint.is_running
            session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
            async with http.stream("GET", "/mcp", headers=session) as stream:
                await front.endpoint.close()
                async with asyncio.timeout(120):
                    async for _ in stream.aiter_raw():
                        pass
            late = await http.post("/mcp", json=INITIALIZE)
            assert (late.status_code, late.json()["code"]) == (503, "unavailable")


def test_the_process_of_the_router_does_not_import_the_server() -> None:
    program = (
        "import sys, counterpoint.router.main; print([n for n in ('fastmcp', 'mcp', 'mcp_types') if n in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


async def test_memory_that_is_away_is_said_so() -> None:
    async with mcp_front(principal_cache_s=600.0) as front, front.client() as client:
        await client.list_tools()
        front.house.away = True
        code, text = await problem(client, "list_escalations")
    assert (code, "Retry" in text) == ("unavailable", True)
