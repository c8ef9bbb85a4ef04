"""Transitions are events, illegal ones are refused, and no task waits without a timer, a need or work under way."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from agents.manager_house import OBJECTION, START, House

from counterpoint.manager.task_limits import TaskLimits
from counterpoint.manager.workflow import LIVE
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.errors import Permanent, Transient
from counterpoint.proto.interventions import CancelTask
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import (
    Budget,
    JobRef,
    Target,
    TaskCancelled,
    TaskCompleted,
    TaskDelegated,
    TaskFailed,
    TaskProposed,
    TaskWorked,
)


def at(state: str, **asked: Any) -> House:
    """A house with a task in some state."""
    house = House()
    house.route(**asked)
    match state:
        case "working":
            pass
        case "outcome":
            house.developer("proposed")
        case "documents":
            house.developer("stopped", 0.3, code="low_confidence")
        case "override":
            house.developer("stopped", 0.3, code="no_provider")
        case "completed":
            house.developer("answered")
        case "cancelled":
            house.cancel()
        case "failed":
            house.wait(3600)
    return house


LIVE_STATES = [place.waiting_for or place.state for place in LIVE]


def test_a_routed_task_is_recorded_and_delegated_as_it_was_asked() -> None:
    asked = {
        "kind": "develop",
        "description": "write the zone",
        "title": "DNS",
        "error_message": "Error: x",
        "systems": ("freeipa",),
        "target": Target(job=JobRef(namespace="airflow", name="orders"), paths=("dags/orders.py",)),
        "context": {"dag": {"owner": "data"}},
        "priority": "high",
        "budget": Budget(usd=Decimal("1.50"), tokens=10),
        "autonomy": "milestone",
        "deadline": START + timedelta(hours=1),
        "source_ref": "https://tracker.example/7",
    }
    house = House()
    house.route(**asked)
    task, delegated = house.task(), house.last(TaskDelegated)
    assert (task.state, task.attempt, task.lane, task.submitted_by) == ("working", 1, "investigate", "ops")
    assert task.error_signature == signature("Error: x").digest
    assert (delegated.attempt, delegated.purpose, delegated.session_id) == (1, "work", task.session_id)
    assert {name: getattr(delegated.task, name) for name in asked} == asked
    assert {name: getattr(task, name) for name in asked} == asked
    assert [timer.due_at for timer in house.timers] == [START + timedelta(hours=1)]


def test_a_task_is_a_session_of_its_own_or_continues_the_one_named() -> None:
    house = House()
    house.route("t1", session_id="s1", title="first")
    house.route("t2", session_id="s1", title="second", kind="question")
    house.route("t3")
    session = house.kept("sessions")["s1"]
    assert session["task_ids"] == ["t1", "t2"]
    assert session["summary"] == "troubleshoot: first\nquestion: second"
    own = house.task("t3").session_id
    assert own not in (None, "s1")
    assert house.kept("sessions")[str(own)]["task_ids"] == ["t3"]


def test_a_second_routing_has_no_effect() -> None:
    house = at("outcome")
    version = house.version()
    assert house.route() == "stale"
    house.route(version=None)
    assert (house.version(), house.line()[-1].kind) == (version, "late")


def test_redelivery_makes_the_same_effects_once() -> None:
    house = House()
    house.route()
    message = CancelTask(task_id="t1", by="ops", by_kind="person")
    assert house.deliver(message, message_id="m1") == "done"
    sent = len(house.log)
    assert house.deliver(message, message_id="m1") == "replayed"
    assert len(house.log) == sent


@pytest.mark.parametrize(
    ("kind", "resolution"), [("question", "answered"), ("plan", "planned"), ("troubleshoot", "answered")]
)
def test_an_answer_completes_the_task(kind: str, resolution: str) -> None:
    house = House()
    house.route(kind=kind)
    house.wait(2)
    house.developer("answered", text="see the runbook")
    completed = house.last(TaskCompleted)
    assert (completed.resolution, completed.result, completed.duration_ms) == (resolution, "see the runbook", 2000)
    assert (house.task().state, house.task().result, house.task().ended_at) == (
        "completed",
        "see the runbook",
        house.now,
    )


def test_a_question_without_evidence_escalates() -> None:
    house = House()
    house.route(kind="question")
    house.developer("stopped", 0.0, code="insufficient_evidence")
    assert house.task().escalation is not None
    assert house.task().waiting_for == "documents"


def test_a_proposal_without_an_outcome_completes_as_proposed() -> None:
    house = at("outcome")
    assert house.last(TaskProposed).artifact_sha256 == house.task().artifact_sha256
    assert house.wait(24 * 3600 - 1) == 0
    assert house.wait(2) == 1
    assert (house.last(TaskCompleted).resolution, house.last(TaskCompleted).result) == (
        "proposed",
        "text of attempt 1",
    )


def test_the_wait_for_an_outcome_is_a_setting() -> None:
    house = House(bounds=TaskLimits(outcome_wait_s=10))
    house.route()
    house.developer("proposed")
    assert house.wait(10) == 1


def test_each_proposal_has_its_own_wait() -> None:
    house = at("outcome")
    house.wait(23 * 3600)
    house.outcome("failed", error_message="e")
    house.developer("proposed")
    house.wait(23 * 3600)
    assert house.task().state == "input_required"


@pytest.mark.parametrize("state", LIVE_STATES)
def test_a_deadline_that_passes_fails_the_task(state: str) -> None:
    house = at(state, deadline=START + timedelta(hours=1))
    house.wait(3601)
    failed = house.last(TaskFailed)
    assert (failed.code, house.task().state) == ("deadline", "failed")
    assert failed.attempts == len(house.attempts())
    assert not house.timers


@pytest.mark.parametrize("state", LIVE_STATES)
def test_a_task_is_cancelled_in_any_state(state: str) -> None:
    house = at(state, deadline=START + timedelta(hours=1))
    under_way = house.work_under_way()
    house.ingest()
    house.cancel()
    cancelled = house.last(TaskCancelled)
    assert (cancelled.by, cancelled.reason, house.task().state) == ("ops", "not needed", "cancelled")
    assert house.timers == []
    if under_way:
        assert house.developer("proposed", given=under_way[-1]) == "stale"


def test_a_cancellation_that_overtakes_the_routing_is_tried_again() -> None:
    with pytest.raises(Transient) as raised:
        House().cancel()
    assert raised.value.retry_after_s is not None
    assert raised.value.retry_after_s < 2


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
def test_an_event_for_an_ended_task_is_late_and_without_effect(state: str) -> None:
    house = at(state, deadline=START + timedelta(hours=1))
    task, seen = house.task(), len(house.log)
    worked = TaskWorked(task_id="t1", attempt=1, outcome="proposed", text="x", action_id="a1")
    for event in (house.cancel, house.override, lambda: house.outcome("succeeded"), lambda: house.deliver(worked)):
        event()
        assert house.line()[-1].kind == "late"
    assert (house.task(), len(house.log)) == (task, seen)


def test_a_conflict_is_decided_anew() -> None:
    house = at("outcome")
    house.before_commit = house.cancel
    house.outcome("succeeded")
    assert (house.task().state, house.attempt(1).outcome) == ("cancelled", "unknown")
    assert house.line()[-1].kind == "late"


@pytest.mark.parametrize(
    "worked",
    [
        TaskWorked(task_id="t1", attempt=1, outcome="proposed", action_id="a1"),
        TaskWorked(task_id="t1", attempt=1, outcome="wondered", action_id="a1"),
    ],
    ids=["no text", "unknown outcome"],
)
def test_work_that_cannot_be_understood_is_refused_for_good(worked: TaskWorked) -> None:
    with pytest.raises(Permanent):
        at("working").deliver(worked)


def test_work_of_another_attempt_is_late() -> None:
    house = at("working")
    house.deliver(TaskWorked(task_id="t1", attempt=4, outcome="answered", text="x", action_id="a1"))
    assert (house.task().state, house.line()[-1].kind) == ("working", "late")


def test_every_step_is_an_action_and_a_decision_of_the_manager() -> None:
    house = at("outcome")
    decisions = [sent.message for sent in house.log if isinstance(sent.message, DecisionMade)]
    assert [decision.decision for decision in decisions] == ["delegate attempt 1", "propose attempt 1"]
    assert {decision.agent for decision in decisions} == {"manager"}
    assert {decision.session_id for decision in decisions} == {house.task().session_id}
    made = [action for action in house.line() if action.agent == "manager"]
    assert [action.decision_id for action in made] == [decision.decision_id for decision in decisions]
    assert "0.70 (medium)" in decisions[1].reasoning
    assert "text of attempt" not in "".join(decision.reasoning + decision.decision for decision in decisions)


def test_returned_work_is_done_again_once() -> None:
    house = at("working")
    house.developer("proposed", objections=(OBJECTION,))
    again = house.last(TaskDelegated)
    assert (again.attempt, again.purpose, again.objections) == (1, "work", (OBJECTION,))
    assert (house.task().state, house.attempts(), house.line()[-1].kind) == ("working", [], "plan")
    assert OBJECTION.reason in house.line()[-1].reasoning
    house.developer("proposed", objections=(OBJECTION,))
    assert (house.task().waiting_for, house.task().objections) == ("outcome", (OBJECTION,))
    assert house.names().count("TaskDelegated") == 2
    house.outcome("failed", error_message="e")
    assert house.last(TaskDelegated).objections == ()


def test_a_reassessment_is_not_returned() -> None:
    house = at("documents")
    house.ingest()
    house.wait(6)
    house.developer("answered", objections=(OBJECTION,))
    assert house.task().state == "completed"
