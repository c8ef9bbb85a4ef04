"""The requests that lineage makes of memory about one event, the commit among them."""

import asyncio
from typing import Any

import pytest
from agents.incident_simulation import run_event
from agents.lineage_house import House

from counterpoint.lineage.handlers import register
from counterpoint.lineage.incidents.incident import IncidentLimits
from counterpoint.lineage.project_locks import ProjectLocks
from counterpoint.lineage.query_batcher import QueryBatcher
from counterpoint.proto.memory import Get, List, MemoryQuery, QueryResult

OFTEN = IncidentLimits(incidents_per_hour=1000, retry_grace_s=900)


def run(kind: str, second: int, dag: int, day: int, number: int = 1, retries: int = 1, **more: Any) -> dict[str, Any]:
    """An event of the task of a DAG that reads `s`, and writes what another DAG reads."""
    return run_event(
        kind,
        second,
        job=f"d{dag}.load",
        run_id=f"r{dag}-{day}-{number}",
        parent=(f"d{dag}", f"f{dag}-{day}"),
        reads=[f"s{dag}"],
        writes=[f"t{dag}"],
        task={"task_id": "load", "retries": retries},
        taskInstance={"try_number": number},
        **more,
    )


async def lived(dags: int) -> House:
    """A house in which each flow has worked once."""
    house = House(limits=OFTEN)
    for dag in range(dags):
        await house.take(
            [
                run_event("COMPLETE", dag, job=f"source{dag}", run_id=f"source{dag}", writes=[f"s{dag}"]),
                run("START", dag + 1, dag, 0),
                run("COMPLETE", dag + 2, dag, 0),
                run_event("COMPLETE", dag + 3, job=f"d{dag}", run_id=f"f{dag}-0", job_type="DAG"),
                run_event(
                    "COMPLETE", dag + 4, job=f"use{dag}.x", parent=(f"use{dag}", "u"), reads=[f"t{dag}"], writes=["u"]
                ),
            ]
        )
    return house


async def requests(house: House, event: dict[str, Any]) -> int:
    before = house.requests
    await house.take([event])
    return house.requests - before


@pytest.mark.parametrize("standing", [0, 6])
async def test_an_opening_takes_four_requests_however_many_incidents_stand(standing: int) -> None:
    house = await lived(standing + 1)
    for dag in range(1, standing + 1):
        await house.take([run("FAIL", 100 + dag, dag, 1, retries=0, error="disk is full")])
    assert await requests(house, run("START", 200, 0, 1)) == 2
    assert await requests(house, run("FAIL", 201, 0, 1, error="disk is full")) == 2
    await house.take([run("START", 202, 0, 1, number=2)])
    tasks = len(house.tasks)
    assert await requests(house, run("FAIL", 203, 0, 1, number=2, error="disk is full")) == 4
    assert len(house.tasks) == tasks + 1
    context = house.tasks[-1].context or {}
    assert {row["name"] for row in context["downstream"]} >= {"use0.x", "t0", "u"}
    whole = run_event("FAIL", 204, job="d0", run_id="f0-1", error="task_failure", job_type="DAG")
    assert await requests(house, whole) == 3
    assert len(house.tasks) == tasks + 1


async def test_a_failure_that_follows_from_another_takes_three_requests() -> None:
    house = await lived(3)
    await house.take([run("FAIL", 100, 0, 1, retries=0, error="disk is full")])
    follows = run_event("FAIL", 101, job="use0.x", run_id="u-1", parent=("use0", "u1"), error="missing", reads=["t0"])
    assert await requests(house, follows) == 3
    (incident,) = house.incidents
    assert incident.affected_count == 1


async def test_decisions_about_an_event_are_one_commit() -> None:
    house = await lived(1)
    house.handlers.clear()
    register(house, OFTEN, ProjectLocks())  # type: ignore[arg-type]
    assert await requests(house, run("FAIL", 201, 0, 1, retries=0, error="disk is full")) == 4
    assert await requests(house, run("COMPLETE", 301, 0, 2)) == 4
    assert [task.task_id for task in house.tasks] == [outcome.task_id for outcome in house.outcomes]


async def test_edges_are_taught_in_turn() -> None:
    house = await lived(1)
    house.handlers.clear()
    register(house, OFTEN, ProjectLocks())  # type: ignore[arg-type]
    events = [run_event("START", at, job="new", run_id=f"n{at}", reads=[f"t{at}"]) for at in range(10)]
    await house.take_at_once(events)
    assert house.conflicts == 0
    assert len([item for item in house.items("edges") if item.body["target"] == "job:ns/new"]) == 10


class AnsweringMemory:
    """Memory that keeps the requests that came; an answer is `cut` where a list is not alone."""

    def __init__(self) -> None:
        self.requests: list[tuple[MemoryQuery, ...]] = []

    async def query(self, *queries: MemoryQuery) -> tuple[QueryResult, ...]:
        self.requests.append(queries)
        return tuple(
            QueryResult(tier="record", plan=query.op, took_us=0, partial=isinstance(query, List) and len(queries) > 1)
            for query in queries
        )


async def test_concurrent_queries_are_one_request_and_repeated_ones_none() -> None:
    memory = AnsweringMemory()
    reads = QueryBatcher(memory)  # type: ignore[arg-type]
    one, two = Get(store="runs", id="1"), Get(store="runs", id="2")
    first, second = await asyncio.gather(reads.query(one, two), reads.query(two))
    assert first[1] is second[0]
    assert (await reads.query(one), await reads.query()) == ((first[0],), ())
    assert memory.requests == [(one, two)]


async def test_an_answer_that_was_cut_is_asked_for_alone() -> None:
    memory = AnsweringMemory()
    one, listed = Get(store="runs", id="1"), List(store="runs")
    _, found = await QueryBatcher(memory).query(one, listed)  # type: ignore[arg-type]
    assert not found.partial
    assert memory.requests == [(one, listed), (listed,)]


async def test_a_failed_request_fails_every_query_of_its_batch() -> None:
    house = House()
    house.away = True
    reads = QueryBatcher(house.memory())
    heard = await asyncio.gather(
        *(reads.query(Get(store="runs", id=str(at))) for at in range(3)), return_exceptions=True
    )
    assert {type(error).__name__ for error in heard} == {"Away"}
