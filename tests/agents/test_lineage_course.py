"""The course of an incident: what holds it back, what closes it, what its task says."""

from datetime import timedelta
from typing import Any

import pytest
from agents.incident_simulation import PATIENT, TUESDAY, IncidentSimulation, fails, run_event
from agents.lineage_data import orders

from counterpoint.lineage.incidents.incident import FAILURES_LIMIT, IncidentLimits, IncidentState
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import SubmitTask


def test_the_cap_holds_back_says_so_and_lets_the_next_failure_in_when_the_hour_is_over() -> None:
    simulation = IncidentSimulation(IncidentLimits(incidents_per_hour=2, retry_grace_s=0))
    simulation.take(run_event("FAIL", at, job=f"j{at}", run_id=f"r{at}", error="disk full") for at in range(4))
    assert len(simulation.tasks) == 2
    assert len(simulation.ledger.capped) == 2
    assert [incident.state for incident in simulation.incidents.values()].count(IncidentState.CAPPED) == 2
    simulation.take([run_event("FAIL", 30, job="j3", run_id="r9", error="disk full")])
    assert len(simulation.tasks) == 2
    simulation.now += timedelta(minutes=61)
    simulation.take([run_event("FAIL", 3700, job="j3", run_id="r10", error="disk full")])
    (opened,) = [incident for incident in simulation.incidents.values() if incident.job == "job:ns/j3"]
    assert (opened.state, opened.count) == (IncidentState.OPEN, 3)


def test_a_task_tells_how_many_failures_the_cap_held_back() -> None:
    simulation = IncidentSimulation(IncidentLimits(incidents_per_hour=1, retry_grace_s=0))
    simulation.take(run_event("FAIL", at, job=f"j{at}", run_id=f"r{at}", error="disk full") for at in range(3))
    simulation.ledger = simulation.ledger.model_copy(update={"opened": ()})
    simulation.take([run_event("FAIL", 9, job="j9", run_id="r9", error="disk full")])
    assert simulation.tasks[-1].context is not None
    assert simulation.tasks[-1].context["capped_last_hour"] == len(simulation.ledger.capped) == 3


def test_a_capped_incident_that_recovers_is_closed() -> None:
    simulation = IncidentSimulation(IncidentLimits(incidents_per_hour=0, retry_grace_s=0)).take(
        [run_event("FAIL", 0), run_event("COMPLETE", 9)]
    )
    assert simulation.only.state is IncidentState.CLOSED


@pytest.mark.parametrize(
    ("success", "closes"),
    [
        (run_event("COMPLETE", 9), True),
        (run_event("COMPLETE", -9), False),
        (run_event("COMPLETE", 9, job="b", run_id="r-1b"), False),
        (run_event("COMPLETE", 9, run_id="r-2", nominal="2026-11-19T00:00:00Z"), True),
        (run_event("COMPLETE", 9, run_id="r-0", nominal="2026-11-17T00:00:00Z"), False),
        (run_event("ABORT", 9), False),
    ],
    ids=["retry", "earlier", "other job", "later date", "older date", "abort"],
)
def test_only_a_later_success_of_the_same_job_closes(success: dict[str, Any], closes: bool) -> None:
    simulation = IncidentSimulation().take([run_event("FAIL", 0, nominal="2026-11-18T00:00:00Z"), success])
    assert (simulation.only.state is IncidentState.CLOSED) is closes


def test_a_run_that_began_before_the_failure_does_not_close_it() -> None:
    slow = [run_event("START", -60, run_id="slow"), run_event("COMPLETE", 60, run_id="slow")]
    assert IncidentSimulation().take([slow[0], run_event("FAIL", 0), slow[1]]).only.state is IncidentState.OPEN
    fresh = [run_event("START", 30, run_id="fresh"), run_event("COMPLETE", 60, run_id="fresh")]
    assert IncidentSimulation().take([run_event("FAIL", 0), *fresh]).only.state is IncidentState.CLOSED


def test_another_part_of_a_mapped_task_closes_nothing() -> None:
    def part(kind: str, second: int, index: int, number: int = 1) -> dict[str, Any]:
        instance = {"try_number": number, "map_index": index}
        return run_event(kind, second, run_id=f"m{index}{number}", parent=("dag", "d"), taskInstance=instance)

    simulation = IncidentSimulation().take([part("FAIL", 0, 0), part("COMPLETE", 5, 1)])
    assert simulation.only.state is IncidentState.OPEN
    assert simulation.take([part("COMPLETE", 9, 0, number=2)]).only.state is IncidentState.CLOSED


def test_a_failure_after_the_incident_was_closed_is_a_new_one() -> None:
    simulation = IncidentSimulation().take(
        [run_event("FAIL", 0, error="x"), run_event("COMPLETE", 5), run_event("FAIL", 9, error="x")]
    )
    assert len(simulation.tasks) == 2


@pytest.mark.parametrize("whole_first", [False, True])
def test_the_incident_of_a_part_names_the_last_one_of_its_job_whichever_event_comes_first(whole_first: bool) -> None:
    simulation = IncidentSimulation(PATIENT)

    def fail(at: int) -> SubmitTask:
        part = run_event("FAIL", at, job="dag.a", run_id=f"r{at}", parent=("dag", f"d{at}"), error="disk full")
        whole = run_event("FAIL", at + 1, job="dag", run_id=f"d{at}", error="task_failure")
        return simulation.take([whole, part] if whole_first else [part, whole]).tasks[-1]

    first = fail(0)
    assert first.task_id is not None
    simulation.end_task(first.task_id, simulation.now)
    second = fail(9)
    assert second.context is not None
    assert second.context["previous_incident"] == first.task_id


def test_a_failure_received_after_the_end_of_the_task_counts_for_the_next_incident_only() -> None:
    """It is added to the incident when nobody has read yet that the task has ended."""
    simulation = IncidentSimulation()
    (first,) = simulation.take([run_event("FAIL", 0, run_id="r0", error="disk full")]).tasks
    assert first.task_id is not None
    ended_at = simulation.now
    simulation.now += timedelta(seconds=1)
    simulation.take([run_event("FAIL", 9, run_id="r9", error="disk full")])
    assert simulation.only.count == 2
    simulation.end_task(first.task_id, ended_at)
    assert simulation.incidents[first.task_id].count == 1
    second = simulation.tasks[-1].context
    assert second is not None
    assert second["previous_incident"] == first.task_id
    assert second["repeats"]["count"] == 2


def test_many_failures_are_counted_though_few_are_kept() -> None:
    simulation = IncidentSimulation().take(
        run_event("FAIL", at, run_id=f"r{at}", error="disk full") for at in range(FAILURES_LIMIT + 10)
    )
    assert len(simulation.tasks) == 1
    assert simulation.only.count == FAILURES_LIMIT + 10
    assert len(simulation.only.failures) == FAILURES_LIMIT


def test_a_failure_without_a_message_is_an_incident_too() -> None:
    assert IncidentSimulation().take([run_event("FAIL", 0)]).tasks[0].error_message == "failed without an error message"


def test_the_task_of_an_incident_has_job_run_error_and_context() -> None:
    simulation = IncidentSimulation(PATIENT).take([*orders("1_monday_ok"), *orders(TUESDAY)])
    (task,) = simulation.tasks
    assert task.kind == "troubleshoot"
    assert task.task_id == simulation.only.incident_id
    assert task.description == ("prod/orders_ingest.fetch_orders failed after 3 tries for 2026-11-17 00:00 UTC.")
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
    simulation = IncidentSimulation().take(
        [run_event("FAIL", 0, job="j" * 500, run_id="r" * 200, error="word " * 40_000)]
    )
    assert len(simulation.tasks) == 1
