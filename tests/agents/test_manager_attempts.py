"""The outcome of every attempt is stored once, by its best evidence, and decides how the task goes on."""

from decimal import Decimal
from typing import Any

import pytest
from agents.manager_house import House
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.manager.attempts import count_same_failures, with_attempts
from counterpoint.manager.gateway.ledger import SpendRecord
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.findings import Findings, SimilarAttempt
from counterpoint.proto.tasks import TaskCompleted, TaskDelegated


def proposed(**asked: Any) -> House:
    house = House()
    house.route(**asked)
    house.developer("proposed")
    return house


def test_a_success_completes_the_task_and_is_kept_on_the_attempt() -> None:
    house = proposed()
    house.wait(90)
    house.outcome("succeeded", note="the firewall blocked port 53")
    kept = house.attempt(1)
    assert (kept.outcome, kept.note, kept.evidence, kept.by) == (
        "succeeded",
        "the firewall blocked port 53",
        "reported",
        "ops",
    )
    assert kept.decided_at == house.now
    completed = house.last(TaskCompleted)
    assert (completed.resolution, completed.result) == ("resolved", "text of attempt 1")
    assert (completed.cost_usd, completed.tokens, completed.duration_ms) == (0, 0, 90_000)
    assert completed.findings.similar_attempts[0].outcome == "succeeded"
    assert house.task().outcomes["1"]["outcome"] == "succeeded"


@pytest.mark.parametrize("end", ["succeeded", "answered", "none"])
def test_a_completed_task_states_the_cost_of_its_model_calls(end: str) -> None:
    house = House()
    house.route()
    spend = SpendRecord(task_id="t1", spent_usd=Decimal("0.0301"), spent_tokens=812, calls=3, unpriced=1)
    house.put("spend", "t1", spend.model_dump(mode="json"))
    house.developer("answered" if end == "answered" else "proposed")
    if end == "succeeded":
        house.outcome("succeeded")
    elif end == "none":
        house.wait(house.bounds.outcome_wait_s + 1)
    completed = house.last(TaskCompleted)
    assert (completed.cost_usd, completed.tokens, completed.unpriced_calls) == (Decimal("0.0301"), 812, 1)


def test_a_failure_is_kept_and_the_next_attempt_delegated() -> None:
    house = proposed()
    house.outcome("failed", error_message="timeout after 30 s", note="as before")
    kept = house.attempt(1)
    assert (kept.outcome, kept.outcome_error, kept.tried) == ("failed", "timeout after 30 s", "text of attempt 1")
    assert house.last(TaskDelegated).attempt == 2
    assert house.task().proposal is None


def test_the_same_outcome_again_has_no_second_effect() -> None:
    house = proposed()
    house.outcome("failed", error_message="e")
    seen, version = len(house.log), house.version()
    for attempt in (1, None):
        house.outcome("failed", attempt=attempt, error_message="e")
    assert (house.names(seen), house.version()) == ([], version)
    assert [action.kind for action in house.line()][-4:] == ["outcome", "late", "outcome", "late"]


@pytest.mark.parametrize("ended", [False, True])
def test_a_different_outcome_of_the_same_attempt_is_a_conflict(ended: bool) -> None:
    house = proposed()
    house.outcome("succeeded" if ended else "failed")
    kept, seen = house.attempt(1), len(house.log)
    house.outcome("failed" if ended else "succeeded", attempt=1)
    assert house.attempt(1) == kept
    assert house.names(seen) == []
    assert house.log[-1].message.decision == "conflict on attempt 1"  # type: ignore[attr-defined]


def test_a_reported_outcome_replaces_an_observed_one_after_the_end() -> None:
    house = proposed()
    house.outcome("succeeded", evidence="observed", by="lineage")
    ended, seen = house.task(), len(house.log)
    assert (ended.state, house.attempt(1).evidence) == ("completed", "observed")
    house.wait(3600)
    house.outcome("succeeded", note="opened port 53")
    kept = house.attempt(1)
    assert (kept.evidence, kept.note, kept.by) == ("reported", "opened port 53", "ops")
    assert house.names(seen) == []
    assert house.task().outcomes["1"]["note"] == "opened port 53"
    assert (house.task().state, house.task().ended_at) == (ended.state, ended.ended_at)
    house.outcome("failed", evidence="observed", by="lineage")
    assert house.attempt(1) == kept


def test_a_reported_failure_after_an_observed_success_changes_the_attempt_not_the_state() -> None:
    house = proposed()
    house.outcome("succeeded", evidence="observed", by="lineage")
    house.outcome("failed", attempt=1, error_message="it came back")
    assert (house.task().state, house.attempt(1).outcome) == ("completed", "failed")


def test_a_correction_while_the_next_attempt_is_worked_on_does_not_disturb_it() -> None:
    house = proposed()
    house.outcome("failed", evidence="observed", by="lineage", error_message="e")
    under_way, version = house.work_under_way()[-1], house.version()
    house.outcome("failed", attempt=1, error_message="e", note="the resolver was down")
    assert (house.attempt(1).note, house.version()) == ("the resolver was down", version)
    assert house.developer("proposed", given=under_way) == "done"
    assert house.task().outcomes["1"]["note"] == "the resolver was down"


def test_a_correction_to_success_completes_the_task() -> None:
    house = proposed()
    house.outcome("failed", evidence="observed", by="lineage")
    under_way = house.work_under_way()[-1]
    house.outcome("succeeded", attempt=1)
    assert (house.task().state, house.task().resolution) == ("completed", "resolved")
    assert house.developer("proposed", given=under_way) == "stale"


def test_an_escalated_task_takes_an_outcome_as_the_reporters_own_attempt() -> None:
    house = House()
    house.route()
    house.developer("stopped", 0.3, code="low_confidence")
    house.outcome("succeeded", note="restarted the resolver")
    own = house.attempt(1)
    assert (own.tried, own.outcome, own.by, own.confidence) == ("restarted the resolver", "succeeded", "ops", None)
    assert [each.store for each in own.sources] == ["actions"], "it rests on the report, not on the stop before it"
    completed = house.last(TaskCompleted)
    assert (completed.resolution, completed.result) == ("resolved", "restarted the resolver")


@pytest.mark.parametrize("named", [1, 2])
def test_the_reporters_own_attempt_may_be_counted_with_or_without_the_stop(named: int) -> None:
    house = House()
    house.route()
    house.developer("stopped", 0.3, code="low_confidence")
    house.outcome("succeeded", attempt=named, note="restarted it")
    assert (house.task().state, house.attempt(named).tried) == ("completed", "restarted it")


def test_the_reporters_own_failure_is_learned_and_the_task_waits_on() -> None:
    house = House()
    house.route()
    house.developer("stopped", 0.3, code="low_confidence")
    house.outcome("failed", note="restarted the resolver")
    assert (house.attempt(1).outcome, house.task().waiting_for) == ("failed", "documents")
    house.ingest()
    house.wait(5)
    house.developer("stopped", 0.9)
    assert house.last(TaskDelegated).attempt == 2


def test_a_person_may_report_the_fix_after_an_observed_recovery() -> None:
    house = House()
    house.route()
    house.developer("stopped", 0.3, code="low_confidence")
    house.outcome("succeeded", evidence="observed", by="lineage")
    house.outcome("succeeded", note="opened port 53")
    assert (house.attempt(1).tried, house.attempt(1).by) == ("opened port 53", "ops")


def test_a_fixed_run_closes_the_task_while_the_developer_works() -> None:
    house = proposed()
    house.outcome("failed")
    under_way = house.work_under_way()[-1]
    house.outcome("succeeded", evidence="observed", by="lineage")
    assert house.task().state == "completed"
    assert house.developer("proposed", given=under_way) == "stale"


def test_an_outcome_of_an_unknown_attempt_is_late() -> None:
    house = proposed()
    house.outcome("succeeded", attempt=7)
    assert (house.task().state, house.line()[-1].kind) == ("input_required", "late")


def test_a_proposal_the_developer_did_not_record_is_recorded_with_its_outcome() -> None:
    house = proposed()
    (attempt,) = house.items("attempts")
    house.drop("attempts", attempt.id)
    house.outcome("failed")
    assert (house.attempt(1).tried, house.attempt(1).by) == ("text of attempt 1", "ops")


def test_an_outcome_after_an_unanswered_completion_is_learned() -> None:
    house = proposed()
    house.wait(24 * 3600)
    ended = house.task()
    house.outcome("failed", error_message="it was something else")
    assert (house.attempt(1).outcome, house.task().state) == ("failed", ended.state)


def test_the_freeipa_story_is_remembered_attempt_by_attempt() -> None:
    house = House()
    house.route(error_message="DNSError: no answer from 10.0.0.1")
    for error in ("DNSError: no answer from 10.0.0.1", "DNSError: no answer from 10.0.0.2"):
        house.developer("proposed")
        house.outcome("failed", error_message=error)
    house.override(instruction="check the firewall first", by="claude")
    house.developer("proposed", text="check the firewall first")
    house.outcome("succeeded", evidence="observed", by="lineage")
    house.outcome("succeeded", note="port 53 was closed")
    story = [(a.outcome, a.evidence, a.override_by, a.by) for a in house.attempts()]
    assert story == [
        ("failed", "reported", None, "ops"),
        ("failed", "reported", None, "ops"),
        ("succeeded", "reported", "claude", "ops"),
    ]
    assert house.task().resolution == "resolved"
    assert [action.kind for action in house.line() if action.agent == "manager"] == [
        "plan",
        "propose",
        "learn",
        "plan",
        "propose",
        "learn",
        "escalate",
        "resume",
        "propose",
        "learn",
        "complete",
        "learn",
    ]


def attempt_of(number: int, outcome: str, error: str | None) -> Attempt:
    return Attempt(
        attempt_id=f"a{number}",
        task_id="t1",
        project="orders",
        attempt=number,
        description="d",
        tried="x",
        outcome=outcome,
        outcome_error=error,
        by="ops",
        at=House().now,
    )


@given(st.lists(st.tuples(st.sampled_from(["failed", "partial", "succeeded", "unknown"]), st.sampled_from("abc"))))
def test_same_failures_counts_failures_with_the_same_error_alone(story: list[tuple[str, str]]) -> None:
    tried = [attempt_of(n, outcome, f"Error: {error}") for n, (outcome, error) in enumerate(story, 1)]
    last = attempt_of(99, "failed", "Error: a")
    expected = sum(outcome in ("failed", "partial") and error == "a" for outcome, error in story)
    assert count_same_failures([*tried, last], last) == expected + 1


@given(st.integers(0, 5), st.integers(0, 5))
def test_findings_name_each_attempt_once_and_those_of_the_task_first(own: int, others: int) -> None:
    tried = [attempt_of(n, "failed", None) for n in range(own)]
    known = Findings(
        similar_attempts=tuple(
            SimilarAttempt(id=f"a{n}", when=House().now, tried="x", outcome="unknown", by="ops", score=0.5)
            for n in range(others)
        )
    )
    tried = [one.model_copy(update={"summary": "Page: Look at x"}) for one in tried]
    shown = with_attempts(known, tried).similar_attempts
    assert [one.summary for one in shown[:own]] == ["Page: Look at x"] * own
    ids = [one.id for one in shown]
    assert ids == [f"a{n}" for n in range(max(own, others))]
