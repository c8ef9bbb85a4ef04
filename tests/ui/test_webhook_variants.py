"""Bodies of senders in other versions, languages and sizes: each is a report, or is ignored by name."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from ui.webhook_senders import ALERT, ISSUE, RUN, SECRET, alerts

from counterpoint.proto.errors import Denied
from counterpoint.proto.messages import utc_now
from counterpoint.proto.tasks import SubmitTask
from counterpoint.router.webhooks.mapping import reports_of, submission_of
from counterpoint.router.webhooks.reports import IgnoredEvent, Report
from counterpoint.router.webhooks.signatures import verify
from counterpoint.router.webhooks.sources import WebhookSource


def tasks_of(kind: str, body: Any, **headers: str) -> list[SubmitTask | str]:
    """The tasks of a body, in place of an ignored event its reason."""
    source = WebhookSource.model_validate({"name": kind, "kind": kind})
    found = reports_of(source, headers, json.loads(json.dumps(body)))
    return [each.reason if isinstance(each, IgnoredEvent) else submission_of(source, each) for each in found]


def task_of(kind: str, body: Any, **headers: str) -> SubmitTask:
    (task,) = tasks_of(kind, body, **headers)
    assert isinstance(task, SubmitTask), task
    return task


def alert(labels: dict[str, Any] | None = None, notes: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return alerts({**ALERT, "labels": labels or {}, "annotations": notes or {}, **more})


@pytest.mark.parametrize(
    ("severity", "priority"),
    [("CRITICAL", "urgent"), ("High", "high"), ("low", "low"), ("Sev 9", "normal"), (2, "normal"), (None, "normal")],
)
def test_the_severity_of_an_alert_may_have_any_case_and_form(severity: Any, priority: str) -> None:
    assert task_of("alertmanager", alert({"severity": severity})).priority == priority


def test_the_texts_of_an_alert_may_be_missing_elsewhere_or_in_any_language() -> None:
    assert task_of("grafana", alert()).title == "an alert"
    assert task_of("grafana", alert({"alertname": "Down"}, {"summary": {"en": "x"}})).title == "Down"
    assert task_of("alertmanager", alert(notes={"message": "no route"})).error_message == "no route"
    task = task_of(
        "alertmanager", alert({"alertname": "磁盘已满"}, {"summary": "٣ خوادم متوقفة", "description": "é" * 90_000})
    )
    assert (task.title, len(task.description)) == ("٣ خوادم متوقفة", 16_000)


def test_half_a_character_is_replaced_in_texts_and_identities() -> None:
    body = json.loads(
        '{"alerts": [{"fingerprint": "\\ud800", "startsAt": "t", "annotations": {"summary": "a\\udfffb"}}]}'
    )
    assert task_of("alertmanager", body).title == "a?b"
    event = {"event": {"event_type": "incident.triggered", "data": {"id": "\ud800", "title": "t"}}}
    assert task_of("pagerduty", event).title == "t"


def test_alerts_of_one_body_are_tasks_of_their_own_up_to_a_limit() -> None:
    rows = [{**ALERT, "fingerprint": str(number)} for number in range(130)]
    found = tasks_of("alertmanager", alerts(*rows))
    assert len({task.task_id for task in found if isinstance(task, SubmitTask)}) == 100
    assert found[100:] == ["30 events, because one request has at most 100"]
    numbered = reports_of(WebhookSource(name="a", kind="grafana"), {}, alerts({**ALERT, "fingerprint": 7}))
    assert isinstance(numbered[0], Report)


def test_the_error_of_a_run_is_its_own_and_not_the_title_of_a_commit() -> None:
    run = {**RUN, "workflow_run": {**RUN["workflow_run"], "display_title": "Fix a typo"}}  # type: ignore[dict-item]
    assert task_of("github", run, **{"x-github-event": "workflow_run"}).error_message == "tests failed"
    pipeline = {"id": 3, "ref": "main", "status": "failed", "detailed_status": "failed"}
    task = task_of("gitlab", {"object_kind": "pipeline", "object_attributes": pipeline})
    assert task.error_message == "pipeline of main failed"


def test_a_job_of_gitlab_that_may_fail_is_no_failure() -> None:
    job = {"object_kind": "build", "build_id": 5, "build_name": "unit", "build_status": "failed"}
    assert task_of("gitlab", job).error_message == "unit failed"
    task = task_of("gitlab", {**job, "build_failure_reason": "script_failure", "build_allow_failure": False})
    assert task.error_message == "unit failed: script_failure"
    assert tasks_of("gitlab", {**job, "build_allow_failure": True}) == ["the event build is not used"]


@pytest.mark.parametrize(
    ("kind", "said"),
    [("pagerduty", "no event with an event_type"), ("github", "X-GitHub-Event"), ("gitlab", "no object_kind")],
)
def test_a_body_without_an_event_is_ignored_with_the_missing_field(kind: str, said: str) -> None:
    (reason,) = tasks_of(kind, {})
    assert said in str(reason)


def test_an_issue_needs_no_text_and_no_repository() -> None:
    issue = {**ISSUE["issue"], "body": None}  # type: ignore[dict-item]
    task = task_of("gitea", {"action": "opened", "issue": issue}, **{"x-gitea-event": "issues"})
    assert (task.description, task.target) == ("The import fails", None)


@pytest.mark.parametrize("secret", ["topsecret123", "whsec_" + base64.b64encode(b"k" * 24).decode()])
def test_a_key_in_the_alphabet_of_base64_may_be_plain(secret: str) -> None:
    stamp, content = str(int(utc_now().timestamp())), b"{}"
    for key in (secret.encode(), base64.b64decode(secret.removeprefix("whsec_"))):
        digest = base64.b64encode(hmac.digest(key, f"m.{stamp}.".encode() + content, hashlib.sha256)).decode()
        headers = {"webhook-id": "m", "webhook-timestamp": stamp, "webhook-signature": f"v1a,x v1,{digest}"}
        verify("json", secret, headers, content, utc_now())
        with pytest.raises(Denied):
            verify("json", SECRET, headers, content, utc_now())
