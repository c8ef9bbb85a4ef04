"""Downstream of a task: looked up in lineage for whatever the task names, never taken from its submitter's word."""

from typing import Any

import pytest
from agents.developer_memory import Shelf
from agents.steps import handle_in_steps

from counterpoint.developer.evidence.downstream import (
    CALLER,
    ROWS,
    DownstreamLookup,
    look_up_downstream,
    with_downstream,
)
from counterpoint.graph.edges import EdgeKind, LineageEdge, edge
from counterpoint.graph.names import Node, dataset, job
from counterpoint.graph.radius import BlastRadius
from counterpoint.proto.findings import Downstream, Findings
from counterpoint.proto.tasks import SubmitTask, TaskDelegated, TaskWorked

LOAD, REPORT, MAIL = job("etl", "load"), job("bi", "report"), job("bi", "mail")
ORDERS = dataset("s3://lake", "orders/day.csv")
EDGES = (
    edge(EdgeKind.DATA, LOAD, ORDERS),
    edge(EdgeKind.DATA, ORDERS, REPORT),
    edge(EdgeKind.CONTROL, REPORT, MAIL),
)
OWNERS = {LOAD: "team-load", REPORT: "team-bi"}
FOUND = [
    ("job", "report", 1, "data", "team-bi"),
    ("dataset", "orders/day.csv", 1, "data", "team-load"),
    ("job", "mail", 2, "control", None),
]
RUN = "0199a2c4-6b1f-7d55-9e3e-111111111111"


def keep(shelf: Shelf, edges: tuple[LineageEdge, ...] = EDGES) -> Shelf:
    for each in edges:
        shelf.put("edges", each.id, each.model_dump(mode="json"))
        for node in each.ends:
            owner = OWNERS.get(node)
            body = {"namespace": node.namespace, "name": node.name, "owners": [owner] if owner else []}
            shelf.put(f"{node.kind}s", node.id, body)
    shelf.put("runs", RUN, {"run_id": RUN, "job": LOAD.ref})
    return shelf


def named(node: Node) -> dict[str, str]:
    return {"namespace": node.namespace, "name": node.name}


async def worked(shelf: Shelf, **more: Any) -> TaskWorked:
    task = SubmitTask.model_validate({"kind": "troubleshoot", "description": "The load fails.", **more})
    lane = {"question": "answer", "plan": "plan", "develop": "build"}.get(task.kind, "investigate")
    message = TaskDelegated(
        task_id="t1", project=shelf.project, session_id="s1", attempt=1, task=task, lane=lane, after=("before",)
    )
    commit = await handle_in_steps(message, shelf.delivered("m1", "t1"))
    (out,) = (out for out in commit.messages if out.type == TaskWorked.TYPE)
    return TaskWorked.model_validate(out.data)


def rows(findings: Findings) -> list[tuple[str, str, int, str, str | None]]:
    return [(row.kind, row.name, row.hops, row.edge, row.owner) for row in findings.downstream]


@pytest.mark.parametrize("kind", ["troubleshoot", "question", "plan", "develop"])
@pytest.mark.parametrize(
    "target", [{"job": named(LOAD)}, {"run_id": RUN}, {"job": named(job("no", "where")), "run_id": RUN}]
)
async def test_a_task_that_names_a_job_or_a_run_gets_its_downstream(kind: str, target: dict[str, Any]) -> None:
    findings = (await worked(keep(Shelf()), kind=kind, target=target)).findings
    assert rows(findings) == FOUND
    assert not any("lineage" in caveat for caveat in findings.caveats)


async def test_a_task_that_names_a_data_set_gets_who_reads_it() -> None:
    findings = (await worked(keep(Shelf()), target={"dataset": named(ORDERS)})).findings
    assert rows(findings) == [("job", "report", 1, "data", "team-bi"), ("job", "mail", 2, "control", None)]


async def test_a_task_without_names_reads_no_lineage() -> None:
    shelf = keep(Shelf())
    assert (await worked(shelf)).findings.downstream == ()
    assert not {query.store for query in shelf.queries if hasattr(query, "store")} & {
        "jobs",
        "runs",
        "datasets",
        "edges",
    }


async def test_a_job_unknown_to_lineage_is_a_caveat() -> None:
    findings = (await worked(keep(Shelf()), target={"job": named(job("no", "where"))})).findings
    assert findings.downstream == ()
    assert "lineage does not know the job no/where: nothing downstream could be looked up" in findings.caveats


async def test_a_made_up_row_stays_the_callers_and_an_owner_is_not_replaced() -> None:
    made_up = {"kind": "job", "namespace": "x", "name": "billing", "hops": 1, "edge": "data", "owner": "ceo"}
    known = {"kind": "job", "namespace": "bi", "name": "report", "hops": 9, "edge": "data", "owner": "ceo"}
    claims = {"downstream": [made_up, {**known, "claimed_by": None}]}
    findings = (await worked(keep(Shelf()), target={"job": named(LOAD)}, context=claims)).findings
    assert rows(findings) == [*FOUND, ("job", "billing", 1, "data", "ceo")]
    assert [row.claimed_by for row in findings.downstream] == [None, None, None, CALLER]
    alone = (await worked(Shelf(), context=claims)).findings
    assert {row.claimed_by for row in alone.downstream} == {CALLER}


async def test_an_unreadable_claim_is_a_caveat() -> None:
    findings = (await worked(Shelf(), context={"downstream": "all of it"})).findings
    assert findings.downstream == ()
    assert any("context.downstream is not a list" in caveat for caveat in findings.caveats)
    assert any(": context.downstream" in caveat for caveat in findings.caveats)


def test_a_cut_list_of_downstream_is_a_caveat() -> None:
    many = tuple(
        Downstream(kind="job", namespace="n", name=f"job{number}", hops=1, edge="data") for number in range(ROWS + 1)
    )
    radius = BlastRadius(start=LOAD, owner=None, expanded=(), downstream=many, truncated=False)
    task = SubmitTask(kind="troubleshoot", description="The load fails.")
    findings = with_downstream(Findings(), task, DownstreamLookup("job etl/load", radius))
    assert findings.downstream == many[:ROWS]
    assert findings.caveats == ("the job etl/load has more downstream than listed: these are the nearest",)


async def test_a_task_without_a_target_makes_no_lookup() -> None:
    assert await look_up_downstream(Shelf().delivered("m1", "t1"), None) == DownstreamLookup()
