"""Commands in Slack and Teams act as the person whom the source names for the user, and are answered in the chat."""

import base64
import hashlib
import hmac
import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from growth import LIMIT, growth
from ui.http_front import PROJECT, RunningFront, put_task
from ui.pending_approvals import put_approval
from ui.webhook_senders import SECRET, configured, push

from counterpoint.proto.approvals import ApprovalDecided
from counterpoint.proto.attempts import TaskOutcomeReported
from counterpoint.proto.errors import Permanent
from counterpoint.proto.messages import utc_now
from counterpoint.router.notify.summary import TEXT_CHARS
from counterpoint.router.webhooks.chat import message_of_teams
from counterpoint.router.webhooks.chat_commands import LISTED, command_in

TOKEN = base64.b64encode(b"the security token of Teams").decode()
SOURCES = (
    f'[[source]]\nname = "chat"\nkind = "slack"\nsecret = "{SECRET}"\nusers = {{U1 = "ann", U2 = "bot", U4 = "gone"}}\n'
    f'[[source]]\nname = "rooms"\nkind = "teams"\nsecret = "{TOKEN}"\nusers = {{aad-1 = "ann"}}\n'
    f'project = "{PROJECT}"\n'
)


@pytest.fixture
def chat(front: RunningFront, tmp_path: Path) -> RunningFront:
    """A front with Slack and Teams: `U1` and `aad-1` are a person, `U2` an agent, `U4` a principal that is missing."""
    configured(front, tmp_path, SOURCES)
    front.house.token_of("ann", "approve", "report", "read")
    front.house.token_of("bot", "approve", "report", "read", kind="agent")
    return front


def signed_by_slack(form: dict[str, str], age_s: int = 0) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of a request of Slack."""
    content = urlencode(form).encode()
    stamp = str(int(utc_now().timestamp()) - age_s)
    signed = hmac.new(SECRET.encode(), b":".join((b"v0", stamp.encode(), content)), hashlib.sha256).hexdigest()
    return content, {"x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={signed}"}


async def slack(front: RunningFront, text: str, user: str = "U1", **other: str) -> httpx.Response:
    """The request that Slack sends for a slash command."""
    form = {"command": "/counterpoint", "text": text, "user_id": user, **other}
    return await push(front, "chat", *signed_by_slack(form))


async def reply_text(front: RunningFront, text: str, user: str = "U1") -> str:
    """The texts of the reply to a slash command."""
    answer = await slack(front, text if "--project" in text else f"{text} --project {PROJECT}", user)
    assert answer.status_code == 200
    assert answer.json()["response_type"] == "ephemeral"
    found = []
    for block in answer.json()["blocks"]:
        if block["type"] == "section":
            assert block["text"]["type"] == "plain_text"
            found.append(block["text"]["text"])
        else:
            found += [each["text"] for each in block["elements"][0]["elements"]]
    return "\n".join(found)


async def teams(
    front: RunningFront, words: str, *, age_s: float = 0, key: str = TOKEN, **activity: Any
) -> httpx.Response:
    """The request that an outgoing webhook of Teams sends."""
    sent = {
        "type": "message",
        "timestamp": (utc_now() - timedelta(seconds=age_s)).isoformat(),
        "from": {"id": "29:x", "aadObjectId": "aad-1"},
        "text": f"<at>Counterpoint</at> {words}&nbsp;",
        **activity,
    }
    content = json.dumps(sent).encode()
    signature = base64.b64encode(hmac.digest(base64.b64decode(key), content, hashlib.sha256)).decode()
    return await push(front, "rooms", content, {"authorization": f"HMAC {signature}"})


def card_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200
    return "\n".join(
        each.get("text") or each["codeSnippet"] for each in answer.json()["attachments"][0]["content"]["body"]
    )


def put_waiting_task(front: RunningFront, **fields: Any) -> None:
    put_task(front, "t1", "input_required", **{"kind": "troubleshoot", "title": "load <b>stock</b>", **fields})


async def test_waiting_tasks_and_a_task_are_shown_as_plain_text(chat: RunningFront) -> None:
    assert await reply_text(chat, "waiting") == f"Nothing waits in project {PROJECT}."
    put_waiting_task(chat, escalation={"to": "human", "code": "no_memory", "needs": []})
    assert await reply_text(chat, "waiting") == "t1: load <b>stock</b> (no_memory)"
    assert "load <b>stock</b> needs you" in await reply_text(chat, "show t1")
    assert "is not a task of project" in await reply_text(chat, "show t2")
    assert "approve APPROVAL HASH" in await reply_text(chat, "")
    assert "load \\<b\\>stock" in card_of(await teams(chat, "waiting"))


async def test_proposals_wait_too_and_hide_no_escalation(chat: RunningFront) -> None:
    put_waiting_task(chat, escalation={"to": "human", "code": "no_memory", "needs": []})
    for number in range(LISTED - 1):
        put_task(chat, f"p{number}", "input_required", waiting_for="outcome", proposal="Restart it", title="mend it")
    lines = (await reply_text(chat, "waiting")).splitlines()
    assert (len(lines), lines.count("t1: load <b>stock</b> (no_memory)")) == (LISTED, 1)
    assert "p0: mend it (waits for outcome)" in lines
    put_task(chat, "p99", "input_required", waiting_for="outcome", proposal="Restart it", title="mend it")
    assert (await reply_text(chat, "waiting")).splitlines()[-1] == "more: counterpoint tasks --state input_required"


async def test_no_text_above_the_clearance_of_the_chat_leaves(chat: RunningFront) -> None:
    put_waiting_task(chat, description="a secret", escalation={"to": "human", "code": "no_memory", "needs": []})
    approval = put_approval(chat, artifact="a secret")
    for store, record_id in (("tasks", "t1"), ("approvals", "a1")):
        chat.house.put(store, record_id, chat.house.one(store, record_id).body, label=2)
    assert await reply_text(chat, "waiting") == "t1: withheld (no_memory)"
    replies = [await reply_text(chat, words) for words in ("waiting", "show t1", "approvals")]
    assert not any("secret" in reply or "stock" in reply or approval.artifact in reply for reply in replies)
    assert "1 with a text above the clearance" in replies[2]


async def test_exactly_the_text_that_was_shown_is_approved_and_once(chat: RunningFront) -> None:
    digits = put_approval(chat).artifact_sha256[:12]
    shown = await reply_text(chat, "approvals")
    assert f"approve a1 {digits}" in shown
    assert "rm " not in shown
    assert "is not that of the text" in await reply_text(chat, f"approve a1 {digits[:8]}")
    assert "is not that of the text" in await reply_text(chat, f"approve a1 {'0' * 12}")
    assert "needs approve APPROVAL HASH" in await reply_text(chat, "approve a1")
    assert "needs reject APPROVAL HASH REASON" in await reply_text(chat, f"reject a1 {digits}")
    assert "needs a person" in await reply_text(chat, f"approve a1 {digits}", "U2")
    assert not chat.house.of_type(ApprovalDecided)
    for _ in range(2):
        assert "a1 is approved by ann" in card_of(await teams(chat, f"approve a1 {digits}"))
    assert "comes too late" in await reply_text(chat, f"reject a1 {digits} too dear")
    (decided,) = chat.house.of_type(ApprovalDecided)
    assert (decided.approval_id, decided.decision, decided.by) == ("a1", "approved", "ann")
    assert await reply_text(chat, "approvals") == f"No approval waits in project {PROJECT}."


async def test_a_text_too_long_for_the_chat_is_neither_shown_nor_decided_there(chat: RunningFront) -> None:
    digits = put_approval(chat, artifact="x" * (TEXT_CHARS + 1)).artifact_sha256[:12]
    shown = await reply_text(chat, "approvals")
    assert "too long to be shown here" in shown
    assert "xxx" not in shown
    assert "too long to be shown here" in await reply_text(chat, f"reject a1 {digits} no")
    assert not chat.house.of_type(ApprovalDecided)


async def test_a_text_to_approve_is_shown_character_by_character(chat: RunningFront) -> None:
    artifact = "rm *a* && echo <b>\n\n  ~c~ _d_"
    put_approval(chat, artifact=artifact)
    assert artifact in await reply_text(chat, "approvals")
    body = (await teams(chat, "approvals")).json()["attachments"][0]["content"]["body"]
    assert body[-1] == {"type": "CodeBlock", "codeSnippet": artifact, "language": "PlainText"}


async def test_changes_and_outcomes_are_reported_as_the_person(chat: RunningFront) -> None:
    put_waiting_task(chat, waiting_for="outcome", proposal="Restart it", attempt=1)
    await chat.me.post("/v1/tasks", json={"kind": "troubleshoot", "description": "d", "task_id": "t1"})
    assert "must be succeeded" in await reply_text(chat, "outcome t1 helped")
    assert "Reported for task t1" in await reply_text(chat, "changed t1 raised the &lt;quota&gt; to 40 GB")
    assert "Reported for task t1" in await reply_text(chat, "outcome t1 failed still full")
    fixed, failed = chat.house.of_type(TaskOutcomeReported)
    assert (fixed.outcome, fixed.fixed_by, fixed.note, fixed.by, fixed.by_kind) == (
        "succeeded", "something_else", "raised the <quota> to 40 GB", "ann", "person",
    )  # fmt: skip
    assert (failed.outcome, failed.fixed_by, failed.note) == ("failed", None, "still full")
    assert "is not a task of project" in await reply_text(chat, "changed t9 x")


def click_on(action: str, task: dict[str, Any], **more: str) -> dict[str, str]:
    """The form that Slack sends for a click on a button, or for a text that was entered."""
    payload = {"type": "block_actions", "user": {"id": "U1"}, "actions": [{"action_id": action, **more}]}
    payload["actions"][0]["block_id" if action == "changed" else "value"] = json.dumps(task)
    return {"payload": json.dumps(payload)}


@pytest.mark.parametrize(
    "form",
    [
        {"command": "/counterpoint", "text": f"outcome t1 failed again --project {PROJECT}", "user_id": "U1"},
        {"command": "/counterpoint", "text": f"changed t1 raised the quota --project {PROJECT}", "user_id": "U1"},
        click_on("failed", {"project": PROJECT, "task_id": "t1", "attempt": 1}),
        click_on("changed", {"project": PROJECT, "task_id": "t1"}, value="raised the quota"),
    ],
)
async def test_a_recorded_request_of_slack_counts_once(chat: RunningFront, form: dict[str, str]) -> None:
    put_waiting_task(chat, waiting_for="outcome", proposal="Restart it", attempt=1)
    await chat.me.post("/v1/tasks", json={"kind": "troubleshoot", "description": "d", "task_id": "t1"})
    content, headers = signed_by_slack(form)
    upper = headers | {"x-slack-signature": headers["x-slack-signature"].upper().replace("V0", "v0")}
    for given in (headers, headers, upper):
        answer = await push(chat, "chat", content, given)
        assert answer.status_code == 200
        assert "Reported for task t1" in answer.text or "payload" in form
    assert len(chat.house.of_type(TaskOutcomeReported)) == 1
    # The same words again are another request.
    assert (await push(chat, "chat", *signed_by_slack(form, age_s=60))).status_code == 200
    assert len(chat.house.of_type(TaskOutcomeReported)) == 2


async def test_a_recorded_message_of_teams_counts_once(chat: RunningFront) -> None:
    put_waiting_task(chat, waiting_for="outcome", proposal="Restart it", attempt=1)
    await chat.me.post("/v1/tasks", json={"kind": "troubleshoot", "description": "d", "task_id": "t1"})
    sent_at = utc_now().isoformat()
    for _ in range(2):
        assert "Reported for task t1" in card_of(await teams(chat, "outcome t1 failed", timestamp=sent_at))
    assert len(chat.house.of_type(TaskOutcomeReported)) == 1
    await teams(chat, "outcome t1 failed")
    assert len(chat.house.of_type(TaskOutcomeReported)) == 2


async def test_strangers_other_projects_and_unknown_words_are_refused_by_name(chat: RunningFront) -> None:
    assert "principal for the user U3" in await reply_text(chat, "waiting", "U3")
    assert "the principal gone" in await reply_text(chat, "waiting", "U4")
    assert "in project billing" in await reply_text(chat, "waiting --project billing")
    assert "project" in await reply_text(chat, "waiting --project ../x")
    assert "--project needs" in await reply_text(chat, "waiting --project")
    assert "drop is none of waiting" in await reply_text(chat, "drop everything")
    assert "is not that of source rooms" in card_of(await teams(chat, "waiting --project billing"))
    assert (await push(chat, "chat", b"command=x&text=waiting&user_id=U1")).status_code == 401


@pytest.mark.parametrize("piece", ["<", "<at>", "<at", "<at>x</at"])
def test_a_message_of_teams_takes_time_in_proportion_to_its_length(piece: str) -> None:
    def read(size: int) -> None:
        said = {"timestamp": utc_now().isoformat(), "from": {"id": "u"}, "text": piece * (size // len(piece))}
        message_of_teams(json.dumps(said).encode(), utc_now())

    assert growth(read, 64_000) < LIMIT


async def test_a_message_of_teams_is_signed_and_recent(chat: RunningFront) -> None:
    assert card_of(await teams(chat, "waiting")) == f"Nothing waits in project {PROJECT}."
    other = base64.b64encode(b"another key").decode()
    assert (await teams(chat, "waiting", key=other)).status_code == 401
    assert (await teams(chat, "waiting", age_s=301)).status_code == 401
    assert (await teams(chat, "waiting", timestamp="soon")).status_code == 400
    assert (await teams(chat, "waiting", timestamp="2026-01-01T00:00:00")).status_code == 400
    assert (await teams(chat, "waiting", text=None)).status_code == 400
    assert "principal for the user 29:x" in card_of(await teams(chat, "waiting", **{"from": {"id": "29:x"}}))
    assert (await push(chat, "rooms", b"[]", {"authorization": "HMAC x"})).status_code == 401


async def test_a_token_of_teams_that_is_no_base64_is_refused_by_name(chat: RunningFront, tmp_path: Path) -> None:
    configured(chat, tmp_path, SOURCES.replace(TOKEN, "plain!"))
    answer = await teams(chat, "waiting")
    assert answer.status_code == 401, "the file's fault is for those who may push"


@pytest.mark.parametrize(
    "text", ["approve", "approve a1", "reject a1 0123", "outcome t1", "changed t1", "x", "--project"]
)
def test_a_command_without_its_words_is_refused(text: str) -> None:
    with pytest.raises(Permanent):
        command_in(text)
