"""The history of an incident: how often the job has failed the same way, and the incident before."""

from datetime import timedelta
from typing import Any

import pytest
from agents.incident_simulation import run_event
from agents.lineage_house import NOW, House

from counterpoint.lineage.incidents.history import add_history
from counterpoint.lineage.incidents.incident import IncidentLimits, IncidentRecord
from counterpoint.proto.tasks import SubmitTask

PATIENT = IncidentLimits(incidents_per_hour=100, retry_grace_s=900)
LATER = NOW + timedelta(days=10)


def flow(day: int, *kinds: str, error: str = "disk is full", task: str = "load") -> list[dict[str, Any]]:
    """The tries of one task on a day, and the end of its DAG."""
    events: list[dict[str, Any]] = []
    at, nominal = day * 86_400, f"2026-11-{10 + day}T00:00:00Z"
    for number, kind in enumerate(kinds, 1):
        said = {
            "job": f"dag.{task}",
            "run_id": f"{task}-{day}-{number}",
            "parent": ("dag", f"flow-{day}"),
            "nominal": nominal,
            "task": {"task_id": task, "retries": 1},
            "taskInstance": {"try_number": number},
        }
        events += [
            run_event("START", at + 10 * number, **said),
            run_event(kind, at + 10 * number + 5, error=error, **said),
        ]
    said = {"job": "dag", "run_id": f"flow-{day}", "nominal": nominal, "job_type": "DAG"}
    return [*events, run_event(kinds[-1], at + 100, error="task_failure", **said)]


def facts(task: SubmitTask) -> tuple[Any, Any]:
    context = task.context or {}
    return context["repeats"], context.get("previous_incident")


async def test_a_try_that_comes_after_the_task_is_counted_on_it() -> None:
    house = House(limits=PATIENT)
    first, second = (
        run_event("FAIL", at, run_id=f"try-{n}", error="disk full", task={"task_id": "a", "retries": 2},
                  taskInstance={"try_number": n}, dagRun={"run_id": "d"})
        for n, at in ((1, 10), (2, 40))
    )  # fmt: skip
    await house.take([first])
    await house.wait(1000)
    (task,) = house.tasks
    assert (task.context or {})["tries"] == 1
    await house.take([second])
    await house.wait(1000)
    (incident,) = house.incidents
    assert (incident.live["tries"], incident.live["failed_at"]) == (2, second["eventTime"])


@pytest.mark.parametrize("first", ["parts", "whole", "whole and its grace"])
async def test_a_second_failure_is_counted_in_any_order_of_events(first: str) -> None:
    house = House(limits=PATIENT)
    await house.take([*flow(0, "FAIL", "FAIL"), *flow(1, "COMPLETE")])
    (before,) = house.tasks
    again = flow(2, "FAIL", "FAIL")
    if first == "whole":
        again = [again[-1], *again[:-1]]
    if first == "whole and its grace":
        await house.take([again[-1]])
        await house.wait(1000)
        again = again[:-1]
    await house.take(again)
    await house.wait(1000)
    standing = [incident for incident in house.incidents if incident.active]
    (incident,) = standing
    assert incident.job == "job:ns/dag.load"
    assert incident.previous == before.task_id
    assert incident.live["repeats"]["count"] == 2
    assert incident.live["repeats"]["first_at"] == run_event("FAIL", 15)["eventTime"]
    shown = [m for m in house.sent if getattr(m, "task_id", None) == incident.incident_id and hasattr(m, "context")]
    repeats, previous = facts(shown[-1])  # type: ignore[arg-type]
    assert (repeats["count"], repeats["first_at"]) == (2, incident.live["repeats"]["first_at"])
    assert previous == before.task_id


async def test_a_part_that_is_opened_by_the_grace_of_its_whole_has_its_own_history() -> None:
    house = House(limits=PATIENT, now=LATER)
    await house.take([*flow(0, "FAIL", "FAIL"), *flow(1, "COMPLETE")])
    (before,) = house.tasks
    await house.take([event for event in flow(2, "FAIL") if event["eventType"] == "FAIL"])
    await house.wait(1000)
    assert facts(house.tasks[-1])[0]["count"] == 2
    assert facts(house.tasks[-1])[1] == before.task_id


async def test_a_failed_dag_without_a_failed_task_becomes_a_task_after_the_grace() -> None:
    house = House(limits=PATIENT, now=LATER)
    await house.take([flow(0, "FAIL")[-1]])
    assert house.tasks == []
    await house.wait(PATIENT.part_grace_s)
    (task,) = house.tasks
    assert (task.target and task.target.job and task.target.job.name) == "dag"


async def test_another_error_of_the_job_is_the_first_time_and_names_the_last_incident() -> None:
    house = House(limits=PATIENT)
    await house.take([*flow(0, "FAIL", "FAIL"), *flow(1, "COMPLETE"), *flow(2, "FAIL", "FAIL", error="no such table")])
    before, now = house.tasks
    assert facts(now)[0]["count"] == 1
    assert facts(now)[1] == before.task_id


async def test_a_retry_that_worked_does_not_count_as_a_failure() -> None:
    house = House(limits=PATIENT)
    await house.take([*flow(0, "FAIL", "COMPLETE"), *flow(1, "FAIL", "FAIL")])
    (task,) = house.tasks
    assert facts(task) == ({**facts(task)[0], "count": 1}, None)


async def test_a_history_longer_than_a_list_is_counted_to_its_beginning() -> None:
    house = House(limits=PATIENT)
    for day in range(0, 120, 2):
        said = {"job": "load", "error": "disk is full"}
        await house.take([run_event("FAIL", day * 100, run_id=f"r{day}", **said)])
        await house.take([run_event("START", day * 100 + 10, job="load", run_id=f"ok{day}")])
        await house.take([run_event("COMPLETE", day * 100 + 20, job="load", run_id=f"ok{day}")])
    assert [facts(task)[0]["count"] for task in house.tasks] == list(range(1, 61))
    assert {facts(task)[0]["first_at"] for task in house.tasks} == {run_event("FAIL", 0)["eventTime"]}


async def test_a_merged_incident_is_not_counted_twice() -> None:
    house = House(limits=PATIENT)
    await house.take([*flow(0, "FAIL", "FAIL"), *flow(1, "COMPLETE"), *flow(2, "FAIL", "FAIL")])
    past, now = sorted(house.incidents, key=lambda one: one.first_at)
    merged = past.model_copy(update={"incident_id": "incident-merged", "ending": "merged"})
    known: list[IncidentRecord] = [past, now, merged]
    assert add_history(now, known) == now
