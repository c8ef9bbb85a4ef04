"""Repeated failures go to the calling LLM, and its override goes before the developer's judgement."""

import pytest
from agents.manager_house import House

from counterpoint.manager.task_limits import TaskLimits
from counterpoint.proto.tasks import TaskDelegated, TaskEscalated, TaskResumed

DNS = "socket.gaierror: cannot resolve ipa-1.corp.example at 2026-03-02 03:00:01"
DNS_ELSEWHERE = "socket.gaierror: cannot resolve ipa-7.corp.example at 2026-03-04 04:10:59"


def failed_twice(first: str = DNS, second: str = DNS) -> House:
    house = House()
    house.route(error_message=DNS)
    for error in (first, second):
        house.developer("proposed")
        house.outcome("failed", error_message=error)
    return house


@pytest.mark.parametrize("second", [DNS, DNS_ELSEWHERE], ids=["byte-equal", "another host and time"])
def test_the_same_error_twice_escalates_with_everything_tried(second: str) -> None:
    house = failed_twice(DNS, second)
    escalated = house.last(TaskEscalated)
    assert (escalated.to, escalated.code) == ("calling_llm", "repeated_failure")
    assert [need.kind for need in escalated.needs] == ["decision"]
    assert "counterpoint override t1" in escalated.needs[0].how
    tried = escalated.findings.similar_attempts
    assert [(one.tried, one.outcome) for one in tried] == [
        ("text of attempt 1", "failed"),
        ("text of attempt 2", "failed"),
    ]
    task = house.task()
    assert (task.state, task.waiting_for, task.proposal) == ("input_required", "override", None)


def test_another_error_is_another_attempt() -> None:
    house = failed_twice(DNS, "PermissionError: not allowed to write the zone")
    assert house.names().count("TaskEscalated") == 0
    assert house.last(TaskDelegated).attempt == 3


def test_a_failure_without_an_error_counts_as_the_failure_the_task_is_about() -> None:
    house = House()
    house.route(error_message=DNS)
    for error in (None, DNS):
        house.developer("proposed")
        house.outcome("partial", error_message=error)
    assert house.last(TaskEscalated).code == "repeated_failure"


def test_an_override_is_followed_in_the_next_attempt() -> None:
    house = failed_twice()
    house.override(instruction="check the firewall first", constraints=("no restart",), confidence_override=True)
    delegated = house.last(TaskDelegated)
    assert (delegated.attempt, delegated.purpose) == (3, "work")
    assert delegated.override is not None
    assert (delegated.override.by, delegated.override.by_kind) == ("claude", "agent")
    assert delegated.override.instruction == "check the firewall first"
    assert delegated.override.action_id is not None
    assert "claude (agent)" in house.last(TaskResumed).reason
    assert house.task().override == delegated.override
    assert house.task().resumes == 0
    house.developer("proposed")
    assert house.attempt(3).override_by == "claude"


@pytest.mark.parametrize("asked", [False, True])
def test_the_manager_records_the_request_behind_a_confidence(asked: bool) -> None:
    """Whether the gate applies is for the developer to say, who waives it for some kinds of principals."""
    house = failed_twice()
    house.override(confidence_override=asked)
    (reasoning,) = (each.reasoning for each in house.line() if "override by claude" in each.reasoning)
    assert ("at any confidence" in reasoning, "gate" in reasoning) == (asked, False)


def test_an_override_that_failed_is_spent() -> None:
    house = failed_twice()
    house.override()
    house.developer("proposed")
    house.outcome("failed", error_message="PermissionError: not allowed")
    assert house.last(TaskDelegated).override is None


def test_an_override_outlasts_a_stop() -> None:
    house = House()
    house.route()
    house.developer("stopped", 0.3, code="low_confidence")
    house.override(instruction="go by the vendor's guide")
    house.developer("stopped", 0.3, code="low_confidence")
    house.ingest()
    house.wait(5)
    house.developer("stopped", 0.9)
    delegated = house.last(TaskDelegated)
    assert delegated.override is not None
    assert delegated.override.instruction == "go by the vendor's guide"


def test_take_over_while_the_developer_works() -> None:
    house = House()
    house.route()
    under_way = house.work_under_way()[-1]
    house.override(instruction="take over and load the file by hand")
    assert house.last(TaskDelegated).attempt == 2
    assert house.developer("proposed", given=under_way) == "stale"
    house.developer("proposed")
    assert (house.task().attempt, house.task().waiting_for) == (2, "outcome")


def test_an_override_instead_of_an_outcome_keeps_the_proposal_open_to_its_outcome() -> None:
    house = House()
    house.route()
    house.developer("proposed")
    house.override()
    house.outcome("succeeded", attempt=1)
    assert (house.task().state, house.task().resolution, house.task().attempt) == ("completed", "resolved", 1)
    assert not house.timers


def test_repeated_failure_under_an_override_asks_again() -> None:
    house = failed_twice()
    house.override()
    house.developer("proposed")
    house.outcome("failed", error_message=DNS_ELSEWHERE)
    assert house.names().count("TaskEscalated") == 2
    assert len(house.last(TaskEscalated).findings.similar_attempts) == 3


def test_after_the_last_attempt_a_human_has_to_decide() -> None:
    house = House(bounds=TaskLimits(max_attempts=3))
    house.route()
    for n in range(3):
        house.developer("proposed")
        house.outcome("failed", error_message=("disk is full", "no such table", "connection refused")[n])
    escalated = house.last(TaskEscalated)
    assert (escalated.to, escalated.code) == ("human", "repeated_failure")
    assert house.names().count("TaskEscalated") == 1
    assert house.task().state == "input_required"
