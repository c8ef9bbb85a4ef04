"""Secrets in the names of OpenLineage events: gone before anything is decided, and what belongs together stays so."""

import json
from typing import Any

import pytest
from agents.incident_simulation import TUESDAY, WEDNESDAY
from agents.lineage_data import orders
from agents.lineage_house import TOKEN, House

from counterpoint.lineage.openlineage.parser import parse_event

KEY = "AKIA" + "Z7QF3MPLKD2WXYTB"
PASSWORD = "hV7q2Lx9" + "Zt4wRk8p"


def named(raws: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events of the orders DAG under names with secrets in them: in the name of every job, and in a namespace."""
    text = json.dumps(raws).replace("orders_ingest", f"orders.{KEY}")
    return list(json.loads(text.replace("postgres://", f"postgres://etl:{PASSWORD}@")))


async def test_incidents_open_join_and_close_as_under_other_names() -> None:
    plain, secret = House(), House()
    for day in ("1_monday_ok", TUESDAY, WEDNESDAY):
        await plain.take(orders(day))
        await secret.take(named(orders(day)))
    assert len(secret.tasks) == len(plain.tasks) == 1
    assert [(i.state, i.count, i.tries, len(i.failures)) for i in secret.incidents] == [
        (i.state, i.count, i.tries, len(i.failures)) for i in plain.incidents
    ]
    for store in ("jobs", "datasets", "edges", "runs"):
        assert len(secret.items(store)) == len(plain.items(store))
    assert len(plain.items("edges")) > 5
    for kept in (*secret.records, *(item.body for item in secret.records.values()), *secret.sent):
        assert KEY not in str(kept)
        assert PASSWORD not in str(kept)
    assert any("[redacted:aws_access_key:" in record_id for _, store, record_id in secret.records if store == "jobs")


async def test_a_job_with_a_redacted_name_is_found_by_its_original_name() -> None:
    house = House()
    house.of_token(TOKEN)
    job = f"orders.{KEY}"
    async with house.client() as client:
        for raw in named(orders("1_monday_ok")):
            answer = await client.post("/api/v1/lineage", json=raw)
            assert answer.status_code == 201, answer.text
            if raw["job"]["name"] == job:
                namespace = raw["job"]["namespace"]
        found = await client.get(f"/api/v1/namespaces/{namespace}/jobs/{job}")
        assert found.status_code == 200, found.text
        assert KEY not in found.text
        graph = await client.get("/api/v1/lineage", params={"nodeId": f"job:{namespace}:{job}"})
        assert graph.status_code == 200, graph.text
        assert len(graph.json()["graph"]) > 1


async def test_memory_is_asked_for_events_with_secrets_alone() -> None:
    plain, secret = House(), House()
    (event, *_) = orders("1_monday_ok")
    await plain.take([event])
    asked = plain.requests
    await secret.take(named([event]))
    assert secret.requests == asked + 1


@pytest.mark.parametrize("part", ["name", "type"])
def test_columns_are_facts_without_secrets(part: str) -> None:
    event = dict(orders("1_monday_ok")[0])
    key = "sk_live_" + "2uatb19Fhqb3wpqftfjAKJHy"
    fields = [{"name": "id", "type": "int", part: key}]
    dataset = {"namespace": "db", "name": "t", "facets": {"schema": {"fields": fields}}}
    assert key not in repr(parse_event({**event, "inputs": [dataset]}))


def test_names_of_settings_are_facts_without_secrets() -> None:
    event = dict(orders("1_monday_ok")[0])
    variables = [{"name": f"card {'4111 1111'} 1111 1111", "value": "x"}, {"name": KEY, "value": "y"}]
    run = {**event["run"], "facets": {"environmentVariables": {"environmentVariables": variables}}}
    said = repr(parse_event({**event, "run": run}))
    assert KEY not in said
    assert "4111" not in said
