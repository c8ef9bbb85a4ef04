"""Settings by project or job in lineage: an incident asks for a task after enough flows have failed in a row."""

from datetime import timedelta
from typing import Any

import pytest
from agents.lineage_house import NOW, PROJECT, House
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.lineage.incidents.incident import IncidentLimits, IncidentState
from counterpoint.lineage.incidents.run_differences import describe_changes
from counterpoint.lineage.records import RunRecord
from counterpoint.proto.incident_settings import IncidentSettings, settings_id
from counterpoint.proto.tasks import JobRef

LOAD = JobRef(namespace="ns", name="load")


def event(kind: str, second: int, job: str = "load", **facets: Any) -> dict[str, Any]:
    error = {"errorMessage": {"message": "Error: disk is full"}} if kind == "FAIL" else {}
    return {
        "eventTime": (NOW + timedelta(seconds=second)).isoformat(),
        "eventType": kind,
        "run": {"runId": f"{job}-{second}", "facets": error | facets},
        "job": {"namespace": "ns", "name": job},
    }


def house(**open_after: int) -> House:
    """A house with `open_after` of the project or, by name, of jobs."""
    run_event = House()
    for name, after in open_after.items():
        job = None if name == "project" else JobRef(namespace="ns", name=name)
        known = IncidentSettings(job=job, open_after=after).model_dump(mode="json", exclude_none=True)
        run_event.put("incident_settings", settings_id(job), known | {"project": PROJECT, "by": "me"})
    return run_event


@pytest.mark.parametrize(("setting", "asked"), [({}, 1), ({"project": 3}, 0), ({"project": 3, "load": 1}, 1)])
async def test_a_job_goes_before_its_project(setting: dict[str, int], asked: int) -> None:
    run_event = house(**setting)
    await run_event.take([event("FAIL", 0)])
    assert len(run_event.tasks) == asked


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(range(3)))
async def test_a_task_is_asked_for_once_enough_flows_have_failed_in_any_order(order: list[int]) -> None:
    run_event = house(load=3)
    events = [event("FAIL", second) for second in range(3)]
    for place in order[:2]:
        await run_event.take([events[place]])
        assert run_event.tasks == []
    await run_event.take([events[order[2]]])
    (task,), (incident,) = run_event.tasks, run_event.incidents
    assert (incident.state, incident.count, task.task_id) == (IncidentState.OPEN, 3, incident.incident_id)


async def test_a_run_that_works_begins_the_count_anew() -> None:
    run_event = house(load=2)
    await run_event.take([event("FAIL", 0), event("COMPLETE", 5), event("FAIL", 10)])
    assert (run_event.tasks, run_event.outcomes) == ([], [])
    await run_event.take([event("FAIL", 20)])
    assert len(run_event.tasks) == 1


def test_other_jobs_are_under_the_project() -> None:
    limits = IncidentLimits(incidents_per_hour=1, retry_grace_s=0)
    held = limits.under([IncidentSettings(open_after=2), IncidentSettings(job=LOAD, open_after=5)])
    assert (held.open_after, held.open_after_of) == (2, {"job:ns/load": 5})


def run(run_id: str, **more: Any) -> RunRecord:
    return RunRecord(run_id=run_id, job="job:ns/load", **more)


def test_a_recovery_keeps_the_known_changes() -> None:
    start = {"started_at": NOW, "ended_at": NOW + timedelta(minutes=1)}
    longer = start | {"ended_at": NOW + timedelta(minutes=3)}
    failed = run("r1", facts={"image": "load:4", "configuration pool": "8"}, retries=1, **start)
    success = run("r2", facts={"image": "load:5", "configuration pool": "16"}, retries=3, **longer)
    said = describe_changes(failed, success)
    assert said[:2] == ("image: load:4, then load:5", "configuration pool: 8, then 16")
    assert said[2].startswith("duration: ")
    assert said[3] == "retries: 1, then 3"
    assert describe_changes(success, success) == ()
    assert describe_changes(failed, run("r3", facts=failed.facts, retries=1, **start)) == ()


async def test_a_recovery_lists_the_changes() -> None:
    run_event = House()
    retries = [
        {"airflow": {"task": {"task_id": "load", "retries": n}, "taskInstance": {"try_number": n + 1}}} for n in (0, 2)
    ]
    await run_event.take([event("FAIL", 0, **retries[0]), event("COMPLETE", 60, **retries[1])])
    (outcome,) = run_event.outcomes
    assert outcome.changed == ("retries: 0, then 2",)
