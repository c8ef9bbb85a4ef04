"""PagerDuty (Events API v2) and Alertmanager: one alert per incident, which is resolved with it."""

import json
from datetime import datetime, timedelta
from typing import Any

from counterpoint.router.notify.deliveries import Delivery
from counterpoint.router.notify.outbound import Call
from counterpoint.router.notify.receivers import Receiver
from counterpoint.router.notify.summary import IncidentSummary, shortened

_JSON = {"Content-Type": "application/json"}
_PAGERDUTY_SEVERITY = {"low": "info", "normal": "warning", "high": "error", "urgent": "critical"}
_OPEN_FOR = timedelta(days=30)
"""Time until Alertmanager forgets an alert that is not resolved before."""


def pagerduty_call(receiver: Receiver, incident: IncidentSummary) -> Call:
    """Return the event: `trigger`, `acknowledge` while it is being worked on, `resolve` at its end."""
    action = "resolve" if incident.is_over else "acknowledge" if incident.status == "working" else "trigger"
    body: dict[str, Any] = {
        "routing_key": receiver.secret.get_secret_value() if receiver.secret else "",
        "event_action": action,
        "dedup_key": dedup_key(incident),
    }
    if action == "trigger":
        body["payload"] = {
            "summary": shortened(incident.headline, 1024),
            "source": incident.job or incident.project,
            "severity": _PAGERDUTY_SEVERITY.get(incident.severity, "warning"),
            "component": incident.job,
            "group": incident.project,
            "timestamp": incident.opened_at.isoformat(),
            "custom_details": {**dict(incident.facts), **_texts(incident)},
        }
        if page := receiver.page_of(incident.project, incident.task_id):
            body |= {"client": "Counterpoint", "client_url": page}
    return Call(receiver.address, json.dumps(body).encode(), _JSON)


def alertmanager_call(receiver: Receiver, delivery: Delivery, incident: IncidentSummary, now: datetime) -> Call:
    """Return the alert for `POST /api/v2/alerts`; its labels are those of the beginning until its end."""
    labels = {
        "alertname": "CounterpointIncident",
        "incident": incident.task_id,
        "project": incident.project,
        "severity": delivery.severity,
    }
    if incident.job:
        labels["job"] = incident.job
    if delivery.owner:
        labels["owner"] = delivery.owner
    alert = {
        "labels": labels,
        "annotations": {"summary": incident.headline, **_texts(incident)},
        "startsAt": incident.opened_at.isoformat(),
        "endsAt": (now if incident.is_over else now + _OPEN_FOR).isoformat(),
    }
    if page := receiver.page_of(incident.project, incident.task_id):
        alert["generatorURL"] = page
    url = receiver.address.rstrip("/")
    url = url if url.endswith("/api/v2/alerts") else f"{url}/api/v2/alerts"
    return Call(url, json.dumps([alert]).encode(), _JSON)


def dedup_key(incident: IncidentSummary) -> str:
    """Return the key of an incident at PagerDuty."""
    return f"counterpoint/{incident.project}/{incident.task_id}"


def _texts(incident: IncidentSummary) -> dict[str, str]:
    texts = {
        "error": incident.error,
        "proposal": incident.proposal,
        "needs": "; ".join(incident.needs),
        "will_be_late": incident.impact,
    }
    return {name: text for name, text in texts.items() if text}
