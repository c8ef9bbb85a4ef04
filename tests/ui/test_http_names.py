"""Secrets in names over HTTP: a job has the name that lineage gives it, and nobody is called by one."""

from collections.abc import AsyncIterator

import pytest
from agents.router_house import PROJECT
from ui.http_front import RunningFront, listening, running

from counterpoint.graph.names import job
from counterpoint.proto.incident_settings import settings_id
from counterpoint.proto.tasks import JobRef

KEY = "AKIA" + "Z7QF3MPLKD2WXYTB"


@pytest.fixture
async def front() -> AsyncIterator[RunningFront]:
    async with listening() as (app, url), running(app, url) as front:
        yield front


async def test_settings_of_a_job_are_those_of_the_name_that_lineage_has(front: RunningFront) -> None:
    answer = await front.me.put("/v1/incident-settings", json={"job": {"namespace": "etl", "name": KEY}})
    assert answer.status_code == 200, answer.text
    name = answer.json()["job"]["name"]
    assert name.startswith("[redacted:aws_access_key:")
    kept = settings_id(JobRef(namespace="etl", name=name))
    assert await front.house.of_principal(PROJECT, None).get("incident_settings", kept)
    assert (await front.me.delete("/v1/incident-settings", params={"job": f"etl/{KEY}"})).status_code == 200


async def test_a_job_is_found_by_the_name_that_its_sender_knows(front: RunningFront) -> None:
    memory = front.house.of_principal(PROJECT, None)
    node = job("etl", await memory.redact_names(KEY))
    front.house.put("jobs", node.id, {"namespace": "etl", "name": node.name})
    answer = await front.me.get(f"/v1/jobs/etl/{KEY}/lineage")
    assert answer.status_code == 200, answer.text
    assert KEY not in answer.text


async def test_attempts_are_found_by_the_name_of_their_job(front: RunningFront) -> None:
    job = {"namespace": "etl", "name": await front.house.of_principal(PROJECT, None).redact_names(KEY)}
    made = {"attempt_id": "a", "task_id": "t", "project": PROJECT, "attempt": 1, "description": "x", "tried": "y"}
    front.house.put("attempts", "a", {**made, "by": "ann", "at": "2026-11-20T12:00:00Z", "job": job})
    answer = await front.me.get("/v1/attempts", params={"job": f"etl/{KEY}"})
    assert [each["attempt_id"] for each in answer.json()["items"]] == ["a"]


async def test_a_principal_is_not_called_by_a_secret(front: RunningFront) -> None:
    body = {"name": KEY, "kind": "system", "projects": ["*"], "roles": ["read"]}
    answer = await front.me.post("/v1/principals", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "sensitive")
    assert KEY not in answer.text


async def test_unknown_fields_with_secret_names_are_only_counted(front: RunningFront) -> None:
    body = {"name": "ci", "kind": "system", "projects": ["*"], "roles": ["read"], "rolse": [], KEY: 1}
    answer = await front.me.post("/v1/principals", json=body)
    assert answer.status_code == 201, answer.text
    assert answer.json()["ignored"] == ["rolse", "(1 more, not named: what looks like a secret is in the name)"]
