"""Clicks in Slack decide approvals and report outcomes, as the person whom the source names for the user."""

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from ui.http_front import RunningFront, put_task
from ui.pending_approvals import put_approval
from ui.webhook_senders import SECRET, configured, push

from counterpoint.proto.approvals import Approval, ApprovalDecided
from counterpoint.proto.attempts import TaskOutcomeReported
from counterpoint.proto.messages import utc_now
from counterpoint.proto.notifications import NotificationDue
from counterpoint.proto.tasks import Task
from counterpoint.router.notify.bodies.slack import blocks
from counterpoint.router.notify.summary import TEXT_CHARS, summary_of

SOURCE = f'[[source]]\nname = "chat"\nkind = "slack"\nsecret = "{SECRET}"\nusers = {{U1 = "ann", U2 = "bot"}}\n'


@pytest.fixture
def chat(front: RunningFront, tmp_path: Path) -> RunningFront:
    """A front with a source of Slack: `U1` is a person, `U2` an agent."""
    configured(front, tmp_path, SOURCE)
    front.house.token_of("ann", "approve", "report", "read")
    front.house.token_of("bot", "approve", "report", "read", kind="agent")
    return front


def buttons(task: Task, approval: Approval | None = None) -> list[dict[str, Any]]:
    shown = blocks(summary_of(task, {}, approval=approval), buttons=True)
    return [button for block in shown if block["type"] == "actions" for button in block["elements"]]


async def click(front: RunningFront, button: dict[str, Any], user: str = "U1", **headers: str) -> httpx.Response:
    """The request that Slack sends when a user clicks a button."""
    payload = {"type": "block_actions", "user": {"id": user}, "actions": [button]}
    content = urlencode({"payload": json.dumps(payload)}).encode()
    stamp = headers.get("stamp", str(int(utc_now().timestamp())))
    signed = hmac.new(SECRET.encode(), b":".join((b"v0", stamp.encode(), content)), hashlib.sha256).hexdigest()
    given = {"x-slack-request-timestamp": stamp, "x-slack-signature": headers.get("signature", f"v0={signed}")}
    return await push(front, "chat", content, given)


def task_of(front: RunningFront, **fields: Any) -> Task:
    put_task(front, "t1", "input_required", **{"kind": "troubleshoot", "title": "load", **fields})
    return Task.model_validate(front.house.one("tasks", "t1").body)


async def test_a_person_decides_an_approval_once(chat: RunningFront) -> None:
    approval = put_approval(chat)
    approve, reject = buttons(task_of(chat, waiting_for="approval"), approval)
    assert (await click(chat, approve, "U2")).status_code == 403
    assert (await click(chat, approve, "U3")).json()["code"] == "principal"
    for _ in range(2):
        assert (await click(chat, approve)).status_code == 200
    assert (await click(chat, reject)).status_code == 409
    (decided,) = chat.house.of_type(ApprovalDecided)
    assert (decided.approval_id, decided.decision, decided.by) == ("a1", "approved", "ann")


async def test_another_text_than_the_one_shown_is_not_approved_and_a_long_one_not_here(chat: RunningFront) -> None:
    task = task_of(chat, waiting_for="approval")
    approve, _ = buttons(task, put_approval(chat))
    put_approval(chat, artifact="another text")
    assert (await click(chat, approve)).status_code == 409
    assert not chat.house.of_type(ApprovalDecided)
    assert buttons(task, put_approval(chat, artifact="x" * (TEXT_CHARS + 1))) == []
    marked = "rm *a* && echo <b> ~c~ " + "&" * (TEXT_CHARS - 30)
    shown = blocks(summary_of(task, {}, approval=put_approval(chat, artifact=marked)), buttons=True)
    (exact,) = [block for block in shown if block["type"] == "rich_text"]
    assert exact["elements"][0]["elements"] == [{"type": "text", "text": marked}]


async def test_an_outcome_is_reported_for_the_attempt_that_was_shown(chat: RunningFront) -> None:
    helped, failed = buttons(task_of(chat, waiting_for="outcome", proposal="Restart it", attempt=1))
    assert failed["action_id"] == "failed"
    assert (await push(chat, "chat", b"payload=x")).status_code == 401
    # The submission of the task is what a report is checked against.
    await chat.me.post("/v1/tasks", json={"kind": "troubleshoot", "description": "d", "task_id": "t1"})
    assert (await click(chat, helped)).status_code == 200
    (outcome,) = chat.house.of_type(TaskOutcomeReported)
    assert (outcome.attempt, outcome.outcome, outcome.by, outcome.by_kind) == (1, "succeeded", "ann", "person")


def unexplained(front: RunningFront) -> Task:
    needs = [{"kind": "outcome", "what": "what was changed", "how": "counterpoint outcome"}]
    put_task(front, "t1", "completed", kind="troubleshoot", title="load", resolution="resolved", needs=needs)
    return Task.model_validate(front.house.one("tasks", "t1").body)


@pytest.mark.parametrize(
    ("said", "fixed_by", "note"),
    [(" Opened port 53 ", "something_else", "Opened port 53"), (None, "nothing", "reported in Slack")],
)
async def test_a_change_is_reported_by_a_reply_in_the_message(
    chat: RunningFront, said: str | None, fixed_by: str, note: str
) -> None:
    object.__setattr__(chat.app.state.resources, "has_receivers", True)
    await chat.me.post("/v1/tasks", json={"kind": "troubleshoot", "description": "d", "task_id": "t1"})
    shown = blocks(summary_of(unexplained(chat), {}), buttons=True)
    (field,) = [block for block in shown if block["type"] == "input"]
    (nothing,) = [button for block in shown if block["type"] == "actions" for button in block["elements"]]
    entered = {"type": "plain_text_input", "action_id": field["element"]["action_id"], "block_id": field["block_id"]}
    reply = nothing if said is None else {**entered, "value": said}
    assert (await click(chat, reply)).status_code == 200
    (outcome,) = chat.house.of_type(TaskOutcomeReported)
    assert (outcome.outcome, outcome.fixed_by, outcome.note) == ("succeeded", fixed_by, note)
    assert (outcome.by, outcome.attempt) == ("ann", None)
    (due,) = chat.house.of_type(NotificationDue)
    assert due.task_id == "t1"


async def test_a_proposal_is_credited_by_a_button_only_if_its_success_was_observed(chat: RunningFront) -> None:
    await chat.me.post("/v1/tasks", json={"kind": "troubleshoot", "description": "d", "task_id": "t1"})
    task = unexplained(chat).model_copy(update={"attempt": 1})
    for evidence, actions in (("observed", ["succeeded", "recovered"]), (None, ["recovered"])):
        outcomes = {"1": {"outcome": "succeeded", "evidence": evidence}} if evidence else {}
        shown = blocks(summary_of(task.model_copy(update={"outcomes": outcomes}), {}), buttons=True)
        found = [button for block in shown if block["type"] == "actions" for button in block["elements"]]
        assert [button["action_id"] for button in found] == actions
        assert (await click(chat, found[0])).status_code == 200
    credited = chat.house.of_type(TaskOutcomeReported)[0]
    # A note would be learned as what the reporter did.
    assert (credited.fixed_by, credited.note) == ("proposal", None)


async def test_an_answer_without_words_or_of_another_block_is_refused(chat: RunningFront) -> None:
    (field,) = [block for block in blocks(summary_of(unexplained(chat), {}), buttons=True) if block["type"] == "input"]
    for change in (
        {"value": "  "},
        {"value": None},
        {"value": "x", "block_id": "abc"},
        {"value": "x", "block_id": "[]"},
    ):
        reply = {"action_id": "changed", "block_id": field["block_id"], **change}
        assert (await click(chat, reply)).status_code in (400, 422), change
    assert not chat.house.of_type(TaskOutcomeReported)


async def test_a_click_that_is_not_signed_or_late_or_not_ours_is_refused(chat: RunningFront) -> None:
    approve, _ = buttons(task_of(chat, waiting_for="approval"), put_approval(chat))
    now = int(utc_now().timestamp())
    assert (await click(chat, approve, signature="v0=00")).status_code == 401
    assert (await click(chat, approve, stamp=str(now - 301))).status_code == 401
    assert (await click(chat, {"action_id": "approved", "value": "[1]"})).status_code == 422
    assert (await click(chat, {"action_id": "drop", "value": approve["value"]})).status_code == 422
    assert (await click(chat, {"action_id": "approved", "value": "{"})).status_code == 400
    other = json.dumps(json.loads(approve["value"]) | {"project": "billing"})
    assert (await click(chat, approve | {"value": other})).status_code == 404
    assert not chat.house.of_type(ApprovalDecided)
