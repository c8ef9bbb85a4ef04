"""Past incidents and rows of the provider index over HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents.router_house import PROJECT
from ui.http_front import RunningFront, running

from counterpoint.proto.ingest import IngestReply
from counterpoint.router.api.application import HttpApi

INCIDENT: dict[str, Any] = {
    "source": "incidents.csv",
    "id": "1",
    "error_message": "Disk full",
    "tried": "Emptied /tmp",
    "outcome": "succeeded",
    "when": "2026-03-04T00:00:00Z",
    "by": "ada",
}
LESSON: dict[str, Any] = {
    "id": "t1",
    "failure": {"description": "Disk full"},
    "attempts": [
        {"id": "a1", "attempt": 1, "tried": "x", "outcome": "failed", "at": "2026-03-04T00:00:00Z", "by": "ada"},
        {"id": "a2", "attempt": 2, "tried": "y", "outcome": "succeeded", "at": "2026-03-04T00:00:00Z"},
    ],
}
PROVIDER: dict[str, Any] = {"name": "Ledger", "package": "airflow-provider-ledger", "hooks": ["LedgerHook"]}


@pytest.fixture
async def front(listener: tuple[HttpApi, str]) -> AsyncIterator[RunningFront]:
    async with running(*listener, ingest_request_bytes=1000) as found:
        yield found


async def test_incidents_are_handed_over_in_parts_on_the_askers_behalf(front: RunningFront) -> None:
    incidents = [INCIDENT | {"id": str(number), "note": "x" * 300} for number in range(5)]
    response = await front.me.post("/v1/attempts", json={"incidents": incidents, "colour": "red"})
    assert response.status_code == 200, response.text
    assert [one["id"] for one in response.json()["incidents"]] == [f"past-{number}" for number in range(5)]
    assert response.json()["ignored"] == ["colour"]
    assert [len(request.incidents) for request in front.house.ingested] == [2, 2, 1]
    assert {(request.origin.principal, request.origin.project) for request in front.house.ingested} == {("me", PROJECT)}


async def test_lessons_are_handed_over_in_parts_and_each_attempt_is_answered(front: RunningFront) -> None:
    lessons = [LESSON | {"id": f"t{number}"} for number in range(6)]
    response = await front.me.post("/v1/lessons", json={"lessons": lessons, "colour": "red"})
    assert response.status_code == 200, response.text
    assert [one["id"] for one in response.json()["attempts"]] == ["a1", "a2"] * 6
    assert response.json()["ignored"] == ["colour"]
    assert len(front.house.ingested) > 1
    assert {(request.origin.principal, request.origin.project) for request in front.house.ingested} == {("me", PROJECT)}


async def test_a_memory_of_an_earlier_release_loses_no_lesson_silently(
    front: RunningFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front.house, "_ingest", lambda request: IngestReply())
    response = await front.me.post("/v1/lessons", json={"lessons": [LESSON]})
    assert response.status_code == 503, response.text


async def test_rows_of_the_index_are_handed_over(front: RunningFront) -> None:
    response = await front.me.post("/v1/providers", json={"providers": [PROVIDER]})
    assert response.json()["providers"] == [{"id": "airflow-provider-ledger", "status": "added"}]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("attempts", {"incidents": []}, "incidents"),
        ("attempts", {"incidents": [INCIDENT | {"outcome": "perhaps"}]}, "incidents[0].outcome"),
        ("attempts", {"incidents": [INCIDENT | {"when": "yesterday"}]}, "incidents[0].when"),
        ("attempts", {"incidents": [INCIDENT | {"error_message": None}]}, "incidents[0]"),
        ("attempts", {"incidents": [INCIDENT | {"tried": "a\x00b"}]}, "incidents[0].tried"),
        ("attempts", {"incidents": [INCIDENT | {"error_message": " \n"}]}, "incidents[0]"),
        ("lessons", {"lessons": []}, "lessons"),
        ("lessons", {"lessons": [LESSON | {"id": "a b"}]}, "lessons[0].id"),
        ("lessons", {"lessons": [LESSON | {"attempts": []}]}, "lessons[0].attempts"),
        ("lessons", {"lessons": [LESSON | {"attempts": [LESSON["attempts"][0]] * 2}]}, "lessons[0]"),
        ("providers", {"providers": [PROVIDER | {"hooks": ["no class"]}]}, "providers[0].hooks[0]"),
        ("providers", {"providers": [PROVIDER | {"package": "No Package"}]}, "providers[0].package"),
    ],
)
async def test_a_fault_is_422_and_names_its_field(
    front: RunningFront, path: str, body: dict[str, Any], field: str
) -> None:
    response = await front.me.post(f"/v1/{path}", json=body)
    assert response.status_code == 422, response.text
    assert field in [each["field"] for each in response.json()["errors"]]
    assert front.house.ingested == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("attempts", {"incidents": [INCIDENT]}),
        ("lessons", {"lessons": [LESSON]}),
        ("providers", {"providers": [PROVIDER]}),
    ],
)
async def test_a_principal_without_ingest_is_refused(front: RunningFront, path: str, body: dict[str, Any]) -> None:
    async with front.as_principal("reader", "read") as reader:
        assert (await reader.post(f"/v1/{path}", json=body)).status_code == 403
    assert front.house.ingested == []
