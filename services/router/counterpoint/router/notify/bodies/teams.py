"""Microsoft Teams: an adaptive card, posted to the URL of a workflow.

A workflow cannot update a card, and no button of a card that it posts sends anything back: that needs a bot. The one
button opens the console, where people act under their own names.
"""

import json
import re
from typing import Any

from counterpoint.router.notify.digest import IncidentDigest
from counterpoint.router.notify.outbound import Call
from counterpoint.router.notify.receivers import Receiver
from counterpoint.router.notify.summary import IncidentSummary

_MARKDOWN = re.compile(r"([\\`*_\[\]()#<>!|~])")


def teams_call(receiver: Receiver, incident: IncidentSummary) -> Call:
    """Return the call that posts the card of an incident."""
    return _call(receiver, card(incident, receiver.page_of(incident.project, incident.task_id)))


def teams_digest_call(receiver: Receiver, digest: IncidentDigest) -> Call:
    """Return the call that posts a digest."""
    return _call(receiver, _card([_text(digest.headline, weight="Bolder"), *map(_text, digest.lines)]))


def _call(receiver: Receiver, content: dict[str, Any]) -> Call:
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": content}
    body = {"type": "message", "attachments": [attachment]}
    return Call(receiver.address, json.dumps(body).encode(), {"Content-Type": "application/json"})


def card(incident: IncidentSummary, page: str | None = None) -> dict[str, Any]:
    """Return the adaptive card, with a button that opens its `page` if it is known. Markdown in texts is escaped."""
    body: list[dict[str, Any]] = [_text(incident.headline, weight="Bolder", size="Medium")]
    if again := incident.recurrence:
        body.append(_text(again, isSubtle=True))
    body.append(
        {"type": "FactSet", "facts": [{"title": name, "value": literal(value)} for name, value in incident.facts]}
    )
    if incident.error and not incident.is_over:
        body.append(_text(incident.error, fontType="Monospace"))
    if incident.proposal:
        body.append(_text(incident.proposal))
    body += [_text(f"Needs: {need}") for need in incident.needs]
    if incident.impact:
        body.append(_text(f"Will be late: {incident.impact}"))
    body.append(_text(f"counterpoint show {incident.task_id} --project {incident.project}", isSubtle=True))
    actions = [{"type": "Action.OpenUrl", "title": _title(incident), "url": page}] if page else []
    return _card(body) | ({"actions": actions} if actions else {})


def _title(incident: IncidentSummary) -> str:
    """Return the words on the button: what a person does on the page."""
    if incident.is_unexplained:
        return "Say what was changed"
    known = {"approval": "Approve or reject", "proposed": "Report the outcome", "escalated": "Decide"}
    return known.get(incident.status, "Open in the console")


def _card(body: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
    }


def literal(text: str) -> str:
    """Return a text without effect as markdown."""
    return _MARKDOWN.sub(r"\\\1", text)


def _text(text: str, **style: Any) -> dict[str, Any]:
    return {"type": "TextBlock", "text": literal(text), "wrap": True, **style}
