"""MCP on the real stack with a real client: every tool, who may call it, and what an error says."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastmcp import Client
from fastmcp.client.client import CallToolResult
from fastmcp.client.transports import StreamableHttpTransport
from mcp import MCPError
from mcp.client.subscriptions import ResourceUpdated, listen
from mcp_types import (
    PromptReference,
    ResourceTemplateReference,
    ResourceUpdatedNotification,
    TextContent,
    TextResourceContents,
)
from ui.mcp_messages import RawClient

from counterpoint.local.stack import Stack
from counterpoint.router.mcp.problems import META

pytestmark = pytest.mark.timeout(240)
ERROR = "could not resolve ldap.internal: DNS lookup timed out"
TOOLS = {
    "query_rag", "get_troubleshooting_history", "delegate_to_developer", "override_developer", "ingest_to_rag",
    "get_dag_lineage", "get_failure_blast_radius", "check_provider_exists", "get_task", "get_line",
    "list_escalations", "decide_approval", "log_attempt",
}  # fmt: skip
LISTED = {
    "query_rag", "get_troubleshooting_history", "delegate_to_developer", "override_developer", "get_task",
    "search_tools", "call_tool",
}  # fmt: skip
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


@pytest.fixture
def desk(stack: Stack, project: str) -> Desk:
    """The endpoint in a project of its own."""
    return Desk(stack, project)


@pytest_asyncio.fixture
async def client(desk: Desk) -> AsyncIterator[McpClient]:
    """The administrator's client."""
    async with desk.client() as client:
        yield client


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


# what is listed


@pytest.mark.parametrize("mode", MODES)
async def test_few_tools_are_listed_and_the_others_are_found_by_a_search(desk: Desk, mode: str) -> None:
    async with desk.client(mode=mode) as client:
        assert {tool.name for tool in await client.list_tools()} == LISTED
        found = await called(client, "search_tools", query="lineage of a DAG")
        assert "get_dag_lineage" in {tool["name"] for tool in found["result"]}
        proxied = await client.call_tool("call_tool", {"name": "list_escalations", "arguments": {}})
        assert proxied.structured_content == {"project": desk.project, "items": [], "more": False}


async def test_all_tools_are_listed_on_demand_with_schemas_hints_and_examples(desk: Desk) -> None:
    async with desk.client(url=f"{desk.url}&tools=all") as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
    assert tools.keys() == TOOLS
    for name, tool in tools.items():
        assert tool.output_schema is not None, name
        assert tool.annotations is not None, name
        assert tool.annotations.read_only_hint == (name.startswith(("get_", "list_", "query_", "check_"))), name
        assert "Example: {" in (tool.description or ""), name
        properties = tool.input_schema["properties"]
        example = json.JSONDecoder().raw_decode(str(tool.description).split("Example: ")[1])[0]
        assert example.keys() <= properties.keys(), name
        assert set(tool.input_schema.get("required", ())) <= example.keys(), name


# the tools


async def test_a_document_is_found_by_its_type(client: McpClient) -> None:
    text = "# Resolver\n\nOpen port 53/udp on the firewall of the resolver first."
    added = await called(client, "ingest_to_rag", content=text, doc_type="adr", source="adr/7.md")
    assert (added["status"], added["source"]) == ("added", "adr/7.md")
    found = await called(client, "query_rag", query="firewall of the resolver", doc_types=["adr"])
    assert [each["source"] for each in found["items"]] == ["adr/7.md"]
    assert "53/udp" in found["items"][0]["text"]
    other = await called(client, "query_rag", query="firewall of the resolver", doc_types=["dag"])
    assert other["items"] == []
    again = await called(client, "query_rag", query="firewall of the resolver", doc_types=["dag", "markdown", "adr"])
    assert [each["source"] for each in again["items"]] == ["adr/7.md"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_failure_is_delegated_overridden_and_learned_from(desk: Desk, mode: str) -> None:
    async with desk.client(mode=mode) as client:
        logged = await called(
            client, "log_attempt", outcome="failed", tried="Restarted the resolver", error_message=ERROR
        )
        assert logged["status"] == "added"
        delegated = await client.call_tool(
            "delegate_to_developer",
            {"task": "fetch_orders fails", "error_message": ERROR, "context": {"ticket": "OPS-1"}, "wait_s": 60},
        )
        task = delegated.structured_content
        assert task is not None
        assert (task["kind"], task["state"]) == ("troubleshoot", "input_required")
        assert "### could not resolve ldap.internal" in text_of(delegated)
        assert task["next"] in text_of(delegated)

        overridden = await called(
            client,
            "override_developer",
            instruction="Check the firewall for port 53 first",
            reasoning="The resolver was restarted in vain",
            constraints=["do not restart the resolver again"],
            wait_s=60,
        )
        assert (overridden["task_id"], overridden["waiting_for"]) == (task["task_id"], "outcome")
        assert "Check the firewall" in overridden["proposal"]

        reported = await called(client, "log_attempt", task_id=task["task_id"], outcome="succeeded", note="Rule added")
        assert (reported["status"], reported["late"]) == ("reported", False)
        ended = await ended_task(client, task["task_id"])
        assert (ended["state"], ended["resolution"], ended["next"]) == ("completed", "resolved", "")

        history = await called(client, "get_troubleshooting_history", error_pattern=ERROR)
        outcomes = {each["tried"]: each["outcome"] for each in history["items"]}
        assert outcomes["Restarted the resolver"] == "failed"
        assert [each["override_by"] for each in history["items"] if each["outcome"] == "succeeded"] == ["administrator"]

        line = await called(client, "get_line", task_id=task["task_id"])
        seqs = [each["seq"] for each in line["actions"]]
        assert seqs == sorted(seqs)
        assert {"submit", "override", "outcome"} <= {each["kind"] for each in line["actions"]}
        assert line["decisions"]


async def test_a_logged_attempt_names_the_cause_and_earlier_attempts_at_another_failure(desk: Desk) -> None:
    async with desk.client() as client:
        failed = {"task": "load_parcels fails", "error_message": "the user of the depot is locked"}
        task = await called(client, "delegate_to_developer", **failed)
        report = {"task_id": task["task_id"], "outcome": "succeeded"}
        _, text = await refused(client, "log_attempt", **report, not_same=["nothing-like-it"])
        assert "not_same[0]" in text
        await called(client, "log_attempt", **report, by="something_else", note="Unlocked the user")
        assert (await ended_task(client, task["task_id"]))["result"] == "Unlocked the user"


async def ended_task(client: McpClient, task_id: str) -> dict[str, Any]:
    """A task that is about to end, once it has."""
    async with asyncio.timeout(60):
        while True:
            task = await called(client, "get_task", task_id=task_id, wait_s=10)
            if task["state"] == "completed":
                return task


async def test_a_caller_that_takes_responsibility_overrides_under_its_own_kind(
    desk: Desk, http: httpx.AsyncClient
) -> None:
    token = await desk.principal(http, "llm", "submit", "override", "read")
    async with desk.client(token) as client:
        task = await called(
            client, "delegate_to_developer", task="x1 fails", error_message="boom", override_confidence=True, wait_s=60
        )
        line = await called(client, "get_line", task_id=task["task_id"])
    agents = {each["kind"]: each["agent"] for each in line["actions"]}
    assert (agents["submit"], agents["override"]) == ("calling_llm", "calling_llm")
    record = (await http.get(f"/v1/tasks/{task['task_id']}", params={"project": desk.project})).json()
    assert (record["override"]["by_kind"], record["override"]["confidence_override"]) == ("agent", True)


async def test_an_override_without_a_task_needs_exactly_one_that_waits(client: McpClient) -> None:
    instruction = {"instruction": "look", "reasoning": "because"}
    code, text = await refused(client, "override_developer", **instruction)
    assert (code, "task_id" in text) == ("not_found", True)
    waiting = [
        (await called(client, "delegate_to_developer", task=f"{name} fails", error_message=name, wait_s=60))["task_id"]
        for name in ("first boom", "second bang")
    ]
    code, text = await refused(client, "override_developer", **instruction)
    assert code == "ambiguous"
    assert all(task_id in text for task_id in waiting)


async def test_escalations_state_the_need_and_a_document_supplies_it(client: McpClient) -> None:
    task = await called(client, "delegate_to_developer", task="Load quuxdb", systems=["quuxdb"], wait_s=60)
    assert (task["kind"], task["escalation"]) == ("develop", "no_provider")
    (listed,) = (await called(client, "list_escalations"))["items"]
    assert listed["task_id"] == task["task_id"]
    assert {need["kind"] for need in listed["needs"]} == {"provider", "document"}
    assert "ingest_to_rag" in listed["next"]


async def test_a_second_session_finds_the_proposals_of_the_first_and_all_that_waits(client: McpClient) -> None:
    page = "# ZZ77\n\nWhen ZZ77 is logged, close the valve first."
    await called(client, "ingest_to_rag", content=page, doc_type="runbook", source="zz77.md")
    stuck = await called(client, "delegate_to_developer", task="x", error_message="qq fails", wait_s=60)
    proposed = [
        await called(client, "delegate_to_developer", task="y", error_message=f"ZZ77 at {at}", wait_s=60)
        for at in ("north", "south")
    ]
    assert [each["waiting_for"] for each in (stuck, *proposed)] == ["documents", "outcome", "outcome"]
    assert "attempt 1" in proposed[0]["next"]
    listed = await called(client, "list_escalations")
    task_ids = {each["task_id"] for each in (stuck, *proposed)}
    assert ({each["task_id"] for each in listed["items"]}, listed["more"]) == (task_ids, False)
    newest = await called(client, "list_escalations", limit=2)
    assert (len(newest["items"]), newest["more"]) == (2, True)
    handover = await client.get_prompt("hand_over_shift", {})
    assert isinstance(handover.messages[0].content, TextContent)
    for text in (handover.messages[0].content.text, await read(client, "escalations://open")):
        assert all(task_id in text for task_id in task_ids)


async def test_a_report_that_is_repeated_does_not_fail_the_next_attempt(client: McpClient) -> None:
    pages = ("# ZZ78\n\nWhen ZZ78 is logged, close the valve.", "# ZZ78 again\n\nWhen ZZ78 is logged, open the gate.")
    for number, content in enumerate(pages):
        await called(client, "ingest_to_rag", content=content, doc_type="runbook", source=f"zz78-{number}.md")
    task = await called(client, "delegate_to_developer", task="y", error_message="ZZ78 at north", wait_s=60)
    report = {"task_id": task["task_id"], "outcome": "failed", "tried": "Closed the valve, nothing changed"}
    await called(client, "log_attempt", **report)
    for _ in range(100):
        again = await called(client, "get_task", task_id=task["task_id"], wait_s=5)
        if again["attempt"] == 2 and again["state"] == "input_required":
            break
    code, text = await refused(client, "log_attempt", **report)
    assert (code, "attempt 1 has this outcome and note already" in text) == ("conflict", True)
    unchanged = await called(client, "get_task", task_id=task["task_id"])
    assert (unchanged["attempt"], unchanged["state"]) == (2, "input_required")
    await called(client, "log_attempt", **report, attempt=2)


async def test_a_provider_is_found_by_its_name_or_alternatives_are_named(client: McpClient) -> None:
    found = await called(client, "check_provider_exists", system_name="snowflake")
    assert (found["status"], found["package"]) == ("FOUND", "apache-airflow-providers-snowflake")
    missing = await called(client, "check_provider_exists", system_name="snowflaky")
    assert missing["status"] == "NOT_FOUND"
    assert "Snowflake" in missing["alternatives"]


async def test_lineage_and_blast_radius_of_a_dag(client: McpClient, desk: Desk, http: httpx.AsyncClient) -> None:
    await lineage_events(desk, http)
    around = await called(client, "get_dag_lineage", dag_id="mcp_ingest", direction="down")
    assert {(each["node"]["name"], each["hops"]) for each in around["nodes"]} >= {("mcp_daily", 1)}
    reached = await called(client, "get_failure_blast_radius", dag_id="prod/mcp_ingest")
    assert [(each["name"], each["edge"]) for each in reached["downstream"] if each["kind"] == "job"] == [
        ("mcp_daily", "data")
    ]
    code, text = await refused(client, "get_failure_blast_radius", dag_id="mcp_ingest", task_id="nothing")
    assert (code, text.startswith("not_found: dag_id:")) == ("not_found", True)
    code, text = await refused(client, "get_dag_lineage", dag_id="mcp_twice")
    assert code == "ambiguous"
    assert "prod/mcp_twice" in text
    assert "test/mcp_twice" in text


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


# resources, prompts and completion


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


# subscriptions


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


# tasks of the protocol


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


# errors


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


# the endpoint


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
