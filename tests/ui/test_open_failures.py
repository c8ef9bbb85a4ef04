"""A task names the open one about the same failure, in the reply to its submission and on its card."""

from datetime import timedelta
from typing import Any

import pytest
from agents.router_house import NOW
from ui.cli_server import ScriptedApi
from ui.command_runner import run
from ui.http_front import RunningFront, put_task
from ui.mcp_front import McpFront, mcp_front

from counterpoint.proto.findings import OPEN_SAME_FAILURE
from counterpoint.proto.signature import signature

ERROR = "PumpError: no pressure at valve 17 after 30 s"
AGAIN = "PumpError: no pressure at valve 4 after 12 s"
FIRST: dict[str, Any] = {
    "kind": "troubleshoot",
    "error_message": ERROR,
    "submitted_by": "ann",
    "submitted_at": NOW - timedelta(minutes=5),
}
AGAIN_BODY = {"kind": "troubleshoot", "description": "the pump stopped", "error_message": AGAIN}


def put_first(front: RunningFront | McpFront, state: str = "input_required", **more: Any) -> None:
    """The record of an earlier task, with what the manager writes into it."""
    put_task(front, "first", state, **FIRST, error_signature=signature(ERROR).digest, **more)


async def submitted(front: RunningFront, **more: Any) -> dict[str, Any] | None:
    """Submit the failure again, and return the task that the reply names."""
    response = await front.me.post("/v1/tasks", json=AGAIN_BODY | more)
    assert response.status_code == 202, response.text
    found: dict[str, Any] | None = (response.json().get("context") or {}).get(OPEN_SAME_FAILURE)
    return found


async def test_the_reply_and_the_card_name_the_open_task_about_the_same_failure(front: RunningFront) -> None:
    put_first(front)
    named = await submitted(front)
    assert named is not None
    assert (named["task_id"], named["submitted_by"]) == ("first", "ann")
    put_task(
        front, "second", "working", **AGAIN_BODY, error_signature=signature(AGAIN).digest,
        context={OPEN_SAME_FAILURE: {"task_id": "a claim of the sender"}},
    )  # fmt: skip
    lines = await also_open(front, "second")
    assert lines[0].startswith("first is about the same failure")
    assert "from ann" in lines[0]
    assert lines[1].strip() == "counterpoint show first --project orders"
    assert await also_open(front, "first") == [], "the oldest is the one to go to"
    put_task(front, "first", "completed", **FIRST, error_signature=signature(ERROR).digest)
    assert await also_open(front, "second") == []


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ({"target": {"job": {"namespace": "plant", "name": "north"}}}, {}),
        ({"systems": ("pump-a",)}, {"systems": ["pump-b"]}),
        ({"state": "completed"}, {}),
    ],
    ids=["another job", "another system", "it has ended"],
)
async def test_another_failure_is_not_named(front: RunningFront, first: dict[str, Any], again: dict[str, Any]) -> None:
    put_first(front, **first)
    assert await submitted(front, **again) is None


async def test_a_submitter_who_may_not_read_learns_of_no_task(front: RunningFront) -> None:
    put_first(front)
    async with front.as_principal("sender", "submit") as sender:
        reply = (await sender.post("/v1/tasks", json=AGAIN_BODY)).json()
    assert "first" not in str(reply)


async def test_an_agent_is_shown_the_open_task() -> None:
    async with mcp_front() as mcp, mcp.client() as client:
        put_first(mcp)
        arguments = {"task": "the pump stopped", "error_message": AGAIN, "wait_s": 0}
        result = await client.call_tool("delegate_to_developer", arguments)
    assert result.structured_content is not None
    assert any(each.startswith("first is about the same failure") for each in result.structured_content["caveats"])


def test_the_command_prints_where_to_go(api: ScriptedApi) -> None:
    named = {"task_id": "first", "submitted_by": "ann", "submitted_at": NOW.isoformat()}
    reply = {"task_id": "second", "project": "orders", "context": {OPEN_SAME_FAILURE: named}}
    api.on("POST /v1/tasks", (202, reply))
    result = run("submit", "troubleshoot", "the pump stopped", "--error", AGAIN, *api.options())
    assert result.stdout.strip() == "second"
    assert "first is open, from ann, about the same failure: `counterpoint show first --project orders" in result.stderr


async def also_open(front: RunningFront, task_id: str) -> list[str]:
    card = (await front.me.get(f"/v1/tasks/{task_id}/card")).json()
    return [line for each in card["sections"] if each["label"] == "also open" for line in each["lines"]]
