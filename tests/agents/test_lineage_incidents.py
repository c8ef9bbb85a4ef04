"""One incident, one task (row F5): what joins it and what opens another."""

import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from agents.lineage_data import event_sets, orders
from agents.lineage_desk import EAGER, FETCH, PATIENT, TUESDAY, WEDNESDAY, Desk, fails, made
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.lineage.incidents.failures import failure_report
from counterpoint.lineage.incidents.incident import IncidentLimits, IncidentRecord, IncidentState
from counterpoint.lineage.incidents.matching import incident_id_of
from counterpoint.lineage.openlineage.parser import parse_event


@pytest.mark.parametrize("limits", [EAGER, PATIENT], ids=["at once", "after retries"])
def test_four_fail_events_are_one_incident_and_one_task_closed_by_the_fixed_run(limits: IncidentLimits) -> None:
    desk = Desk(limits).take(orders("1_monday_ok")).take(orders(TUESDAY))
    incident = desk.only
    assert len(desk.tasks) == 1
    assert (incident.job, incident.state, incident.count, incident.tries) == (FETCH, IncidentState.OPEN, 1, 3)
    assert len(incident.failures) == 4
    desk.take(orders("3_tuesday_fixed"))
    assert desk.only.state is IncidentState.CLOSED
    assert desk.only.closed_by == orders("3_tuesday_fixed")[1]["run"]["runId"]
    assert [(o.task_id, o.outcome) for o in desk.outcomes] == [(incident.incident_id, "succeeded")]


def test_wednesday_is_a_new_incident_with_tuesdays_signature() -> None:
    desk = Desk().take([*orders(TUESDAY), *orders("3_tuesday_fixed"), *orders(WEDNESDAY)])
    tuesday, wednesday = desk.incidents.values()
    assert len(desk.tasks) == 2
    assert (tuesday.state, wednesday.state) == (IncidentState.CLOSED, IncidentState.OPEN)
    assert tuesday.signature == wednesday.signature
    assert tuesday.error_message != wednesday.error_message


def test_wednesday_joins_when_tuesday_was_never_fixed() -> None:
    desk = Desk().take([*orders(TUESDAY), *orders(WEDNESDAY)])
    assert len(desk.tasks) == 1
    assert (desk.only.count, desk.only.tries, len(desk.only.failures)) == (2, 3, 8)


@pytest.mark.parametrize("limits", [EAGER, PATIENT], ids=["at once", "after retries"])
def test_in_every_order_the_failures_of_a_run_are_the_same_one_incident(limits: IncidentLimits) -> None:
    straight = Desk(limits).take(fails(TUESDAY)).only
    for order in itertools.permutations(fails(TUESDAY)):
        desk = Desk(limits).take(order)
        assert len(desk.tasks) == 1
        if limits is EAGER or order[-1]["job"]["name"] == "orders_ingest":
            opened_by = {"incident_id", "opened_at", "targets"}
            assert desk.only.model_dump(exclude=opened_by) == straight.model_dump(exclude=opened_by)
        assert (desk.only.job, desk.only.signature) == (FETCH, straight.signature)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_duplicates_and_disorder_over_both_days_make_no_further_task(data: st.DataObject) -> None:
    days = [*orders(TUESDAY), *orders(WEDNESDAY)]
    again = data.draw(st.lists(st.sampled_from(days), max_size=8))
    desk = Desk().take(data.draw(st.permutations([*days, *again])))
    assert len(desk.tasks) - len(desk.cancellations) == len(desk.standing) == 1
    assert {incident.job for incident in desk.standing} == {FETCH}
    assert sum(len(incident.failures) for incident in desk.standing) == 8


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_what_comes_late_after_the_fix_opens_nothing(data: st.DataObject) -> None:
    desk = Desk().take([*orders(TUESDAY), *orders("3_tuesday_fixed")])
    before = desk.incidents.copy()
    desk.take(data.draw(st.lists(st.sampled_from(orders(TUESDAY)), max_size=8)))
    assert len(desk.tasks) == 1
    assert desk.incidents == before


@settings(max_examples=40, deadline=None)
@given(order=st.permutations(fails(TUESDAY)))
def test_failures_that_arrive_after_their_fix_open_nothing(order: Sequence[dict[str, Any]]) -> None:
    desk = Desk().take([*orders("3_tuesday_fixed"), *order])
    assert desk.tasks == []
    assert desk.standing == []


def test_a_dag_run_that_fails_first_waits_for_the_failure_of_its_task() -> None:
    desk = Desk(PATIENT).take([fails(TUESDAY)[3]])
    assert (desk.tasks, desk.only.state) == ([], IncidentState.WAITING)
    desk.take(fails(TUESDAY)[:3])
    assert (len(desk.tasks), desk.only.job, desk.only.state) == (1, FETCH, IncidentState.OPEN)
    assert (desk.tasks[0].error_message or "").startswith("ConnectionError")
    assert desk.amendments == []


def test_a_task_of_a_dag_run_is_pointed_at_its_part_when_that_comes_after_the_grace() -> None:
    desk = Desk().take([fails(TUESDAY)[3]])
    assert (desk.only.job, desk.tasks[0].error_message) == ("job:prod/orders_ingest", "task_failure")
    desk.take([*fails(TUESDAY)[:3], *fails(TUESDAY)])
    assert (len(desk.tasks), desk.only.job) == (1, FETCH)
    (amended,) = desk.amendments
    assert amended.task_id == desk.tasks[0].task_id
    assert (amended.error_message or "").startswith("ConnectionError")
    assert amended.target is not None
    assert amended.target.job is not None
    assert amended.target.job.name == "orders_ingest.fetch_orders"
    rows = (amended.context or {})["downstream"]
    assert not any(row["name"] == "raw.orders" and row["hops"] < 1 for row in rows)


def test_a_dag_run_that_fails_while_a_try_is_waited_on_waits_with_it() -> None:
    desk = Desk(PATIENT).take([fails(TUESDAY)[0], fails(TUESDAY)[3]])
    assert (desk.tasks, desk.only.state) == ([], IncidentState.WAITING)
    desk.take([fails(TUESDAY)[3]], waited=True)
    assert (desk.only.job, len(desk.only.failures), len(desk.tasks)) == (FETCH, 2, 1)
    assert (desk.tasks[0].error_message or "").startswith("ConnectionError")


def test_a_try_with_retries_left_is_waited_on_and_opens_when_nothing_follows() -> None:
    desk = Desk(PATIENT).take([fails(TUESDAY)[0]])
    assert (desk.tasks, desk.only.state) == ([], IncidentState.WAITING)
    assert PATIENT.grace(desk.only.origin) == timedelta(hours=1)
    desk.take([fails(TUESDAY)[0]], waited=True)
    assert len(desk.tasks) == 1


def test_a_try_that_was_waited_on_opens_nothing_when_the_retry_worked() -> None:
    def airflow(number: int) -> dict[str, Any]:
        return {"task": {"task_id": "a", "retries": 1}, "taskInstance": {"try_number": number}}

    failed = made("FAIL", 0, run_id="t-1", parent=("dag", "d"), error="x", **airflow(1))
    worked = made("COMPLETE", 5, run_id="t-2", parent=("dag", "d"), **airflow(2))
    desk = Desk(PATIENT).take([failed, worked]).take([failed], waited=True)
    assert (desk.tasks, desk.outcomes, desk.only.state) == ([], [], IncidentState.CLOSED)


def test_another_error_of_the_same_job_in_another_run_is_another_incident() -> None:
    desk = Desk().take([made("FAIL", 0, error="disk full"), made("FAIL", 9, run_id="r-2", error="no such table")])
    assert len(desk.tasks) == 2


def test_the_same_error_of_another_job_is_another_incident() -> None:
    desk = Desk().take([made("FAIL", 0, error="disk full"), made("FAIL", 9, job="b", run_id="r-2", error="disk full")])
    assert len(desk.tasks) == 2


def test_two_tasks_of_one_dag_run_are_two_incidents_in_any_order_with_its_own_fail() -> None:
    events = [
        made("FAIL", 0, job="dag.a", run_id="ra", parent=("dag", "d"), error="disk full"),
        made("FAIL", 1, job="dag.b", run_id="rb", parent=("dag", "d"), error="no such table"),
        made("FAIL", 2, job="dag", run_id="d", error="task_failure"),
    ]
    for order in itertools.permutations(events):
        desk = Desk().take(order)
        assert {incident.job for incident in desk.incidents.values()} == {"job:ns/dag.a", "job:ns/dag.b"}
        assert len(desk.tasks) == 2


def test_what_a_task_started_fails_with_it_as_one() -> None:
    spark = made("FAIL", 0, job="app", run_id="s", parent=("dag.t", "t"), error="executor lost")
    spark["run"]["facets"]["parent"]["root"] = {"job": {"namespace": "ns", "name": "dag"}, "run": {"runId": "d"}}
    task = made("FAIL", 1, job="dag.t", run_id="t", parent=("dag", "d"), error="spark-submit returned 1")
    dag = made("FAIL", 2, job="dag", run_id="d", error="task_failure")
    for order in itertools.permutations([spark, task, dag]):
        desk = Desk().take(order)
        assert (len(desk.tasks), desk.only.job, desk.only.error_message) == (1, "job:ns/app", "executor lost")


def test_the_same_events_in_two_projects_are_two_tasks_and_twice_in_one_is_one() -> None:
    desk = Desk().take([made("FAIL", 0)])
    failure = failure_report(parse_event(made("FAIL", 0)), desk.run("r-1"))  # type: ignore[arg-type]
    ids = [incident_id_of(name, failure.run) for name in ("default", "default", "other")]
    assert ids[0] == ids[1] == desk.only.incident_id
    assert ids[2] != ids[0]


@pytest.mark.parametrize("name", event_sets())
def test_every_set_opens_as_many_incidents_as_jobs_broke(name: str) -> None:
    broken = {"airflow_3.3.2_real": 1, "airflow_orders": 2}
    desk = Desk(PATIENT).take(event_sets()[name])
    assert len(desk.tasks) == len(desk.incidents) == broken.get(name, 0)


def test_an_incident_survives_the_store() -> None:
    incident = Desk().take(orders(TUESDAY)).only
    assert IncidentRecord.model_validate(incident.model_dump(mode="json", exclude_none=True)) == incident
