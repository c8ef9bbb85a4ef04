"""The health of the house over HTTP, on the running stack."""

import asyncio

import httpx
import pytest
from ui.http_front import RunningFront

from counterpoint.proto.memory import ConsumerHealth
from counterpoint.router.api.health import state_of


def consumer(unacknowledged: int, *, pulling: bool) -> ConsumerHealth:
    return ConsumerHealth(service="x", stream="TASKS", waiting=3, unacknowledged=unacknowledged, pulling=pulling)


@pytest.mark.parametrize(
    ("consumers", "state"),
    [
        ((consumer(0, pulling=True), consumer(5, pulling=True)), "ready"),
        ((consumer(0, pulling=True), consumer(5, pulling=False)), "busy"),
        ((consumer(0, pulling=True), consumer(0, pulling=False)), "away"),
        ((), "ready"),
    ],
)
def test_a_service_that_asks_for_nothing_and_has_nothing_is_away(
    consumers: tuple[ConsumerHealth, ...], state: str
) -> None:
    assert state_of(consumers) == state


async def test_every_service_of_the_stack_is_ready_and_searches_and_caches_are_counted(
    http: httpx.AsyncClient, project: str
) -> None:
    async with asyncio.timeout(120):
        while True:
            found = (await http.get("/v1/health", params={"project": project})).raise_for_status().json()
            if all(each["state"] == "ready" for each in found["services"]):
                break
    assert [each["service"] for each in found["services"]] == ["developer", "lineage", "manager", "memory", "router"]
    assert {each["stream"] for each in found["services"][1]["consumers"]} == {"CHANGES", "INTAKE"}
    assert found["embedding_model"].startswith("minilm")
    assert found["cache"]["valkey"] is True
    before = found["cache"]
    for _ in range(2):
        await http.post("/v1/search", json={"text": f"what of {project}", "project": project})
    after = (await http.get("/v1/health")).json()["cache"]
    assert after["misses"] > before["misses"]
    assert after["l1_hits"] > before["l1_hits"]


async def test_a_proposal_that_waits_for_its_outcome_is_no_message_that_is_not_on_the_bus(
    http: httpx.AsyncClient, project: str
) -> None:
    page = {"text": "# ZZ79\n\nWhen ZZ79 is logged, close the valve.", "source": "zz79.md", "project": project}
    (await http.post("/v1/documents", json=page)).raise_for_status()
    task = {"kind": "troubleshoot", "description": "x", "error_message": "ZZ79", "project": project}
    made = await http.post("/v1/tasks", json=task, headers={"Prefer": "wait=60"})
    assert made.json()["waiting_for"] == "outcome", made.text
    async with asyncio.timeout(60):
        while True:
            if not (await http.get("/v1/health", params={"project": project})).json()["pending_messages"]:
                break


async def test_only_who_operates_a_project_may_ask(front: RunningFront) -> None:
    async with front.as_principal("reader", "read", "audit") as reader:
        assert (await reader.get("/v1/health")).status_code == 403
    assert front.house.asked == []
