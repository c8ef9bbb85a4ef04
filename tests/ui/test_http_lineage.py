"""Jobs and data sets over HTTP: search by name, and what is downstream of a data set."""

from urllib.parse import quote

import pytest
from ui.http_front import RunningFront
from ui.test_http_memory import NAMESPACE, graph

from counterpoint.router.api import lineage_search

ORDERS = f"/v1/datasets/file/{quote('/data/orders', safe='')}"


async def test_the_radius_of_a_data_set_are_the_jobs_that_read_it_and_their_outputs(front: RunningFront) -> None:
    graph(front)
    found = (await front.me.get(f"{ORDERS}/blast-radius")).json()
    assert found["start"] == {"kind": "dataset", "namespace": "file", "name": "/data/orders"}
    assert [row["name"] for row in found["downstream"]] == ["dag.clean", "/data/report"]
    around = (await front.me.get(f"{ORDERS}/lineage", params={"direction": "up"})).json()
    assert {place["node"]["name"] for place in around["nodes"]} == {"/data/orders", "fetch/all"}


async def test_an_unknown_data_set_is_404_even_if_a_job_has_the_name(front: RunningFront) -> None:
    graph(front)
    for path in ("/v1/datasets/file/fetch%2Fall", f"/v1/datasets/{quote(NAMESPACE, safe='')}/fetch%2Fall"):
        response = await front.me.get(f"{path}/lineage")
        assert response.status_code == 404
        assert response.json()["errors"] == [{"field": "name", "problem": "is not a known data set"}]


async def test_names_are_found_by_all_their_words(front: RunningFront) -> None:
    graph(front)

    async def found(path: str, text: str) -> list[str]:
        return [each["name"] for each in (await front.me.get(path, params={"text": text})).json()["items"]]

    assert await found("/v1/jobs", "") == ["dag", "dag.clean", "fetch/all"]
    assert await found("/v1/jobs", "DB CLEAN") == ["dag.clean"]
    assert await found("/v1/jobs", "clean nothing") == []
    assert await found("/v1/datasets", "report") == ["/data/report"]
    (job,) = (await front.me.get("/v1/jobs", params={"text": "fetch"})).json()["items"]
    assert (job["kind"], job["namespace"], job["owners"]) == ("job", NAMESPACE, ["ingest team"])
    (table,) = (await front.me.get("/v1/datasets", params={"text": "orders"})).json()["items"]
    assert table["owners"] == ["ingest team"]
    async with front.as_principal("elsewhere", "read", projects=("other",)) as stranger:
        assert (await stranger.get("/v1/jobs")).status_code == 403


async def test_a_search_goes_on_where_its_page_ended(front: RunningFront, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        front.house.put("jobs", f"n/job-{number}", {"namespace": "n", "name": f"job-{number}"})
    monkeypatch.setattr(lineage_search, "SCANNED", 2)
    monkeypatch.setattr(lineage_search, "SCANNED_PAGES", 2)
    names, cursor, pages = [], None, 0
    while pages == 0 or cursor:
        params = {"text": "job-1", "limit": 2} | ({"cursor": cursor} if cursor else {})
        reply = (await front.me.get("/v1/jobs", params=params)).json()
        names += [each["name"] for each in reply["items"]]
        cursor, pages = reply["next_cursor"], pages + 1
    assert names == ["job-11", "job-10", "job-1"]
    assert pages == 4
