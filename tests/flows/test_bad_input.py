"""Bad input on the running system: refused with field and problem, kept as a dead letter, and nobody else delayed."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from flows.conftest import Outsider

QUESTION = {"kind": "question", "description": "How long are raw order files kept?"}


async def accepted(outsider: Outsider, project: str, task_id: str) -> None:
    """Wait until a task submitted over the bus is accepted."""
    await outsider.until(
        lambda subject, body: subject == f"live.tasks.{project}.submitted" and body["task_id"] == task_id
    )


async def ended_or_waiting(http: httpx.AsyncClient, project: str, task_id: str) -> dict[str, Any]:
    """The task, as soon as it has ended or waits for input."""
    answer = await http.get(f"/v1/tasks/{task_id}", params={"project": project, "wait": 30})
    assert answer.status_code == 200, answer.text
    task: dict[str, Any] = answer.json()
    return task


async def dead_letters(http: httpx.AsyncClient, project: str) -> list[dict[str, Any]]:
    """The project's dead letters."""
    answer = await http.get("/v1/dead-letters", params={"project": project})
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


BAD: dict[str, tuple[bytes, str, str | None]] = {
    "no JSON": (b"{not json", "malformed", "body"),
    "no object": (b"[1, 2]", "invalid", "body"),
    "a wrong type": (json.dumps({"kind": "question", "description": 7}).encode(), "invalid", "description"),
    "an unknown kind": (json.dumps({"kind": "sing", "description": "x"}).encode(), "invalid", "kind"),
    "another project": (json.dumps({**QUESTION, "project": "elsewhere"}).encode(), "invalid", "project"),
    "an expired deadline": (
        json.dumps({**QUESTION, "deadline": "2020-01-01T00:00:00Z"}).encode(),
        "invalid",
        "deadline",
    ),
    "half a character": (
        b'{"kind": "question", "description": "AK\\u0049AZ7QF3MPLKD2WXYTB \\ud800"}',
        "invalid",
        "description",
    ),
    "no number": (b'{"kind": "question", "description": "x", "context": {"rate": NaN}}', "invalid", "context.rate"),
    "a number without end": (
        b'{"kind": "question", "description": "x", "context": {"a": 1e999}}',
        "invalid",
        "context.a",
    ),
    "nested too deeply": (
        b'{"kind": "question", "context": ' + b'{"a": ' * 3000 + b"1" + b"}" * 3001,
        "malformed",
        "body",
    ),
    "nested deeply": (
        b'{"kind": "question", "context": ' + b'{"a": ' * 400 + b"1" + b"}" * 401,
        "invalid",
        f"context{'.a' * 31}",
    ),
    "too large": (
        json.dumps({**QUESTION, "context": {"log": "x" * 300_000}}).encode(),
        "too_large",
        "body",
    ),
}


KEPT = {
    "half a character": '{"description":"[redacted:aws_access_key] ?","kind":"question"}',
    "no number": '{"context":{"rate":"NaN"},"description":"x","kind":"question"}',
    "a number without end": '{"context":{"a":"1e999"},"description":"x","kind":"question"}',
    "nested too deeply": "[21034 characters, nested too deeply to be scanned]",
}
"""Values outside JSON are kept as text; values that cannot be scanned for secrets are not kept."""


@pytest.mark.parametrize("name", BAD)
async def test_bad_input_is_rejected_by_field_and_kept(
    http: httpx.AsyncClient, outsider: Outsider, project: str, name: str
) -> None:
    body, code, field = BAD[name]
    await outsider.publish(f"intake.{project}.task", body)
    await outsider.submit(project, {**QUESTION, "task_id": "good-one"})
    rejected = await outsider.until(lambda subject, _: subject == f"live.tasks.{project}.rejected")
    assert rejected["code"] == code
    assert field in [error["field"] for error in rejected["errors"]]
    await accepted(outsider, project, "good-one")
    good = await ended_or_waiting(http, project, "good-one")
    assert good["state"] == "input_required"
    letters = await dead_letters(http, project)
    assert [letter["code"] for letter in letters] == [code]
    kept = letters[0]["body"]
    if name == "no JSON":
        assert body.decode().startswith(kept)
    elif name in KEPT:
        assert kept == KEPT[name]
    else:
        assert json.loads(kept) == json.loads(body)


async def test_an_illegal_project_name_is_refused_or_kept_under_default(
    http: httpx.AsyncClient, outsider: Outsider
) -> None:
    await outsider.publish("intake.Not_Legal.task", json.dumps(QUESTION).encode())
    rejected = await outsider.until(lambda subject, _: subject == "live.tasks.default.rejected")
    assert "project" in [error["field"] for error in rejected["errors"]]
    assert "intake.Not_Legal.task" in [letter["subject"] for letter in await dead_letters(http, "default")]


async def test_the_same_task_twice_has_one_effect_and_another_content_is_a_conflict(
    http: httpx.AsyncClient, outsider: Outsider, project: str
) -> None:
    task = {**QUESTION, "task_id": "twice"}
    await outsider.submit(project, task)
    await accepted(outsider, project, "twice")
    await outsider.submit(project, task)
    await outsider.submit(project, {**task, "description": "Something else?"})
    rejected = await outsider.until(lambda subject, _: subject == f"live.tasks.{project}.rejected")
    assert (rejected["code"], rejected["task_id"]) == ("conflict", "twice")
    submitted = [body for subject, _, body in outsider.seen if subject == f"live.tasks.{project}.submitted"]
    assert len(submitted) == 1


async def test_an_event_sent_twice_under_one_ce_id_is_one_task(
    http: httpx.AsyncClient, outsider: Outsider, project: str
) -> None:
    event = {"ce-specversion": "1.0", "ce-id": "e1", "ce-source": "/ci", "ce-type": "counterpoint.task.submit.v1"}
    await outsider.submit(project, QUESTION, event)
    await outsider.until(lambda subject, _: subject == f"live.tasks.{project}.submitted")
    await outsider.submit(project, QUESTION, event)
    await outsider.submit(project, {**QUESTION, "task_id": "last"})
    await accepted(outsider, project, "last")
    submitted = [body for subject, _, body in outsider.seen if subject == f"live.tasks.{project}.submitted"]
    assert len(submitted) == 2


async def test_over_http_every_field_at_fault_is_named(http: httpx.AsyncClient, project: str) -> None:
    answer = await http.post("/v1/tasks", json={"kind": "sing", "description": "", "project": project})
    assert answer.status_code == 422
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert {error["field"] for error in answer.json()["errors"]} == {"kind", "description"}


@pytest.mark.parametrize("kind", ["question", "troubleshoot", "plan"])
async def test_a_task_without_search_words_is_escalated(http: httpx.AsyncClient, project: str, kind: str) -> None:
    task = {"kind": kind, "description": "?!", "error_message": "A" * 9_000, "project": project}
    reply = await http.post("/v1/tasks", json=task, headers={"Prefer": "wait=60"})
    assert (reply.status_code, reply.json()["state"]) == (200, "input_required")
    search = await http.post("/v1/search", json={"text": "?!", "store": "chunks", "project": project})
    assert (search.status_code, search.json()["code"]) == (422, "empty_query")


async def test_an_idempotency_key_with_another_body_is_409(http: httpx.AsyncClient, project: str) -> None:
    key = {"Idempotency-Key": f"key-{project}"}
    first = await http.post("/v1/tasks", json={**QUESTION, "project": project}, headers=key)
    again = await http.post("/v1/tasks", json={**QUESTION, "project": project}, headers=key)
    other = await http.post("/v1/tasks", json={**QUESTION, "priority": "high", "project": project}, headers=key)
    assert (first.status_code, again.status_code, other.status_code) == (202, 202, 409)
    assert first.json()["task_id"] == again.json()["task_id"]


async def test_a_misspelt_field_is_named_in_ignored(http: httpx.AsyncClient, project: str) -> None:
    answer = await http.post("/v1/tasks", json={**QUESTION, "prioritty": "high", "project": project})
    assert answer.json()["ignored"] == ["prioritty"]


async def test_a_secret_in_a_task_is_rejected_and_redacted(
    http: httpx.AsyncClient, outsider: Outsider, project: str
) -> None:
    secret = "AKIA" + "Z7QF3MPLKD2WXYTB"
    await outsider.submit(project, {"kind": "troubleshoot", "description": f"login fails with {secret}"})
    rejected = await outsider.until(lambda subject, _: subject == f"live.tasks.{project}.rejected")
    assert rejected["code"] == "sensitive"
    assert any("description" in error["field"] for error in rejected["errors"])
    (letter,) = await dead_letters(http, project)
    assert secret not in json.dumps(letter)
    assert "[redacted:" in letter["body"]


async def test_an_event_for_an_ended_task_has_no_effect(
    http: httpx.AsyncClient, outsider: Outsider, project: str
) -> None:
    await outsider.submit(project, {**QUESTION, "task_id": "over"})
    await accepted(outsider, project, "over")
    cancelled = await http.post("/v1/tasks/over/cancel", params={"project": project}, json={})
    assert cancelled.status_code < 300
    await outsider.until(lambda subject, body: subject == f"live.tasks.{project}.cancelled")
    before = await ended_or_waiting(http, project, "over")
    outcome = {"task_id": "over", "outcome": "succeeded", "attempt": 1}
    await outsider.publish(f"intake.{project}.outcome", json.dumps(outcome).encode())
    await outsider.until(lambda subject, body: subject == f"live.tasks.{project}.outcome_reported")
    await outsider.submit(project, {**QUESTION, "task_id": "later"})
    await accepted(outsider, project, "later")
    await ended_or_waiting(http, project, "later")
    after = await ended_or_waiting(http, project, "over")
    assert (before["state"], after["state"]) == ("cancelled", "cancelled")
    assert [s for s, _, b in outsider.seen if b.get("task_id") == "over" and s.endswith(".completed")] == []


async def test_outcomes_beside_and_ahead_of_their_submissions_are_handed_on(
    http: httpx.AsyncClient, outsider: Outsider, project: str
) -> None:
    async def report(task_id: str) -> None:
        outcome = {"task_id": task_id, "outcome": "failed", "note": "no change"}
        await outsider.publish(f"intake.{project}.outcome", json.dumps(outcome).encode())

    await report("ahead")
    for task_id in ("ahead", *(f"beside-{n}" for n in range(5))):
        await outsider.submit(project, {**QUESTION, "task_id": task_id})
        if task_id != "ahead":
            await report(task_id)
    reported = f"live.tasks.{project}.outcome_reported"
    for task_id in ("ahead", *(f"beside-{n}" for n in range(5))):
        await outsider.until(lambda subject, body, told=task_id: subject == reported and body["task_id"] == told)  # type: ignore[misc]
    assert await dead_letters(http, project) == []


async def test_a_deadline_ends_a_waiting_task(http: httpx.AsyncClient, outsider: Outsider, project: str) -> None:
    deadline = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
    await outsider.submit(project, {**QUESTION, "task_id": "hurry", "deadline": deadline})
    failed = await outsider.until(lambda subject, _: subject == f"live.tasks.{project}.failed")
    assert failed["code"] == "deadline"
