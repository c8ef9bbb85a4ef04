"""MCP on the real stack with a real client: what is listed, and what each tool does."""

import json

import httpx
import pytest
from flows.mcp_desk import ERROR, MODES, Desk, McpClient, called, ended_task, lineage_events, read, refused, text_of
from mcp_types import TextContent

pytestmark = pytest.mark.timeout(240)
TOOLS = {
    "query_rag", "get_troubleshooting_history", "delegate_to_developer", "override_developer", "ingest_to_rag",
    "get_dag_lineage", "get_failure_blast_radius", "check_provider_exists", "get_task", "get_line",
    "list_escalations", "decide_approval", "log_attempt",
}  # fmt: skip
LISTED = {
    "query_rag", "get_troubleshooting_history", "delegate_to_developer", "override_developer", "get_task",
    "search_tools", "call_tool",
}  # fmt: skip


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
