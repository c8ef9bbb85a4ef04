"""Tasks of MCP that a person has to answer, in front of a house in memory."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from agents.router_house import NOW, PROJECT
from ui.http_front import put_task
from ui.mcp_front import McpFront, mcp_front
from ui.mcp_messages import RawClient
from ui.pending_approvals import put_approval

from counterpoint.proto.approvals import ApprovalDecided
from counterpoint.proto.interventions import CancelTask, TaskOverridden
from counterpoint.router.intake.submissions import STORE, task_key
from counterpoint.router.mcp import tasks

TASK = f"{PROJECT}:t1"
METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tasks/get", {}),
    ("tasks/update", {"inputResponses": {}}),
    ("tasks/cancel", {}),
)


@pytest_asyncio.fixture
async def front(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[McpFront]:
    """An endpoint in front of a house without a manager, on whose work nobody waits."""
    monkeypatch.setattr(tasks, "_APPLIED_S", 0.0)
    async with mcp_front(principal_cache_s=600.0) as front:
        yield front


def put_waiting_task(front: McpFront, **more: Any) -> None:
    """A task that waits for input."""
    put_task(front, "t1", "input_required", **more)  # type: ignore[arg-type]
    submission = {
        "task_id": "t1", "project": PROJECT, "content_sha256": "x", "kind": "question", "description": "x",
        "submitted_by": "me", "submitted_by_kind": "person", "submitted_at": NOW.isoformat(),
    }  # fmt: skip
    front.house.put(STORE, task_key("t1"), submission)


def escalated(to: str) -> dict[str, Any]:
    need = {"kind": "decision", "what": "which resolver", "how": "say it"}
    return {"waiting_for": "override", "escalation": {"to": to, "code": "repeated_failure", "needs": [need]}}


async def test_a_person_gives_the_instruction_that_a_task_waits_for(front: McpFront) -> None:
    put_waiting_task(front, **escalated("human"))
    client = RawClient(front.url, front.house.token_of("me"))
    shown = await client.result("tasks/get", taskId=TASK)
    assert (shown["status"], shown["resultType"]) == ("input_required", "complete")
    ((key, request),) = shown["inputRequests"].items()
    assert request["method"] == "elicitation/create"
    assert "which resolver" in request["params"]["message"]
    answer = {"action": "accept", "content": {"instruction": "the second", "reasoning": "the first is down"}}
    await client.result("tasks/update", taskId=TASK, inputResponses={key: answer})
    (sent,) = front.house.of_type(TaskOverridden)
    assert (sent.override.instruction, sent.override.by, sent.override.by_kind) == ("the second", "me", "person")

    await client.result("tasks/update", taskId=TASK, inputResponses={key: {"action": "decline"}})
    assert len(front.house.of_type(TaskOverridden)) == 1
    empty = {key: {"action": "accept", "content": {"instruction": "x"}}}
    code, text = await client.error("tasks/update", taskId=TASK, inputResponses=empty)
    assert (code, "reasoning: is required" in text) == (-32602, True)


async def test_a_person_decides_on_the_text_that_the_task_has_shown(front: McpFront) -> None:
    approval = put_approval(front)  # type: ignore[arg-type]
    fields = {"approval_id", "category", "artifact_sha256", "expires_at"}
    put_waiting_task(front, waiting_for="approval", approval=approval.model_dump(mode="json", include=fields))
    client = RawClient(front.url, front.house.token_of("me"))
    ((key, request),) = (await client.result("tasks/get", taskId=TASK))["inputRequests"].items()
    assert approval.artifact in request["params"]["message"]
    stale = {"approval:" + "0" * 64: {"action": "accept", "content": {"decision": "approved"}}}
    assert "conflict" in (await client.error("tasks/update", taskId=TASK, inputResponses=stale))[1]
    assert not front.house.of_type(ApprovalDecided)
    answer = {key: {"action": "accept", "content": {"decision": "approved", "reason": ""}}}
    await client.result("tasks/update", taskId=TASK, inputResponses=answer)
    (sent,) = front.house.of_type(ApprovalDecided)
    assert (sent.decision, sent.by) == ("approved", "me")


@pytest.mark.parametrize("case", ["a client that cannot ask", "a principal that may not", "the calling agent"])
async def test_a_question_that_the_client_cannot_answer_is_the_result(front: McpFront, case: str) -> None:
    put_waiting_task(front, **escalated("calling_llm" if case == "the calling agent" else "human"))
    roles = ("read",) if case == "a principal that may not" else ("read", "override")
    client = RawClient(front.url, front.house.token_of("llm", *roles, kind="agent"))
    if case == "a client that cannot ask":
        del client.capabilities["elicitation"]
    shown = await client.result("tasks/get", taskId=TASK)
    assert shown["status"] == "completed"
    assert shown["result"]["structuredContent"]["needs"][0]["what"] == "which resolver"
    assert "inputRequests" not in shown


async def test_an_agent_is_not_asked_to_decide_an_approval(front: McpFront) -> None:
    approval = put_approval(front)  # type: ignore[arg-type]
    fields = {"approval_id", "category", "artifact_sha256", "expires_at"}
    put_waiting_task(front, waiting_for="approval", approval=approval.model_dump(mode="json", include=fields))
    for roles, kind in ((("read", "approve"), "agent"), (("read",), "person")):
        client = RawClient(front.url, front.house.token_of(f"{kind}-1", *roles, kind=kind))
        shown = await client.result("tasks/get", taskId=TASK)
        assert (shown["status"], "inputRequests" in shown) == ("completed", False), kind
        assert shown["result"]["structuredContent"]["approval_id"] == "a1"


async def test_a_cancellation_is_asked_for_and_acknowledged(front: McpFront) -> None:
    put_waiting_task(front, **escalated("human"))
    client = RawClient(front.url, front.house.token_of("me"))
    assert (await client.result("tasks/cancel", taskId=TASK))["resultType"] == "complete"
    (sent,) = front.house.of_type(CancelTask)
    assert (sent.task_id, sent.by) == ("t1", "me")
    reader = RawClient(front.url, front.house.token_of("reader", "read"))
    assert "role" in (await reader.error("tasks/cancel", taskId=TASK))[1]


async def test_a_request_that_does_not_fit_is_refused_by_name(front: McpFront) -> None:
    put_waiting_task(front)
    client = RawClient(front.url, front.house.token_of("me"))
    for method, more in METHODS:
        for task_id in (f"{PROJECT}:nothing", f"other:{TASK}", "t1"):
            code, _ = await client.error(method, taskId=task_id, **more)
            assert code == -32602, task_id
        assert (await client.error(method, "other", taskId=TASK, **more))[0] == -32020
    client.capabilities = {}
    for method, more in METHODS:
        assert (await client.error(method, taskId=TASK, **more))[0] == -32021
