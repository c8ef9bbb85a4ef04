"""One incident, one task: what joins it and what opens another."""

import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from agents.incident_simulation import EAGER, FETCH, PATIENT, TUESDAY, WEDNESDAY, IncidentSimulation, fails, run_event
from agents.lineage_data import event_sets, orders
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.lineage.incidents.failures import failure_report
from counterpoint.lineage.incidents.incident import IncidentLimits, IncidentRecord, IncidentState
from counterpoint.lineage.incidents.matching import incident_id_of
from counterpoint.lineage.openlineage.parser import parse_event


@pytest.mark.parametrize("limits", [EAGER, PATIENT], ids=["at once", "after retries"])
def test_four_fail_events_are_one_incident_and_one_task_closed_by_the_fixed_run(limits: IncidentLimits) -> None:
    simulation = IncidentSimulation(limits).take(orders("1_monday_ok")).take(orders(TUESDAY))
    incident = simulation.only
    assert len(simulation.tasks) == 1
    assert (incident.job, incident.state, incident.count, incident.tries) == (FETCH, IncidentState.OPEN, 1, 3)
    assert len(incident.failures) == 4
    simulation.take(orders("3_tuesday_fixed"))
    assert simulation.only.state is IncidentState.CLOSED
    assert simulation.only.closed_by == orders("3_tuesday_fixed")[1]["run"]["runId"]
    assert [(o.task_id, o.outcome) for o in simulation.outcomes] == [(incident.incident_id, "succeeded")]


def test_wednesday_is_a_new_incident_with_tuesdays_signature() -> None:
    simulation = IncidentSimulation().take([*orders(TUESDAY), *orders("3_tuesday_fixed"), *orders(WEDNESDAY)])
    tuesday, wednesday = simulation.incidents.values()
    assert len(simulation.tasks) == 2
    assert (tuesday.state, wednesday.state) == (IncidentState.CLOSED, IncidentState.OPEN)
    assert tuesday.signature == wednesday.signature
    assert tuesday.error_message != wednesday.error_message


def test_wednesday_joins_when_tuesday_was_never_fixed() -> None:
    simulation = IncidentSimulation().take([*orders(TUESDAY), *orders(WEDNESDAY)])
    assert len(simulation.tasks) == 1
    assert (simulation.only.count, simulation.only.tries, len(simulation.only.failures)) == (2, 3, 8)


@pytest.mark.parametrize("limits", [EAGER, PATIENT], ids=["at once", "after retries"])
def test_in_every_order_the_failures_of_a_run_are_the_same_one_incident(limits: IncidentLimits) -> None:
    straight = IncidentSimulation(limits).take(fails(TUESDAY)).only
    for order in itertools.permutations(fails(TUESDAY)):
        simulation = IncidentSimulation(limits).take(order)
        assert len(simulation.tasks) == 1
        if limits is EAGER or order[-1]["job"]["name"] == "orders_ingest":
            opened_by = {"incident_id", "opened_at", "targets"}
            assert simulation.only.model_dump(exclude=opened_by) == straight.model_dump(exclude=opened_by)
        assert (simulation.only.job, simulation.only.signature) == (FETCH, straight.signature)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_duplicates_and_disorder_over_both_days_make_no_further_task(data: st.DataObject) -> None:
    days = [*orders(TUESDAY), *orders(WEDNESDAY)]
    again = data.draw(st.lists(st.sampled_from(days), max_size=8))
    simulation = IncidentSimulation().take(data.draw(st.permutations([*days, *again])))
    assert len(simulation.tasks) - len(simulation.cancellations) == len(simulation.active) == 1
    assert {incident.job for incident in simulation.active} == {FETCH}
    assert sum(len(incident.failures) for incident in simulation.active) == 8


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_late_events_after_the_fix_open_no_incident(data: st.DataObject) -> None:
    simulation = IncidentSimulation().take([*orders(TUESDAY), *orders("3_tuesday_fixed")])
    before = simulation.incidents.copy()
    simulation.take(data.draw(st.lists(st.sampled_from(orders(TUESDAY)), max_size=8)))
    assert len(simulation.tasks) == 1
    assert simulation.incidents == before


@settings(max_examples=40, deadline=None)
@given(order=st.permutations(fails(TUESDAY)))
def test_failures_that_arrive_after_their_fix_open_nothing(order: Sequence[dict[str, Any]]) -> None:
    simulation = IncidentSimulation().take([*orders("3_tuesday_fixed"), *order])
    assert simulation.tasks == []
    assert simulation.active == []


def test_a_dag_run_that_fails_first_waits_for_the_failure_of_its_task() -> None:
    simulation = IncidentSimulation(PATIENT).take([fails(TUESDAY)[3]])
    assert (simulation.tasks, simulation.only.state) == ([], IncidentState.WAITING)
    simulation.take(fails(TUESDAY)[:3])
    assert (len(simulation.tasks), simulation.only.job, simulation.only.state) == (1, FETCH, IncidentState.OPEN)
    assert (simulation.tasks[0].error_message or "").startswith("ConnectionError")
    assert simulation.amendments == []


def test_a_task_of_a_dag_run_is_pointed_at_its_part_when_that_comes_after_the_grace() -> None:
    simulation = IncidentSimulation().take([fails(TUESDAY)[3]])
    assert (simulation.only.job, simulation.tasks[0].error_message) == ("job:prod/orders_ingest", "task_failure")
    simulation.take([*fails(TUESDAY)[:3], *fails(TUESDAY)])
    assert (len(simulation.tasks), simulation.only.job) == (1, FETCH)
    (amended,) = simulation.amendments
    assert amended.task_id == simulation.tasks[0].task_id
    assert (amended.error_message or "").startswith("ConnectionError")
    assert amended.target is not None
    assert amended.target.job is not None
    assert amended.target.job.name == "orders_ingest.fetch_orders"
    rows = (amended.context or {})["downstream"]
    assert not any(row["name"] == "raw.orders" and row["hops"] < 1 for row in rows)


def test_a_dag_run_that_fails_while_a_try_is_waited_on_waits_with_it() -> None:
    simulation = IncidentSimulation(PATIENT).take([fails(TUESDAY)[0], fails(TUESDAY)[3]])
    assert (simulation.tasks, simulation.only.state) == ([], IncidentState.WAITING)
    simulation.take([fails(TUESDAY)[3]], waited=True)
    assert (simulation.only.job, len(simulation.only.failures), len(simulation.tasks)) == (FETCH, 2, 1)
    assert (simulation.tasks[0].error_message or "").startswith("ConnectionError")


def test_a_try_with_retries_left_is_waited_on_and_opens_when_nothing_follows() -> None:
    simulation = IncidentSimulation(PATIENT).take([fails(TUESDAY)[0]])
    assert (simulation.tasks, simulation.only.state) == ([], IncidentState.WAITING)
    assert PATIENT.grace(simulation.only.origin) == timedelta(hours=1)
    simulation.take([fails(TUESDAY)[0]], waited=True)
    assert len(simulation.tasks) == 1


def test_a_try_that_was_waited_on_opens_nothing_when_the_retry_worked() -> None:
    def airflow(number: int) -> dict[str, Any]:
        return {"task": {"task_id": "a", "retries": 1}, "taskInstance": {"try_number": number}}

    failed = run_event("FAIL", 0, run_id="t-1", parent=("dag", "d"), error="x", **airflow(1))
    worked = run_event("COMPLETE", 5, run_id="t-2", parent=("dag", "d"), **airflow(2))
    simulation = IncidentSimulation(PATIENT).take([failed, worked]).take([failed], waited=True)
    assert (simulation.tasks, simulation.outcomes, simulation.only.state) == ([], [], IncidentState.CLOSED)


def test_another_error_of_the_same_job_in_another_run_is_another_incident() -> None:
    simulation = IncidentSimulation().take(
        [run_event("FAIL", 0, error="disk full"), run_event("FAIL", 9, run_id="r-2", error="no such table")]
    )
    assert len(simulation.tasks) == 2


def test_the_same_error_of_another_job_is_another_incident() -> None:
    simulation = IncidentSimulation().take(
        [run_event("FAIL", 0, error="disk full"), run_event("FAIL", 9, job="b", run_id="r-2", error="disk full")]
    )
    assert len(simulation.tasks) == 2


def test_two_tasks_of_one_dag_run_are_two_incidents_in_any_order_with_its_own_fail() -> None:
    events = [
        run_event("FAIL", 0, job="dag.a", run_id="ra", parent=("dag", "d"), error="disk full"),
        run_event("FAIL", 1, job="dag.b", run_id="rb", parent=("dag", "d"), error="no such table"),
        run_event("FAIL", 2, job="dag", run_id="d", error="task_failure"),
    ]
    for order in itertools.permutations(events):
        simulation = IncidentSimulation().take(order)
        assert {incident.job for incident in simulation.incidents.values()} == {"job:ns/dag.a", "job:ns/dag.b"}
        assert len(simulation.tasks) == 2


def test_a_failure_of_a_child_run_is_one_incident_with_its_parents() -> None:
    spark = run_event("FAIL", 0, job="app", run_id="s", parent=("dag.t", "t"), error="executor lost")
    spark["run"]["facets"]["parent"]["root"] = {"job": {"namespace": "ns", "name": "dag"}, "run": {"runId": "d"}}
    task = run_event("FAIL", 1, job="dag.t", run_id="t", parent=("dag", "d"), error="spark-submit returned 1")
    dag = run_event("FAIL", 2, job="dag", run_id="d", error="task_failure")
    for order in itertools.permutations([spark, task, dag]):
        simulation = IncidentSimulation().take(order)
        assert (len(simulation.tasks), simulation.only.job, simulation.only.error_message) == (
            1,
            "job:ns/app",
            "executor lost",
        )


def test_the_same_events_in_two_projects_are_two_tasks_and_twice_in_one_is_one() -> None:
    simulation = IncidentSimulation().take([run_event("FAIL", 0)])
    failure = failure_report(parse_event(run_event("FAIL", 0)), simulation.run("r-1"))  # type: ignore[arg-type]
    ids = [incident_id_of(name, failure.run) for name in ("default", "default", "other")]
    assert ids[0] == ids[1] == simulation.only.incident_id
    assert ids[2] != ids[0]


@pytest.mark.parametrize("name", event_sets())
def test_every_set_opens_as_many_incidents_as_jobs_broke(name: str) -> None:
    broken = {"airflow_3.3.2_real": 1, "airflow_orders": 2}
    simulation = IncidentSimulation(PATIENT).take(event_sets()[name])
    assert len(simulation.tasks) == len(simulation.incidents) == broken.get(name, 0)


def test_an_incident_survives_the_store() -> None:
    incident = IncidentSimulation().take(orders(TUESDAY)).only
    assert IncidentRecord.model_validate(incident.model_dump(mode="json", exclude_none=True)) == incident
