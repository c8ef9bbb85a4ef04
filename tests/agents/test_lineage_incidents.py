"""One incident, one task (row F5): what joins it, what opens another, what holds it back and what closes it."""

import itertools
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from agents.lineage_data import event_sets, orders
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.lineage.events import EventType, RunEvent
from counterpoint.lineage.failures import failure_of, flow_of, recorded_failures
from counterpoint.lineage.graph import changes, owners
from counterpoint.lineage.incidents import (
    KEPT_FAILURES,
    Capped,
    Decision,
    Ignore,
    Incident,
    Join,
    Ledger,
    Limits,
    Open,
    State,
    Wait,
    Why,
    closed_by,
    decide,
)
from counterpoint.lineage.reading import parse
from counterpoint.lineage.records import Job, Key, Record, Run
from counterpoint.lineage.submission import observed_outcome, submission
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import SubmitTask
from counterpoint.recall.edges import Edge
from counterpoint.recall.radius import blast_radius

NOW = datetime(2026, 11, 20, 18, tzinfo=UTC)
EAGER = Limits(incidents_per_hour=20, retry_grace_s=0)
PATIENT = Limits(incidents_per_hour=20, retry_grace_s=3600)


class Desk:
    """What a handler does with the decisions, over records in memory."""

    def __init__(self, limits: Limits = EAGER) -> None:
        self.limits = limits
        self.now = NOW
        self.known: dict[Key, Record] = {}
        self.incidents: dict[str, Incident] = {}
        self.ledger = Ledger()
        self.decisions: list[Decision] = []
        self.tasks: list[SubmitTask] = []
        self.outcomes: list[ReportOutcome] = []

    def take(self, raws: Iterable[object], *, waited: bool = False) -> "Desk":
        for raw in raws:
            event = parse(raw)
            assert isinstance(event, RunEvent)
            self.known |= changes(event, self.known)
            run = self.run(event.run_id)
            if event.type is EventType.FAIL:
                self._failed(event, run, waited)
            elif event.type is EventType.COMPLETE:
                for incident in closed_by(run, list(self.incidents.values())):
                    self.incidents[incident.incident_id] = incident
                    self.outcomes.append(observed_outcome(incident))
        return self

    def run(self, run_id: str) -> Run:
        run = self.known["runs", run_id]
        assert isinstance(run, Run)
        return run

    def _failed(self, event: RunEvent, run: Run, waited: bool) -> None:
        failure = failure_of(event, run)
        runs = [record for record in self.known.values() if isinstance(record, Run)]
        job = self.known["jobs", event.job.node.id]
        assert isinstance(job, Job)
        decision = decide(
            failure,
            list(self.incidents.values()),
            self.ledger,
            self.limits,
            project="default",
            now=self.now,
            tries=recorded_failures(tuple(other for other in runs if flow_of(other) == failure.run.flow)),
            successes=[self.run(job.last_success.run_id)] if job.last_success else [],
            waited=waited,
        )
        self.decisions.append(decision)
        if isinstance(decision, Open | Join | Capped):
            self.incidents[decision.incident.incident_id] = decision.incident
        if isinstance(decision, Open | Capped):
            self.ledger = decision.ledger
        if isinstance(decision, Open):
            edges = [record for record in self.known.values() if isinstance(record, Edge)]
            radius = blast_radius(event.job.node, edges, owners(self.known.values()))
            stack = event.error.stack_trace if event.error else None
            self.tasks.append(submission(decision.incident, radius, self.ledger, stack_trace=stack))

    @property
    def only(self) -> Incident:
        (incident,) = self.incidents.values()
        return incident


def fails(day: str) -> list[dict[str, Any]]:
    return [raw for raw in orders(day) if raw["eventType"] == "FAIL"]


TUESDAY, WEDNESDAY = "2_tuesday_fails", "4_wednesday_fails_again"
FETCH = "job:prod/orders_ingest.fetch_orders"


def made(
    kind: str,
    second: float,
    *,
    job: str = "a",
    run_id: str = "r-1",
    error: str | None = None,
    nominal: str | None = None,
    parent: tuple[str, str] | None = None,
    **airflow: Any,
) -> dict[str, Any]:
    facets: dict[str, Any] = {}
    if error is not None:
        facets["errorMessage"] = {"message": error}
    if nominal is not None:
        facets["nominalTime"] = {"nominalStartTime": nominal}
    if parent is not None:
        facets["parent"] = {"job": {"namespace": "ns", "name": parent[0]}, "run": {"runId": parent[1]}}
    if airflow:
        facets["airflow"] = airflow
    return {
        "eventTime": (NOW + timedelta(seconds=second)).isoformat(),
        "eventType": kind,
        "run": {"runId": run_id, "facets": facets},
        "job": {"namespace": "ns", "name": job},
    }


@pytest.mark.parametrize("limits", [EAGER, PATIENT], ids=["at once", "after retries"])
def test_four_fail_events_are_one_incident_and_one_task_closed_by_the_fixed_run(limits: Limits) -> None:
    desk = Desk(limits).take(orders("1_monday_ok")).take(orders(TUESDAY))
    incident = desk.only
    assert len(desk.tasks) == 1
    assert (incident.job, incident.state, incident.count, incident.tries) == (FETCH, State.OPEN, 1, 3)
    assert len(incident.failures) == 4
    desk.take(orders("3_tuesday_fixed"))
    assert desk.only.state is State.CLOSED
    assert desk.only.closed_by == orders("3_tuesday_fixed")[1]["run"]["runId"]
    assert [(o.task_id, o.outcome) for o in desk.outcomes] == [(incident.incident_id, "succeeded")]


def test_wednesday_is_a_new_incident_with_tuesdays_signature() -> None:
    desk = Desk().take([*orders(TUESDAY), *orders("3_tuesday_fixed"), *orders(WEDNESDAY)])
    tuesday, wednesday = desk.incidents.values()
    assert len(desk.tasks) == 2
    assert (tuesday.state, wednesday.state) == (State.CLOSED, State.OPEN)
    assert tuesday.signature == wednesday.signature
    assert tuesday.error_message != wednesday.error_message


def test_wednesday_joins_when_tuesday_was_never_fixed() -> None:
    desk = Desk().take([*orders(TUESDAY), *orders(WEDNESDAY)])
    assert len(desk.tasks) == 1
    assert (desk.only.count, desk.only.tries, len(desk.only.failures)) == (2, 3, 8)


@pytest.mark.parametrize("limits", [EAGER, PATIENT], ids=["at once", "after retries"])
def test_in_every_order_the_failures_of_a_run_are_the_same_one_incident(limits: Limits) -> None:
    straight = Desk(limits).take(fails(TUESDAY)).only
    for order in itertools.permutations(fails(TUESDAY)):
        desk = Desk(limits).take(order)
        assert len(desk.tasks) == 1
        if limits is EAGER or order[-1]["job"]["name"] == "orders_ingest":
            opened_by = {"incident_id", "opened_at"}
            assert desk.only.model_dump(exclude=opened_by) == straight.model_dump(exclude=opened_by)
        assert (desk.only.job, desk.only.signature) == (FETCH, straight.signature)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_duplicates_and_disorder_over_both_days_make_no_further_task(data: st.DataObject) -> None:
    days = [*orders(TUESDAY), *orders(WEDNESDAY)]
    again = data.draw(st.lists(st.sampled_from(days), max_size=8))
    desk = Desk().take(data.draw(st.permutations([*days, *again])))
    assert len(desk.tasks) == len(desk.incidents) <= 2
    assert {incident.job for incident in desk.incidents.values()} == {FETCH}
    assert sum(len(incident.failures) for incident in desk.incidents.values()) == 8


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_what_comes_late_after_the_fix_opens_nothing(data: st.DataObject) -> None:
    desk = Desk().take([*orders(TUESDAY), *orders("3_tuesday_fixed")])
    before = desk.incidents.copy()
    desk.take(data.draw(st.lists(st.sampled_from(orders(TUESDAY)), max_size=8)))
    assert len(desk.tasks) == 1
    assert desk.incidents == before
    assert all(isinstance(decision, Ignore) for decision in desk.decisions[4:])


@settings(max_examples=40, deadline=None)
@given(order=st.permutations(fails(TUESDAY)))
def test_failures_that_arrive_after_their_fix_open_nothing(order: Sequence[dict[str, Any]]) -> None:
    desk = Desk().take([*orders("3_tuesday_fixed"), *order])
    assert desk.tasks == []
    assert {decision.why for decision in desk.decisions if isinstance(decision, Ignore)} == {Why.RECOVERED}


def test_a_dag_run_that_speaks_first_is_refined_by_the_task_that_failed() -> None:
    desk = Desk().take([fails(TUESDAY)[3]])
    assert desk.only.job == "job:prod/orders_ingest"
    assert desk.only.error_message == "task_failure"
    desk.take(fails(TUESDAY)[:3])
    assert len(desk.tasks) == 1
    assert desk.only.job == FETCH
    assert desk.only.error_message.startswith("ConnectionError")


def test_a_dag_run_that_fails_while_a_task_is_waited_on_opens_the_incident_of_the_task() -> None:
    desk = Desk(PATIENT).take([fails(TUESDAY)[0], fails(TUESDAY)[3]])
    assert [type(decision) for decision in desk.decisions] == [Wait, Open]
    assert (desk.only.job, len(desk.only.failures)) == (FETCH, 2)
    assert desk.tasks[0].error_message is not None
    assert desk.tasks[0].error_message.startswith("ConnectionError")


def test_a_try_with_retries_left_is_waited_on_and_opens_when_nothing_follows() -> None:
    desk = Desk(PATIENT).take([fails(TUESDAY)[0]])
    (decision,) = desk.decisions
    assert isinstance(decision, Wait)
    assert decision.until == NOW + timedelta(hours=1)
    desk.take([fails(TUESDAY)[0]], waited=True)
    assert len(desk.tasks) == 1


def test_a_try_that_was_waited_on_opens_nothing_when_the_retry_worked() -> None:
    def airflow(number: int) -> dict[str, Any]:
        return {"task": {"task_id": "a", "retries": 1}, "taskInstance": {"try_number": number}}

    failed = made("FAIL", 0, run_id="t-1", parent=("dag", "d"), error="x", **airflow(1))
    worked = made("COMPLETE", 5, run_id="t-2", parent=("dag", "d"), **airflow(2))
    desk = Desk(PATIENT).take([failed, worked]).take([failed], waited=True)
    assert desk.tasks == []
    assert isinstance(desk.decisions[-1], Ignore)
    assert desk.decisions[-1].why is Why.RECOVERED


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


def test_the_cap_holds_back_says_so_and_lets_the_next_failure_in_when_the_hour_is_over() -> None:
    desk = Desk(Limits(incidents_per_hour=2, retry_grace_s=0))
    desk.take(made("FAIL", at, job=f"j{at}", run_id=f"r{at}", error="disk full") for at in range(4))
    assert len(desk.tasks) == 2
    held = [decision for decision in desk.decisions if isinstance(decision, Capped)]
    assert [decision.reason for decision in held] == ["2 incidents were opened in the last hour, and 2 may be"] * 2
    assert [incident.state for incident in desk.incidents.values()].count(State.CAPPED) == 2
    again = made("FAIL", 30, job="j3", run_id="r9", error="disk full")
    desk.take([again])
    assert isinstance(desk.decisions[-1], Join)
    assert len(desk.tasks) == 2
    desk.now += timedelta(minutes=61)
    desk.take([made("FAIL", 3700, job="j3", run_id="r10", error="disk full")])
    opened = desk.decisions[-1]
    assert isinstance(opened, Open)
    assert (opened.incident.state, opened.incident.count) == (State.OPEN, 3)
    assert len(desk.tasks) == 3
    assert len(desk.ledger.opened) == 1


def test_a_task_tells_how_many_failures_the_cap_held_back() -> None:
    desk = Desk(Limits(incidents_per_hour=1, retry_grace_s=0))
    desk.take(made("FAIL", at, job=f"j{at}", run_id=f"r{at}", error="disk full") for at in range(3))
    desk.ledger = desk.ledger.model_copy(update={"opened": ()})
    desk.take([made("FAIL", 9, job="j9", run_id="r9", error="disk full")])
    assert desk.tasks[-1].context is not None
    assert desk.tasks[-1].context["capped_last_hour"] == 2


def test_a_capped_incident_that_recovers_is_closed() -> None:
    desk = Desk(Limits(incidents_per_hour=0, retry_grace_s=0)).take([made("FAIL", 0), made("COMPLETE", 9)])
    assert desk.only.state is State.CLOSED


@pytest.mark.parametrize(
    ("success", "closes"),
    [
        (made("COMPLETE", 9), True),
        (made("COMPLETE", -9), False),
        (made("COMPLETE", 9, job="b", run_id="r-1b"), False),
        (made("COMPLETE", 9, run_id="r-2", nominal="2026-11-19T00:00:00Z"), True),
        (made("COMPLETE", 9, run_id="r-0", nominal="2026-11-17T00:00:00Z"), False),
        (made("ABORT", 9), False),
    ],
    ids=["retry", "earlier", "other job", "later date", "older date", "abort"],
)
def test_only_a_later_success_of_the_same_job_closes(success: dict[str, Any], closes: bool) -> None:
    desk = Desk().take([made("FAIL", 0, nominal="2026-11-18T00:00:00Z"), success])
    assert (desk.only.state is State.CLOSED) is closes


def test_a_run_that_began_before_the_failure_does_not_close_it() -> None:
    slow = [made("START", -60, run_id="slow"), made("COMPLETE", 60, run_id="slow")]
    assert Desk().take([slow[0], made("FAIL", 0), slow[1]]).only.state is State.OPEN
    fresh = [made("START", 30, run_id="fresh"), made("COMPLETE", 60, run_id="fresh")]
    assert Desk().take([made("FAIL", 0), *fresh]).only.state is State.CLOSED


def test_another_part_of_a_mapped_task_closes_nothing() -> None:
    def part(kind: str, second: int, index: int, number: int = 1) -> dict[str, Any]:
        instance = {"try_number": number, "map_index": index}
        return made(kind, second, run_id=f"m{index}{number}", parent=("dag", "d"), taskInstance=instance)

    desk = Desk().take([part("FAIL", 0, 0), part("COMPLETE", 5, 1)])
    assert desk.only.state is State.OPEN
    assert desk.take([part("COMPLETE", 9, 0, number=2)]).only.state is State.CLOSED


def test_a_failure_after_the_incident_was_closed_is_a_new_one() -> None:
    desk = Desk().take([made("FAIL", 0, error="x"), made("COMPLETE", 5), made("FAIL", 9, error="x")])
    assert len(desk.tasks) == 2


def test_many_failures_are_counted_though_few_are_kept() -> None:
    desk = Desk().take(made("FAIL", at, run_id=f"r{at}", error="disk full") for at in range(KEPT_FAILURES + 10))
    assert len(desk.tasks) == 1
    assert desk.only.count == KEPT_FAILURES + 10
    assert len(desk.only.failures) == KEPT_FAILURES


def test_a_failure_without_a_message_is_an_incident_too() -> None:
    assert Desk().take([made("FAIL", 0)]).tasks[0].error_message == "failed without an error message"


def test_the_same_events_in_two_projects_are_two_tasks_and_twice_in_one_is_one() -> None:
    desk = Desk().take([made("FAIL", 0)])
    failure = failure_of(parse(made("FAIL", 0)), desk.run("r-1"))  # type: ignore[arg-type]
    opened = [decide(failure, [], Ledger(), EAGER, project=name, now=NOW) for name in ("default", "default", "other")]
    ids = [decision.incident.incident_id for decision in opened if isinstance(decision, Open)]
    assert ids[0] == ids[1] == desk.only.incident_id
    assert ids[2] != ids[0]


def test_the_task_of_an_incident_says_what_a_person_would_look_up() -> None:
    desk = Desk(PATIENT).take([*orders("1_monday_ok"), *orders(TUESDAY)])
    (task,) = desk.tasks
    assert task.kind == "troubleshoot"
    assert task.task_id == desk.only.incident_id
    assert task.description == (
        "prod/orders_ingest.fetch_orders failed after 3 tries for 2026-11-17 00:00 UTC. "
        "Find out why and what puts it right. Downstream of it: prod/orders_ingest.clean_orders, "
        "prod/finance_daily.daily_revenue, prod/inventory_sync.stock_levels."
    )
    assert task.target is not None
    assert task.target.job is not None
    assert (task.target.job.namespace, task.target.job.name) == ("prod", "orders_ingest.fetch_orders")
    assert task.target.run_id == fails(TUESDAY)[2]["run"]["runId"]
    assert task.error_message == (
        "ConnectionError: could not resolve ldap.internal: DNS lookup timed out after 5 s (resolver 10.20.0.2:53)"
    )
    assert task.context is not None
    assert task.context["error_signature"] == signature(task.error_message).digest
    assert {key: task.context[key] for key in ("tries", "retries", "owner", "nominal_time", "part_of")} == {
        "tries": 3,
        "retries": 2,
        "owner": "team-ingest",
        "nominal_time": "2026-11-17T00:00:00+00:00",
        "part_of": ["prod/orders_ingest"],
    }
    assert task.context["log_url"].endswith("fetch_orders?try_number=3")
    assert {row["owner"] for row in task.context["downstream"]} == {"team-ingest", "team-finance", "team-inventory"}
    assert "ConnectionError" in task.context["stack_trace"]
    assert SubmitTask.model_validate_json(task.model_dump_json()) == task


def test_the_longest_names_and_errors_still_make_a_task() -> None:
    desk = Desk().take([made("FAIL", 0, job="j" * 500, run_id="r" * 200, error="word " * 40_000)])
    assert len(desk.tasks) == 1


@pytest.mark.parametrize("name", event_sets())
def test_every_set_opens_as_many_incidents_as_jobs_broke(name: str) -> None:
    broken = {"airflow_3.3.2_real": 1, "airflow_orders": 2}
    desk = Desk(PATIENT).take(event_sets()[name])
    assert len(desk.tasks) == len(desk.incidents) == broken.get(name, 0)


def test_an_incident_survives_the_store() -> None:
    incident = Desk().take(orders(TUESDAY)).only
    assert Incident.model_validate(incident.model_dump(mode="json", exclude_none=True)) == incident
