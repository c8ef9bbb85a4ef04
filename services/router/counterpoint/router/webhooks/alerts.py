"""Alerts: bodies of Alertmanager, Grafana and PagerDuty as reports. Pure."""

from typing import Any

from counterpoint.router.webhooks.reports import Event, IgnoredEvent, Report, path, text_of

_PRIORITY = {
    "critical": "urgent",
    "page": "urgent",
    "error": "high",
    "high": "high",
    "warning": "normal",
    "info": "low",
    "low": "low",
}
_PAGERDUTY_PRIORITY = {"high": "high", "low": "normal"}


def alerts_of(body: Any) -> list[tuple[Any, Event]]:
    """Return the alerts of a body of Alertmanager or Grafana, each with what it says."""
    rows = path(body, "alerts")
    if not isinstance(rows, list):
        return [(body, IgnoredEvent("the body has no list of alerts"))]
    return [(row, _alert(row)) for row in rows]


def pagerduty_event(body: Any) -> Report | IgnoredEvent:
    """Return what an event of PagerDuty says."""
    event, kind = path(body, "event"), path(body, "event", "event_type")
    incident = text_of(path(event, "data", "id"), 200)
    if (name := text_of(kind, 100)) is None:
        return IgnoredEvent("the body has no event with an event_type")
    if kind not in ("incident.triggered", "incident.resolved") or incident is None:
        return IgnoredEvent(f"the event {name} is not used")
    if kind == "incident.resolved":
        return Report(incident, resolved=True)
    title = text_of(path(event, "data", "title"), 300) or "an incident of PagerDuty"
    urgency = path(event, "data", "urgency")
    fields: dict[str, Any] = {
        "kind": "troubleshoot",
        "title": title,
        "description": title,
        "error_message": title,
        "priority": _PAGERDUTY_PRIORITY.get(urgency, "normal") if isinstance(urgency, str) else "normal",
        "source_ref": text_of(path(event, "data", "html_url"), 2000),
        "systems": tuple(filter(None, (text_of(path(event, "data", "service", "summary"), 200),))),
    }
    return Report(incident, fields)


def _alert(row: Any) -> Report | IgnoredEvent:
    labels, notes = path(row, "labels"), path(row, "annotations")
    print_, began = text_of(path(row, "fingerprint"), 200), text_of(path(row, "startsAt"), 200)
    if print_ is None or began is None:
        return IgnoredEvent("an alert has no fingerprint or startsAt")
    key = f"{print_}/{began}"
    if path(row, "status") == "resolved":
        return Report(key, resolved=True)
    title = text_of(path(notes, "summary"), 300) or text_of(path(labels, "alertname"), 300) or "an alert"
    shown = text_of(path(notes, "description")) or text_of(path(notes, "message")) or title
    severity = text_of(path(labels, "severity"), 40) or ""
    fields: dict[str, Any] = {
        "kind": "troubleshoot",
        "title": title,
        "description": shown,
        "error_message": shown,
        "priority": _PRIORITY.get(severity.lower(), "normal"),
        "source_ref": text_of(path(row, "generatorURL"), 2000),
        "job_namespace": text_of(path(labels, "job_namespace"), 500),
        "job_name": text_of(path(labels, "job_name"), 500),
    }
    return Report(key, fields)
