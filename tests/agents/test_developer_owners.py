"""Questions for owners are answered from lineage, each by the record that has the owner."""

from pathlib import Path
from typing import Any

import pytest
from agents.developer_meaning import ModelSimilarity
from agents.developer_memory import Shelf, Similarity, by_words
from agents.steps import handle_in_steps

from counterpoint.graph.edges import EdgeKind, edge
from counterpoint.graph.names import Node, dataset, job
from counterpoint.proto.memory import List
from counterpoint.proto.tasks import SubmitTask, TaskDelegated, TaskWorked

EXAMPLES = Path(__file__).parents[2] / "examples" / "knowledge"
SINK, REPORT = job("connect", "snowflake-sink"), job("trino", "daily_orders_report")
PART, FLOW = job("airflow", "harbour.publish_tides"), job("airflow", "harbour")
RAW, MART = dataset("kafka://broker:9092", "orders.raw"), dataset("snowflake://acme", "ANALYTICS.FCT_ORDERS")
LAKE, OTHER = dataset("file", "/data/lake/clean/orders.parquet"), dataset("file", "/data/lake/invoices.parquet")
EDGES = (
    edge(EdgeKind.DATA, RAW, SINK),
    edge(EdgeKind.DATA, SINK, MART),
    edge(EdgeKind.DATA, MART, REPORT),
    edge(EdgeKind.DATA, SINK, LAKE),
    edge(EdgeKind.PARENT, FLOW, PART),
)
OWNERS = {SINK: "streaming team", MART: "warehouse team", FLOW: "quay team", OTHER: "billing team"}
PAGE = """# Teams

| Area | Owner |
|---|---|
| Registry | artefacts team |
| Runners | build team |
"""


def shelf_of(similarity: Similarity = by_words) -> Shelf:
    shelf = Shelf(similarity)
    shelf.ingest("docs/teams.md", PAGE)
    for node in (SINK, REPORT, PART, FLOW, RAW, MART, LAKE, OTHER):
        keep(shelf, node)
    for each in EDGES:
        shelf.put("edges", each.id, each.model_dump(mode="json"))
    return shelf


def keep(shelf: Shelf, node: Node) -> None:
    owner = OWNERS.get(node)
    body = {"namespace": node.namespace, "name": node.name, "owners": [owner] if owner else []}
    shelf.put(f"{node.kind}s", node.id, body, integrity=2)


async def answer_to(question: str, shelf: Shelf | None = None, **more: Any) -> TaskWorked:
    shelf = shelf or shelf_of()
    task = SubmitTask.model_validate({"kind": "question", "description": question, **more})
    message = TaskDelegated(task_id="t1", project=shelf.project, session_id="s1", attempt=1, task=task, lane="answer")
    commit = await handle_in_steps(message, shelf.delivered("m1", "t1"))
    (out,) = (out for out in commit.messages if out.type == TaskWorked.TYPE)
    return TaskWorked.model_validate(out.data)


@pytest.mark.parametrize(
    ("question", "sentence", "record"),
    [
        ("Who owns FCT_ORDERS?", f"The data set {MART} is owned by warehouse team.", MART),
        ("Wem gehört die Tabelle ANALYTICS.FCT_ORDERS?", f"The data set {MART} is owned by warehouse team.", MART),
        ("Who is responsible for the snowflake sink?", f"The job {SINK} is owned by streaming team.", SINK),
        (
            "Who owns the orders lake?",
            f"The data set {LAKE} is written by the job {SINK}, which is owned by streaming team.",
            SINK,
        ),
        (
            "Welches Team betreut publish_tides?",
            f"The job {PART} is part of the job {FLOW}, which is owned by quay team.",
            FLOW,
        ),
    ],
)
async def test_an_owner_in_lineage_is_the_answer(question: str, sentence: str, record: Node) -> None:
    worked = await answer_to(question)
    assert worked.outcome == "answered"
    assert (worked.text or "").startswith(f"{sentence[:-1]}")
    (citation,) = worked.findings.citations
    assert (citation.store, citation.id, citation.quote) == (f"{record.kind}s", record.id, OWNERS[record])
    assert worked.confidence.band == "high"


async def test_rows_of_documents_answer_for_owners_that_lineage_does_not_know() -> None:
    shelf = shelf_of(ModelSimilarity())
    shelf.ingest_folder(EXAMPLES, EXAMPLES)
    worked = await answer_to("Who owns the registry?", shelf)
    assert "artefacts team" in (worked.text or "")
    assert {each.store for each in worked.findings.citations} == {"chunks"}


async def test_lineage_and_a_row_about_the_same_thing_are_both_quoted() -> None:
    shelf = shelf_of(ModelSimilarity())
    shelf.ingest("docs/flows.md", PAGE.replace("Registry", "harbour tides") + "\nAsk them in #quay.\n")
    worked = await answer_to("Who owns the harbour tides flow?", shelf)
    assert f"The job {PART} is part of the job {FLOW}, which is owned by quay team." in (worked.text or "")
    assert "harbour tides | artefacts team" in (worked.text or "")
    assert "Runners" not in (worked.text or "")


@pytest.mark.parametrize("question", ["Who owns the customers mart?", "Who owns it?", "Who owns daily_orders_report?"])
async def test_an_unknown_owner_is_not_made_up(question: str) -> None:
    worked = await answer_to(question)
    assert worked.outcome == "stopped"


async def test_other_questions_read_no_lineage() -> None:
    shelf = shelf_of()
    await answer_to("Which team runs the registry on Sundays?", shelf)
    assert not any(isinstance(query, List) and query.store in ("jobs", "datasets") for query in shelf.queries)


async def test_an_untrusted_owner_is_answered_with_medium_confidence() -> None:
    shelf = shelf_of()
    body = {"namespace": "trino", "name": "made_up_job", "owners": ["ceo"]}
    shelf.put("jobs", job("trino", "made_up_job").id, body, integrity=1)
    worked = await answer_to("Who owns made_up_job?", shelf)
    assert worked.confidence.band == "medium"
    assert "no trusted person has vouched for what the events of lineage state" in worked.findings.caveats


@pytest.mark.parametrize(
    ("question", "owner"), [("Who owns the orders lake?", None), ("Who owns finance_daily?", "team-finance")]
)
async def test_a_table_of_the_owners_of_other_things_is_no_answer(question: str, owner: str | None) -> None:
    shelf = Shelf(ModelSimilarity())
    shelf.ingest_folder(EXAMPLES, EXAMPLES)
    worked = await answer_to(question, shelf)
    assert worked.outcome == ("answered" if owner else "stopped")
    assert owner is None or owner in (worked.text or "")
