"""Slack: one message per incident, updated in place; a recurrence is told in the thread of the first.

With a bot token the Web API posts and updates. An incoming webhook can only post, so each change is a new message.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal

from counterpoint.router.notify.deliveries import Delivery
from counterpoint.router.notify.digest import IncidentDigest
from counterpoint.router.notify.outbound import Answer, Call
from counterpoint.router.notify.receivers import Receiver
from counterpoint.router.notify.summary import IncidentSummary

SlackError = Literal["passing", "final", "gone"]
"""The kind of an error. After `gone` a new message is posted."""
_EMOJI = {
    "working": ":gear:",
    "proposed": ":bulb:",
    "escalated": ":rotating_light:",
    "approval": ":raised_hand:",
    "resolved": ":white_check_mark:",
    "failed": ":x:",
    "cancelled": ":heavy_minus_sign:",
}
_PERMANENT = frozenset(
    {
        "invalid_auth",
        "not_authed",
        "account_inactive",
        "token_revoked",
        "missing_scope",
        "channel_not_found",
        "not_in_channel",
        "is_archived",
        "invalid_blocks",
    }
)
"""Errors of the Web API that a retry does not cure."""
_GONE = frozenset({"message_not_found", "cant_update_message", "edit_window_closed", "thread_not_found"})
"""Errors of the Web API about a message that can no longer be updated or replied to."""


def slack_call(receiver: Receiver, delivery: Delivery, incident: IncidentSummary) -> Call:
    """Return the call that posts an incident, or updates its message."""
    page = receiver.page_of(incident.project, incident.task_id)
    body = {"text": escaped(incident.headline), "blocks": blocks(incident, buttons=receiver.buttons, page=page)}
    if delivery.ref:
        return _call(receiver, "chat.update", body, delivery.ref)
    thread = {"thread_ts": delivery.thread["ts"], "reply_broadcast": True} if delivery.thread else {}
    return _call(receiver, "chat.postMessage", body, thread)


def slack_digest_call(receiver: Receiver, digest: IncidentDigest) -> Call:
    """Return the call that posts a digest, at most 20 lines in one message."""
    lines = [_section(f"• {escaped(line)}"[:2900]) for line in digest.lines]
    body = {"text": escaped(digest.headline), "blocks": [_section(f"*{escaped(digest.headline)}*"), *lines]}
    return _call(receiver, "chat.postMessage", body, {})


def _call(receiver: Receiver, method: str, body: dict[str, Any], to: Mapping[str, Any]) -> Call:
    """Return a call of the Web API, or of an incoming webhook, which knows neither channels nor threads."""
    headers = {"Content-Type": "application/json; charset=utf-8"}
    if receiver.secret is None:
        return Call(receiver.address, json.dumps(body).encode(), headers)
    headers["Authorization"] = f"Bearer {receiver.secret.get_secret_value()}"
    sent = body | {"channel": receiver.channel, **to, "unfurl_links": False}
    return Call(f"{receiver.address.rstrip('/')}/api/{method}", json.dumps(sent).encode(), headers)


def slack_result(receiver: Receiver, answer: Answer) -> tuple[dict[str, str] | None, str | None, SlackError]:
    """Return the reference of the message, the error, and its kind."""
    if receiver.secret is None:
        return None, None, "passing"
    try:
        body = json.loads(answer.content)
    except ValueError:
        return None, "the answer is not JSON", "passing"
    if not isinstance(body, dict) or body.get("ok") is not True:
        error = str(body.get("error", "unknown")) if isinstance(body, dict) else "unknown"
        error = "".join(c for c in error if c.isalnum() or c == "_")[:60]
        kind: SlackError = "gone" if error in _GONE else "final" if error in _PERMANENT else "passing"
        return None, f"Slack answered {error}", kind
    return {"channel": str(body.get("channel", receiver.channel)), "ts": str(body.get("ts", ""))}, None, "passing"


def blocks(incident: IncidentSummary, *, buttons: bool = False, page: str | None = None) -> list[dict[str, Any]]:
    """Return the blocks of a message, with a link to its `page` in the console if it is known.

    Texts of others are escaped: they mention nobody and hold no links.
    """
    found = [_section(f"{_EMOJI[incident.status]} *{escaped(incident.headline)}*")]
    if again := incident.recurrence:
        found.append(_context(again))
    facts = [_mrkdwn(f"*{name}*\n{escaped(value)}") for name, value in incident.facts]
    found.append({"type": "section", "fields": facts[:10]})
    if incident.error and not incident.is_over:
        found.append(_section(f"```{escaped(incident.error).replace('```', '')}```"))
    if incident.proposal:
        found.append(_section(escaped(incident.proposal)))
    found += [_section(f"*needs* {escaped(need)}") for need in incident.needs[:5]]
    if incident.impact:
        found.append(_section(f"*will be late* {escaped(incident.impact)}"[:2900]))
    if incident.approval:
        found += [_section("*to approve*"), _verbatim(incident.approval.artifact)]
    if buttons and (elements := _buttons(incident)):
        found.append({"type": "actions", "elements": elements})
    if buttons and incident.is_unexplained:
        found.append(_question(incident))
    command = f"`counterpoint show {incident.task_id} --project {incident.project}`"
    found.append(_context(f"<{escaped(page)}|Open in the console> {command}" if page else command))
    return found


def _buttons(incident: IncidentSummary) -> list[dict[str, Any]]:
    """Return the buttons of a message. A text that is not shown whole is not decided here."""
    task: dict[str, Any] = {"project": incident.project, "task_id": incident.task_id}
    if incident.status == "approval" and incident.approval and incident.approval.whole:
        value = task | {"approval_id": incident.approval.approval_id, "sha256": incident.approval.artifact_sha256}
        return [_button("Approve", "approved", value, "primary"), _button("Reject", "rejected", value, "danger")]
    if incident.status == "proposed" and incident.attempt:
        value = task | {"attempt": incident.attempt}
        return [_button("It helped", "succeeded", value, "primary"), _button("It did not help", "failed", value)]
    if incident.is_unexplained:
        proposal = [_button("The proposal fixed it", "succeeded", task, "primary")] if incident.attempt else []
        return [*proposal, _button("Nothing was changed", "recovered", task)]
    return []


def _question(incident: IncidentSummary) -> dict[str, Any]:
    """Return the field in which a person answers what fixed it. Slack sends the block's id with the answer."""
    task = {"project": incident.project, "task_id": incident.task_id}
    return {
        "type": "input",
        "block_id": json.dumps(task, separators=(",", ":")),
        "dispatch_action": True,
        "label": {"type": "plain_text", "text": "What did you change?"},
        "element": {
            "type": "plain_text_input",
            "action_id": "changed",
            "max_length": 3000,
            "dispatch_action_config": {"trigger_actions_on": ["on_enter_pressed"]},
        },
    }


def _button(text: str, action: str, value: dict[str, Any], style: str | None = None) -> dict[str, Any]:
    button = {
        "type": "button",
        "text": {"type": "plain_text", "text": text},
        "action_id": action,
        "value": json.dumps(value, separators=(",", ":")),
    }
    return button | ({"style": style} if style else {})


def escaped(text: str) -> str:
    """Return a text as Slack shows it literally, at most what fits into one block."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")[:2900]


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _mrkdwn(text)}


def _context(text: str) -> dict[str, Any]:
    return {"type": "context", "elements": [_mrkdwn(text)]}


def _mrkdwn(text: str) -> dict[str, Any]:
    """Return a text in which Slack makes no links of addresses and names."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _verbatim(text: str) -> dict[str, Any]:
    """Return a text that Slack shows character by character, as one that is approved must be."""
    element = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text}]}
    return {"type": "rich_text", "elements": [element]}
