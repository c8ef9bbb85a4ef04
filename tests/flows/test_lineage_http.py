"""OpenLineage by HTTP: who may post and read, what is refused and how, and what Marquez's clients are answered."""

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from agents.lineage_data import event_sets, orders
from agents.lineage_house import TOKEN, House

from counterpoint.graph.names import dataset, job
from counterpoint.lineage.marquez.views import parse_node_id
from counterpoint.proto.messages import MESSAGE_LIMIT_BYTES

POST = "/api/v1/lineage"
ORDERS = ("1_monday_ok", "2_tuesday_fails", "3_tuesday_fixed", "4_wednesday_fails_again")


def house_of(**principal: Any) -> House:
    house = House()
    house.of_token(**principal)
    return house


async def posted(house: House, raws: list[dict[str, Any]], token: str = TOKEN) -> None:
    async with house.client(token) as client:
        for raw in raws:
            response = await client.post(POST, json=raw)
            assert (response.status_code, response.json()) == (201, {"ignored": []})


async def problem(response: httpx.Response) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["status"] == response.status_code
    return body


# what is posted


async def test_three_days_posted_one_by_one_are_one_incident_a_day_the_first_closed_by_its_fixed_run() -> None:
    house = house_of(roles=("report",))
    await posted(house, orders("1_monday_ok"))
    await posted(house, orders("2_tuesday_fails"))
    assert len(house.tasks) == 1
    await posted(house, orders("3_tuesday_fixed"))
    assert [outcome.task_id for outcome in house.outcomes] == [house.tasks[0].task_id]
    await posted(house, orders("4_wednesday_fails_again"))
    assert len(house.tasks) == len(house.incidents) == 2
    await house.wait(100_000)
    assert len(house.tasks) == 2


async def test_every_event_set_is_accepted() -> None:
    house = house_of()
    for raws in event_sets().values():
        await posted(house, raws)


async def test_unreadable_parts_of_an_event_are_named() -> None:
    raw = orders("1_monday_ok")[0] | {"inputs": [{"namespace": "db"}]}
    async with house_of().client() as client:
        response = await client.post(POST, json=raw)
    assert (response.status_code, response.json()) == (201, {"ignored": ["inputs[0].name"]})


# who may


@pytest.mark.parametrize(
    "authorization",
    [None, "Basic x", "Bearer ", "Bearer unknown", f"Bearer revoked {TOKEN}", f"Bearer expired {TOKEN}"],
)
async def test_without_the_token_of_a_living_principal_nothing_is_done(authorization: str | None) -> None:
    house = house_of()
    house.of_token(f"revoked {TOKEN}", revoked_at=house.now)
    house.of_token(f"expired {TOKEN}", expires_at=datetime(2001, 1, 1, tzinfo=UTC))
    headers = {"Authorization": authorization} if authorization else {}
    async with house.client(None) as client:
        for response in (
            await client.post(POST, json=orders("1_monday_ok")[0], headers=headers),
            await client.get("/api/v1/namespaces", headers=headers),
        ):
            assert (response.status_code, (await problem(response))["code"]) == (401, "unauthenticated")
            assert response.headers["www-authenticate"] == "Bearer"
    assert house.written == []


async def test_report_and_read_are_separate_rights() -> None:
    house = house_of(roles=("report",))
    house.of_token("reader", roles=("read",))
    async with house.client() as client:
        assert (await client.get("/api/v1/namespaces")).status_code == 403
    async with house.client("reader") as client:
        response = await client.post(POST, json=orders("1_monday_ok")[0])
        assert (response.status_code, (await problem(response))["code"]) == (403, "role")
        assert (await client.get("/api/v1/namespaces")).status_code == 200
    assert house.written == []


@pytest.mark.parametrize(
    ("projects", "query", "status"),
    [
        (("*",), "", 201),
        (("*",), "?project=orders", 201),
        (("orders",), "", 201),
        (("orders",), "?project=default", 403),
        (("a", "b"), "?project=b", 201),
        (("a", "b"), "", 422),
        (("*",), "?project=No%20Name", 422),
    ],
)
async def test_the_project_is_that_of_the_token(projects: tuple[str, ...], query: str, status: int) -> None:
    house = house_of(projects=projects)
    async with house.client() as client:
        response = await client.post(f"{POST}{query}", json=orders("1_monday_ok")[0])
    assert response.status_code == status
    if status == 422:
        assert [error["field"] for error in (await problem(response))["errors"]] == ["project"]


@pytest.mark.parametrize(("projects", "project"), [(("*",), "default"), (("orders",), "orders")])
async def test_memory_is_asked_on_behalf_of_the_principal_in_its_project(
    projects: tuple[str, ...], project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = house_of(projects=projects)
    asked: list[tuple[str, str | None]] = []
    memory = house.of_principal
    monkeypatch.setattr(house, "of_principal", lambda *of: asked.append(of) or memory(*of))
    await posted(house, orders("1_monday_ok")[:1])
    assert asked == [("default", None), (project, f"name of {TOKEN}")]


# what is refused


@pytest.mark.parametrize(
    ("body", "status", "code", "fields"),
    [
        (b"{", 400, "malformed", ["body"]),
        (b"[" * 100_000, 400, "malformed", ["body"]),
        (b"[]", 422, "invalid", ["body"]),
        (b"{}", 422, "invalid_lineage_event", ["eventTime", "job"]),
        (b'{"eventTime": 3, "job": {"name": ""}}', 422, "invalid_lineage_event", None),
        (json.dumps({"eventTime": "\0"}).encode(), 422, "invalid", ["eventTime"]),
        (b'"' + b"x" * MESSAGE_LIMIT_BYTES + b'"', 413, "too_large", ["body"]),
    ],
)
async def test_a_bad_event_is_a_problem_that_names_its_fields(
    body: bytes, status: int, code: str, fields: list[str] | None
) -> None:
    house = house_of()
    async with house.client() as client:
        response = await client.post(POST, content=body)
    found = await problem(response)
    assert (response.status_code, found["code"]) == (status, code)
    named = [error["field"] for error in found["errors"]]
    assert named == fields if fields else {"eventTime", "job.namespace", "job.name"} == set(named)
    assert house.written == []


async def test_while_memory_is_away_the_producer_is_told_to_come_again() -> None:
    house = house_of()
    house.away = True
    async with house.client() as client:
        response = await client.post(POST, json=orders("1_monday_ok")[0])
    assert (response.status_code, (await problem(response))["code"]) == (503, "unavailable")
    assert int(response.headers["retry-after"]) >= 1


async def test_an_unknown_path_is_a_problem_too() -> None:
    async with house_of().client() as client:
        for path in ("/api/v1/nothing", "/api/v1/namespaces/prod/nothing", "/api/v1/namespaces/prod/jobs/nothing"):
            response = await client.get(path)
            assert (response.status_code, (await problem(response))["code"]) == (404, "not_found")


# what is read


async def test_namespaces_and_jobs_are_listed_with_inputs_and_outputs_over_all_runs() -> None:
    house = house_of()
    await posted(house, [raw for day in ORDERS for raw in orders(day)])
    async with house.client() as client:
        assert (await client.get("/api/v1/namespaces")).json() == {"namespaces": [{"name": "file"}, {"name": "prod"}]}
        found = (await client.get("/api/v1/namespaces/prod/jobs")).json()["jobs"]
        assert sorted(each["name"] for each in found) == [
            "finance_daily",
            "finance_daily.daily_revenue",
            "inventory_sync",
            "inventory_sync.stock_levels",
            "orders_ingest",
            "orders_ingest.clean_orders",
            "orders_ingest.fetch_orders",
        ]
        pages = [(await client.get(f"/api/v1/namespaces/prod/jobs?limit=3&offset={at}")).json() for at in (0, 3, 6)]
        assert [each["name"] for page in pages for each in page["jobs"]] == [each["name"] for each in found]
        clean = (await client.get("/api/v1/namespaces/prod/jobs/orders_ingest.clean_orders")).json()
    assert clean["id"] == {"namespace": "prod", "name": "orders_ingest.clean_orders"}
    assert clean["inputs"] == [{"namespace": "file", "name": "/data/lake/raw/orders.csv"}]
    assert clean["outputs"] == [{"namespace": "file", "name": "/data/lake/clean/orders.parquet"}]
    assert clean["parentJobName"] == "orders_ingest"
    assert clean["latestRun"]["state"] == "COMPLETED"
    assert clean["latestRun"]["durationMs"] == 125
    fetch = next(each for each in found if each["name"] == "orders_ingest.fetch_orders")
    assert fetch["latestRun"]["state"] == "FAILED"
    assert fetch["latestRun"]["facets"]["errorMessage"]["message"].startswith("ConnectionError")


async def test_the_graph_around_a_job_goes_as_deep_as_asked() -> None:
    house = house_of()
    await posted(house, orders("1_monday_ok"))
    async with house.client() as client:
        node = "job:prod:orders_ingest.clean_orders"
        whole = (await client.get(POST, params={"nodeId": node})).json()["graph"]
        near = (await client.get(POST, params={"nodeId": node, "depth": 0})).json()["graph"]
        assert (await client.get(POST, params={"nodeId": "job:prod:nothing"})).status_code == 404
        assert (await client.get(POST, params={"nodeId": "prod"})).status_code == 404
        assert (await client.get(POST)).status_code == 422
        assert (await client.get(POST, params={"nodeId": node, "depth": "deep"})).status_code == 422
    assert [each["id"] for each in whole if each["type"] == "JOB"] == [
        "job:prod:finance_daily.daily_revenue",
        "job:prod:inventory_sync.stock_levels",
        "job:prod:orders_ingest.clean_orders",
        "job:prod:orders_ingest.fetch_orders",
    ]
    parquet = next(each for each in whole if each["id"] == "dataset:file:/data/lake/clean/orders.parquet")
    assert parquet["inEdges"] == [{"origin": node, "destination": parquet["id"]}]
    assert len(parquet["outEdges"]) == 2
    assert len(near) < len(whole)


async def test_names_with_slashes_and_colons_are_found() -> None:
    house = house_of()
    raw = orders("1_monday_ok")[0]
    await posted(house, [raw | {"job": {"namespace": "spark://host:7077/a", "name": "load/all:x"}}])
    async with house.client() as client:
        path = f"/api/v1/namespaces/{quote('spark://host:7077/a', safe='')}/jobs"
        assert [each["name"] for each in (await client.get(path)).json()["jobs"]] == ["load/all:x"]
        assert (await client.get(f"{path}/{quote('load/all:x', safe='')}")).status_code == 200
        found = (await client.get(POST, params={"nodeId": "job:spark://host:7077/a:load/all:x"})).json()["graph"]
    assert found[1]["id"] == "job:spark://host:7077/a:load/all:x"


def test_a_node_id_may_mean_every_way_to_split_it() -> None:
    assert list(parse_node_id("dataset:a:b:c")) == [dataset("a", "b:c"), dataset("a:b", "c")]
    assert list(parse_node_id("job:a:")) == []
    assert list(parse_node_id("run:a:b")) == []
    assert job("a", "b") in parse_node_id("job:a:b")
