"""Documents, search, attempts and lineage over HTTP."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
from agents.router_house import NOW, PROJECT
from hypothesis import given
from hypothesis import strategies as st
from ui.http_front import RunningFront, running

from counterpoint.graph.edges import EdgeKind, edge
from counterpoint.graph.names import dataset, job
from counterpoint.proto.ingest import Document
from counterpoint.proto.signature import signature
from counterpoint.router.api.application import HttpApi
from counterpoint.router.api.body import batches

NAMESPACE = "postgres://db/α"
ERROR = "timed out after 5 s"


@pytest.fixture
async def front(listener: tuple[HttpApi, str]) -> AsyncIterator[RunningFront]:
    async with running(*listener, ingest_request_bytes=1000) as found:
        yield found


async def test_one_document_or_several_are_ingested_on_the_askers_behalf(front: RunningFront) -> None:
    one = {"source": "a.md", "text": "x"}
    response = await front.me.post("/v1/documents", json=one)
    became = [{"source": "a.md", "status": "added", "chunks": 0, "embedded": 0}]
    assert response.json() == {"documents": became, "ignored": []}
    two = {"documents": [one, {"source": "b.md", "text": "y", "type": "markdown"}]}
    assert [each["source"] for each in (await front.me.post("/v1/documents", json=two)).json()["documents"]] == [
        "a.md",
        "b.md",
    ]
    assert {(request.origin.principal, request.origin.project) for request in front.house.ingested} == {("me", PROJECT)}


async def test_the_project_of_documents_may_stand_in_the_body(front: RunningFront) -> None:
    front.me.params = front.me.params.remove("project")
    body = {"documents": [{"source": "a.md", "text": "x"}], "project": "billing"}
    assert (await front.me.post("/v1/documents", json=body)).status_code == 200
    assert front.house.ingested[0].origin.project == "billing"


@pytest.mark.parametrize("named", [{}, {"project": PROJECT}])
async def test_a_document_of_another_project_among_others_is_422(front: RunningFront, named: dict[str, str]) -> None:
    documents = [{"source": "a.md", "text": "x", "project": PROJECT}, {"source": "b.md", "text": "y"}]
    assert (await front.me.post("/v1/documents", json={"documents": documents} | named)).status_code == 200
    documents[1]["project"] = "other"
    response = await front.me.post("/v1/documents", json={"documents": documents} | named)
    assert response.status_code == 422
    assert [each["field"] for each in response.json()["errors"]] == ["documents[1].project"]
    assert len(front.house.ingested) == 1


async def test_unknown_fields_of_documents_and_searches_are_named(front: RunningFront) -> None:
    document = {"source": "a.md", "text": "x", "titel": "misspelt", "metadata": {"any": 1}}
    alone = await front.me.post("/v1/documents", json=document | {"project": PROJECT})
    assert alone.json()["ignored"] == ["titel"]
    together = await front.me.post("/v1/documents", json={"documents": [document], "project": PROJECT, "typ": "x"})
    assert together.json()["ignored"] == ["documents[0].titel", "typ"]
    found = await front.me.post("/v1/search", json={"text": "x", "limit": 3, "project": PROJECT})
    assert found.json()["ignored"] == ["limit"]


async def test_much_is_handed_over_in_parts_in_its_order(front: RunningFront) -> None:
    sizes = {"a": 600, "b": 600, "large": 2000, "c": 10, "d": 10}
    body = {"documents": [{"source": name, "text": "x" * size} for name, size in sizes.items()]}
    became = (await front.me.post("/v1/documents", json=body)).json()["documents"]
    assert [each["source"] for each in became] == list(sizes)
    assert [[each.source for each in request.documents] for request in front.house.ingested] == [
        ["a"],
        ["b"],
        ["large"],
        ["c", "d"],
    ]


@given(st.lists(st.integers(0, 300)))
def test_batches_hold_every_document_in_order_and_are_small_enough(sizes: list[int]) -> None:
    documents = [Document(source=str(number), text="x" * size) for number, size in enumerate(sizes)]
    made = list(batches(documents, 400))
    assert [each for batch in made for each in batch] == documents
    for batch in made:
        assert len(batch) == 1 or sum(len(each.model_dump_json(exclude_none=True)) for each in batch) <= 400


async def test_more_than_256_kib_of_documents_is_taken(front: RunningFront) -> None:
    body = {"documents": [{"source": str(number), "text": "x" * 500} for number in range(900)]}
    response = await front.me.post("/v1/documents", json=body)
    assert response.status_code == 200
    assert len(response.json()["documents"]) == 900


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"documents": []}, "documents"),
        ({"documents": [{"source": "a"}]}, "documents[0].text"),
        ({"documents": [{"source": "a", "text": 3}]}, "documents[0].text"),
        ({"documents": [{"source": "a", "content": "no base64!"}]}, "documents[0].content"),
        ({"documents": [{"source": "a", "text": "x", "content": "eA=="}]}, "documents[0].content"),
        ({"documents": [{"source": "a", "text": "x", "type": "poem"}]}, "documents[0].type"),
        ({"source": "a", "text": "x", "blob": {"blob": "b", "sha256": "s", "bytes": 1}}, "documents[0].blob"),
        ([], "body"),
    ],
)
async def test_invalid_documents_are_refused_with_the_field(front: RunningFront, body: Any, field: str) -> None:
    response = await front.me.post("/v1/documents", json=body)
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, field)


async def test_ingesting_needs_its_role(front: RunningFront) -> None:
    async with front.as_principal("reader", "read", "submit") as reader:
        response = await reader.post("/v1/documents", json={"source": "a.md", "text": "x"})
    assert response.status_code == 403
    assert front.house.ingested == []


async def test_search_gives_records_with_their_scores_best_first(front: RunningFront) -> None:
    for name, text in (("c1", "the resolver timed out"), ("c2", "the resolver"), ("c3", "bicycles")):
        front.house.put("chunks", name, {"source": f"{name}.md", "text": text, "start": 0, "end": len(text)})
    found = (await front.me.post("/v1/search", json={"text": "resolver timed out", "k": 2})).json()
    assert [(item["id"], item["source"]) for item in found["items"]] == [("c1", "c1.md"), ("c2", "c2.md")]
    assert found["items"][0]["score"] == 1
    assert found["items"][0]["store"] == "chunks"
    assert found["tier"]


@pytest.mark.parametrize(
    ("body", "field"),
    [({}, "text"), ({"text": "x", "k": 0}, "k"), ({"text": "x", "vector_weight": 2}, "vector_weight")],
)
async def test_an_invalid_search_is_refused_with_the_field(
    front: RunningFront, body: dict[str, Any], field: str
) -> None:
    response = await front.me.post("/v1/search", json=body)
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, field)


async def test_a_store_that_may_not_be_read_may_not_be_searched(front: RunningFront) -> None:
    response = await front.me.post("/v1/search", json={"text": "x", "store": "coder_memory"})
    assert (response.status_code, response.json()["code"]) == (403, "store")


def tried(front: RunningFront, name: str, error: str, **more: Any) -> None:
    body = {"attempt_id": name, "task_id": "t1", "project": PROJECT, "attempt": 1, "description": "x", "tried": "y"}
    body |= {"error_message": error, "error_signature": signature(error).digest, "by": "me", "at": NOW.isoformat()}
    front.house.put("attempts", name, body | more)


async def test_attempts_at_the_same_error_come_first_then_those_like_it(front: RunningFront) -> None:
    tried(front, "like", "the import timed out")
    tried(front, "same", "timed out after 9 s", task_id="t2")
    tried(front, "other", "disk full")
    everything = (await front.me.get("/v1/attempts")).json()["items"]
    assert [each["attempt_id"] for each in everything] == ["other", "same", "like"]
    found = (await front.me.get("/v1/attempts", params={"error": ERROR})).json()["items"]
    assert [each["attempt_id"] for each in found] == ["same", "like"]
    assert found[0]["score"] == 1 > found[1]["score"]
    of_task = (await front.me.get("/v1/attempts", params={"task_id": "t2"})).json()["items"]
    assert [each["attempt_id"] for each in of_task] == ["same"]


async def test_attempts_are_found_by_job(front: RunningFront) -> None:
    tried(front, "a", ERROR, job={"namespace": NAMESPACE, "name": "fetch"})
    tried(front, "b", ERROR, job={"namespace": NAMESPACE, "name": "clean"})
    for params in ({"job": f"{NAMESPACE}/clean"}, {"job": f"{NAMESPACE}/clean", "error": ERROR}):
        found = (await front.me.get("/v1/attempts", params=params)).json()["items"]
        assert [each["attempt_id"] for each in found] == ["b"]
    refused = await front.me.get("/v1/attempts", params={"job": "clean"})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "job")


def graph(front: RunningFront) -> None:
    """fetch -> orders -> clean -> report, and clean is part of a DAG that somebody owns."""
    fetch, clean, dag = job(NAMESPACE, "fetch/all"), job(NAMESPACE, "dag.clean"), job(NAMESPACE, "dag")
    orders, report = dataset("file", "/data/orders"), dataset("file", "/data/report")
    for node, owners in ((fetch, ["ingest team"]), (clean, []), (dag, ["finance"])):
        front.house.put("jobs", node.id, {"namespace": node.namespace, "name": node.name, "owners": owners})
    for node in (orders, report):
        front.house.put("datasets", node.id, {"namespace": node.namespace, "name": node.name})
    for kind, source, target in (
        (EdgeKind.DATA, fetch, orders),
        (EdgeKind.DATA, orders, clean),
        (EdgeKind.DATA, clean, report),
        (EdgeKind.PARENT, dag, clean),
    ):
        made = edge(kind, source, target)
        front.house.put("edges", made.id, made.model_dump(mode="json"))


def path_of(name: str) -> str:
    return f"/v1/jobs/{quote(NAMESPACE, safe='')}/{quote(name, safe='')}"


async def test_the_blast_radius_of_a_job_with_slashes_in_its_names(front: RunningFront) -> None:
    graph(front)
    found = (await front.me.get(f"{path_of('fetch/all')}/blast-radius")).json()
    assert (found["start"]["namespace"], found["start"]["name"]) == (NAMESPACE, "fetch/all")
    assert found["owner"] == "ingest team"
    rows = {row["name"]: (row["hops"], row["edge"], row.get("owner")) for row in found["downstream"]}
    assert rows["dag.clean"] == (1, "data", "finance")
    assert rows["/data/report"][0] == 2
    assert found["truncated"] is False


async def test_lineage_goes_both_ways_or_one(front: RunningFront) -> None:
    graph(front)
    both = (await front.me.get(f"{path_of('dag.clean')}/lineage")).json()
    hops = {place["node"]["name"]: place["hops"] for place in both["nodes"]}
    assert hops["fetch/all"] == -1
    assert hops["dag.clean"] == 0
    assert hops["/data/report"] > 0
    down = (await front.me.get(f"{path_of('dag.clean')}/lineage", params={"direction": "down"})).json()
    assert "fetch/all" not in {place["node"]["name"] for place in down["nodes"]}
    wrong = await front.me.get(f"{path_of('dag.clean')}/lineage", params={"direction": "sideways"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "direction")


@pytest.mark.parametrize("what", ["lineage", "blast-radius"])
async def test_an_unknown_job_is_404(front: RunningFront, what: str) -> None:
    response = await front.me.get(f"{path_of('nobody')}/{what}")
    assert (response.status_code, response.json()["code"]) == (404, "not_found")
