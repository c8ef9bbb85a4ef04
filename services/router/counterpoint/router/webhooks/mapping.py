"""Mapping: the reports in a request, by the kind of its source and the JMESPath of its configuration. Pure."""

from collections.abc import Mapping
from typing import Any

from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.tasks import SubmitTask
from counterpoint.router.api.body import validate
from counterpoint.router.intake.submissions import body_sha256
from counterpoint.router.webhooks.alerts import alerts_of, pagerduty_event
from counterpoint.router.webhooks.forges import github_event, gitlab_event
from counterpoint.router.webhooks.reports import REPORTS_LIMIT, Event, IgnoredEvent, Report, task_id_of, text_of
from counterpoint.router.webhooks.sources import WebhookSource

BATCH_TYPE = "application/cloudevents-batch+json"
_TARGET = ("job_namespace", "job_name", "run_id", "repo")
_LIMITS = {"title": 300, "source_ref": 2000, "repo": 2000, "run_id": 200, "job_namespace": 500, "job_name": 500}


def reports_of(source: WebhookSource, headers: Mapping[str, str], body: Any) -> list[Event]:
    """Return what a request says. Raises `Permanent` `invalid` for an expression that its body does not suit."""
    rows = _rows(source, headers, body)
    found: list[Event] = [_mapped(source, row, said) for row, said in rows[:REPORTS_LIMIT]]
    if len(rows) > REPORTS_LIMIT:
        found.append(
            IgnoredEvent(f"{len(rows) - REPORTS_LIMIT} events, because one request has at most {REPORTS_LIMIT}")
        )
    return found


def submission_of(source: WebhookSource, report: Report) -> SubmitTask:
    """Return the task of a report. Raises `Permanent` `invalid`."""
    fields = {name: value for name, value in report.fields.items() if value not in (None, ())}
    target = {name: fields.pop(name, None) for name in _TARGET}
    job = {"namespace": target["job_namespace"], "name": target["job_name"]}
    where = {"repo": target["repo"], "run_id": target["run_id"], "job": job if all(job.values()) else None}
    where = {name: value for name, value in where.items() if value}
    content = {
        **fields,
        **({"target": where} if where else {}),
        **({"systems": list(fields["systems"])} if isinstance(fields.get("systems"), tuple) else {}),
        "task_id": fields.get("task_id") or task_id_of(source.name, report.key),
    }
    return validate(SubmitTask, content)


def _rows(source: WebhookSource, headers: Mapping[str, str], body: Any) -> list[tuple[Any, Event]]:
    match source.kind:
        case "alertmanager" | "grafana":
            return alerts_of(body)
        case "pagerduty":
            return [(body, pagerduty_event(body))]
        case "github" | "gitea":
            return [(body, github_event(headers, body))]
        case "gitlab":
            return [(body, gitlab_event(headers, body))]
        case "cloudevents":
            return _cloud_events(source, headers, body)
        case "slack" | "teams":
            return [(body, IgnoredEvent(f"a source of the kind {source.kind} takes replies only"))]
        case "json":
            rows = _searched(source.items, "items", body) if source.items else [body]
            rows = rows if isinstance(rows, list) else [rows]
            return [(row, Report(body_sha256(row), {"kind": "troubleshoot"})) for row in rows]


def _cloud_events(source: WebhookSource, headers: Mapping[str, str], body: Any) -> list[tuple[Any, Event]]:
    """Return the event of a request, or those of a batch, which are in structured mode."""
    is_batch = headers.get("content-type", "").partition(";")[0].strip().lower() == BATCH_TYPE
    if isinstance(body, list):
        return [(event, _cloud_event(source, {}, event)) for event in body]
    if is_batch:
        problem = Problem(field="body", problem=f"is not a list, as {BATCH_TYPE} needs")
        raise Permanent(ErrorCode.INVALID, (problem,))
    return [(body, _cloud_event(source, headers, body))]


def _cloud_event(source: WebhookSource, headers: Mapping[str, str], body: Any) -> Report | IgnoredEvent:
    """Return what a CloudEvent in binary or structured mode says: a SubmitTask, or what the mapping makes of it."""
    event = body if isinstance(body, dict) else {}
    structured = "specversion" in event
    attributes = event if structured else {name.removeprefix("ce-"): value for name, value in headers.items()}
    event_source, event_id = text_of(attributes.get("source"), 1000), text_of(attributes.get("id"), 1000)
    if event_source is None or event_id is None:
        return IgnoredEvent("a CloudEvent has no source or id")
    key = f"{event_source}/{event_id}"
    if attributes.get("type") == SubmitTask.TYPE:
        data = event.get("data") if structured else body
        return Report(key, dict(data) if isinstance(data, dict) else {})
    if source.map:
        return Report(key, {"kind": "troubleshoot"})
    return IgnoredEvent(f"the type {text_of(attributes.get('type'), 100)} has no mapping")


def _mapped(source: WebhookSource, row: Any, event: Event) -> Event:
    """Return a report with the fields that the configuration maps."""
    if not isinstance(event, Report) or not source.map:
        return event
    values = {name: _searched(expression, f"map.{name}", row) for name, expression in source.map.items()}
    if values.pop("ignore", None):
        return IgnoredEvent(f"the mapping ignores {text_of(values.get('id'), 100) or 'it'}")
    resolved = bool(values.pop("resolved", event.resolved))
    key = text_of(values.pop("id", None), 1000) or event.key
    if "systems" in values:
        listed = values["systems"] if isinstance(values["systems"], list) else [values["systems"]]
        values["systems"] = tuple(filter(None, (text_of(each, 200) for each in listed[:20])))
    texts = {
        name: value if name == "systems" else text_of(value, _LIMITS.get(name, 16_000))
        for name, value in values.items()
    }
    return Report(key, {**event.fields, **{name: value for name, value in texts.items() if value}}, resolved)


def _searched(expression: str, field: str, body: Any) -> Any:
    from jmespath import search
    from jmespath.exceptions import JMESPathError

    try:
        return search(expression, body)
    except JMESPathError as error:
        problem = f"cannot be computed: {str(error).splitlines()[0]}"[:300]
        raise Permanent(ErrorCode.INVALID, (Problem(field=field, problem=problem),)) from error
