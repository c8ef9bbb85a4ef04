"""A dead letter of an intake that is sent again is its sender's still, whatever form it came in, and counts once."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from flows.conftest import Outsider

SECRET = "AKIA" + "Z7QF3MPLKD2WXYTB"
"""Refused; what is kept, and sent again, is without it."""
SUBMIT, REPORT = "counterpoint.task.submit.v1", "counterpoint.outcome.report.v1"


async def send(
    outsider: Outsider, subject: str, mode: str, event_type: str, event: tuple[str, str], data: dict[str, Any]
) -> None:
    """Publish in one of the three forms; bare JSON says nothing of its source and id."""
    source, event_id = event
    said = {"specversion": "1.0", "id": event_id, "source": source, "type": event_type}
    if mode == "structured":
        headers = {"Content-Type": "application/cloudevents+json"}
        await outsider.publish(subject, json.dumps({**said, "data": data}).encode(), headers)
    else:
        named = {f"ce-{name}": value for name, value in said.items()} if mode == "binary" else None
        await outsider.publish(subject, json.dumps(data).encode(), named)


async def sent_again(http: httpx.AsyncClient, outsider: Outsider, project: str) -> None:
    """Wait for the project's one dead letter, and have it sent again."""
    await outsider.until(lambda subject, body: subject == f"live.tasks.{project}.rejected")
    (letter,) = (await http.get("/v1/dead-letters", params={"project": project})).json()["items"]
    assert letter["code"] == "sensitive"
    answer = await http.post(f"/v1/dead-letters/{letter['dead_letter_id']}/retry", params={"project": project})
    assert answer.status_code == 202, answer.text


@pytest.mark.parametrize("mode", ["structured", "binary", "bare"])
async def test_a_task_is_its_senders_and_is_one_when_it_is_submitted_once_more(
    http: httpx.AsyncClient, outsider: Outsider, project: str, mode: str
) -> None:
    intake, event = f"intake.{project}.task", ("/ci", "build-7")
    task = {"kind": "question", "description": f"Why does the login with {SECRET} fail?"}
    await send(outsider, intake, mode, SUBMIT, event, task)
    await sent_again(http, outsider, project)
    submitted = await outsider.until(lambda subject, _: subject == f"live.tasks.{project}.submitted")
    assert submitted["submitted_by"] == ("publisher" if mode == "bare" else "/ci")
    if mode == "bare":
        return
    await send(outsider, intake, mode, SUBMIT, event, task | {"description": "Why does the login fail?"})
    await outsider.submit(project, {"kind": "question", "description": "What else?", "task_id": "last"})
    await outsider.until(lambda subject, body: subject.endswith(".submitted") and body["task_id"] == "last")
    told = [body["task_id"] for subject, _, body in outsider.seen if subject == f"live.tasks.{project}.submitted"]
    assert told == [submitted["task_id"], "last"]


@pytest.mark.parametrize(
    ("mode", "evidence"), [("structured", "observed"), ("binary", "observed"), ("bare", "reported")]
)
async def test_a_retried_outcome_keeps_its_evidence_and_reporter(
    http: httpx.AsyncClient, outsider: Outsider, project: str, mode: str, evidence: str
) -> None:
    await outsider.submit(project, {"kind": "question", "description": "How long?", "task_id": "t1"})
    await outsider.until(lambda subject, body: subject == f"live.tasks.{project}.submitted")
    report = {"task_id": "t1", "outcome": "failed", "note": f"the key is {SECRET}"}
    await send(outsider, f"intake.{project}.outcome", mode, REPORT, ("counterpoint/lineage", "run-7"), report)
    await sent_again(http, outsider, project)
    reported = await outsider.until(lambda subject, _: subject == f"live.tasks.{project}.outcome_reported")
    by = "publisher" if mode == "bare" else "counterpoint/lineage"
    assert (reported["evidence"], reported["by"]) == (evidence, by)
    assert "[redacted:" in reported["note"]


async def test_events_with_redacted_ids_stay_two_tasks(
    http: httpx.AsyncClient, outsider: Outsider, project: str
) -> None:
    task = {"kind": "question", "description": f"Why does the login with {SECRET} fail?"}
    for event_id in ("4111111111111111", "5500000000000004"):
        await send(outsider, f"intake.{project}.task", "structured", SUBMIT, ("/ci", event_id), task)
    letters: list[dict[str, Any]] = []
    while len(letters) < 2:
        await asyncio.sleep(0.1)
        letters = (await http.get("/v1/dead-letters", params={"project": project})).json()["items"]
    assert {json.loads(letter["body"])["id"] for letter in letters} == {"[redacted:card]"}
    for letter in letters:
        answer = await http.post(f"/v1/dead-letters/{letter['dead_letter_id']}/retry", params={"project": project})
        assert answer.status_code == 202, answer.text
    told: set[str] = set()
    while len(told) < 2:
        submitted = await outsider.until(
            lambda subject, body: subject == f"live.tasks.{project}.submitted" and body["task_id"] not in told
        )
        assert submitted["submitted_by"] == "/ci"
        told.add(submitted["task_id"])
