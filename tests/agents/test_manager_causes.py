"""Outcomes that tell the truth: what fixed it is learned, and what did not is credited with nothing."""

from typing import Any

import pytest
from agents.manager_house import House

from counterpoint.manager.task_limits import TaskLimits
from counterpoint.proto.tasks import Task, TaskCompleted, TaskEscalated, TaskResumed

UNLOCKED = "none of the runbook: the user was locked, unlocked it"


def proposed(**asked: Any) -> House:
    house = House()
    house.route(**asked)
    house.developer("proposed", text="Look at the export job")
    return house


def escalated(**asked: Any) -> House:
    house = House()
    house.route(**({"error_message": "Error: user is locked"} | asked))
    house.developer("stopped", 0.3, code="low_confidence")
    return house


def acts(house: House) -> list[tuple[str, str, str]]:
    return [(one.tried, one.outcome, one.evidence) for one in house.attempts()]


def test_something_else_is_the_lesson_and_the_proposal_is_not_credited() -> None:
    house = proposed()
    house.outcome("succeeded", fixed_by="something_else", note=UNLOCKED)
    assert acts(house) == [
        ("Look at the export job", "superseded", "reported"),
        (UNLOCKED, "succeeded", "reported"),
    ]
    proposal, lesson = house.attempts()
    assert (proposal.fixed_by, lesson.fixed_by) == ("something_else", None)
    assert (lesson.by, lesson.by_kind, lesson.confidence) == ("ops", "person", None)
    assert (house.last(TaskCompleted).resolution, house.last(TaskCompleted).result) == ("resolved", UNLOCKED)
    assert house.task().needs == ()


def test_something_else_without_a_note_credits_nothing_and_asks_what_it_was() -> None:
    house = proposed()
    house.outcome("succeeded", fixed_by="something_else")
    assert acts(house) == [("Look at the export job", "superseded", "reported")]
    (need,) = house.task().needs
    assert "--by something-else --note" in need.how
    house.outcome("succeeded", fixed_by="something_else", note=UNLOCKED)
    assert acts(house)[1:] == [(UNLOCKED, "succeeded", "reported")]
    assert house.task().needs == ()


def test_nothing_fixed_it_credits_nothing_and_asks_nothing() -> None:
    house = proposed()
    house.outcome("succeeded", fixed_by="nothing", note="it flaps")
    assert acts(house) == [("Look at the export job", "superseded", "reported")]
    assert (house.task().state, house.task().result, house.task().needs) == ("completed", "it flaps", ())


def test_the_same_report_of_another_cause_has_no_second_effect() -> None:
    house = proposed()
    for _ in range(2):
        house.outcome("succeeded", fixed_by="something_else", note=UNLOCKED)
    assert len(house.attempts()) == 2
    assert house.line()[-1].kind == "late"


def test_a_success_of_the_proposal_is_its_own() -> None:
    house = proposed()
    house.outcome("succeeded", fixed_by="proposal")
    assert acts(house) == [("Look at the export job", "succeeded", "reported")]


def test_a_success_without_a_cause_may_be_said_to_be_due_to_something_else_later() -> None:
    house = proposed()
    house.outcome("succeeded", note=UNLOCKED)
    assert acts(house) == [("Look at the export job", "succeeded", "reported")]
    house.outcome("succeeded", fixed_by="something_else", note=UNLOCKED)
    assert acts(house) == [("Look at the export job", "superseded", "reported"), (UNLOCKED, "succeeded", "reported")]


def test_a_cause_that_was_said_is_not_taken_back_by_another_report() -> None:
    house = proposed()
    house.outcome("succeeded", fixed_by="proposal")
    house.outcome("succeeded", fixed_by="something_else", note=UNLOCKED)
    assert acts(house) == [("Look at the export job", "succeeded", "reported")]
    assert house.log[-1].message.decision == "conflict on attempt 1"  # type: ignore[attr-defined]


def test_an_observed_recovery_is_weak_evidence_and_asks_once_what_was_changed() -> None:
    house = proposed()
    changed = ("code version: 4f1c, then 90ab",)
    house.outcome("succeeded", evidence="observed", by="lineage", changed=changed)
    (proposal,) = house.attempts()
    assert (proposal.outcome, proposal.evidence, proposal.changed) == ("succeeded", "observed", changed)
    assert house.task().result == "recovered (observed by lineage)\ncode version: 4f1c, then 90ab"
    (need,) = house.task().needs
    assert "what was changed" in need.what
    assert need.how in house.last(TaskCompleted).findings.next_steps[0]
    house.outcome("succeeded", fixed_by="something_else", note=UNLOCKED)
    assert acts(house) == [
        ("Look at the export job", "superseded", "reported"),
        (UNLOCKED, "succeeded", "reported"),
    ]
    assert house.task().needs == ()
    assert house.names().count("TaskCompleted") == 1


@pytest.mark.parametrize("tried_before", [False, True])
def test_an_observed_recovery_without_a_proposal_is_not_learned_as_a_fix(tried_before: bool) -> None:
    house = escalated()
    if tried_before:
        house.outcome("failed", note="restarted it")
    known = acts(house)
    house.outcome("succeeded", evidence="observed", by="lineage", note="Run 0193 of shop.load completed.")
    task: Task = house.task()
    assert acts(house) == known
    assert (task.state, task.resolution, task.result) == ("completed", "resolved", "Run 0193 of shop.load completed.")
    assert [need.kind for need in task.needs] == ["outcome"]
    house.outcome("succeeded", note="unlocked the user")
    assert acts(house) == [*known, ("unlocked the user", "succeeded", "reported")]
    assert house.task().needs == ()
    assert house.task().result == task.result
    house.outcome("succeeded", note="unlocked the user")
    assert len(house.attempts()) == len(known) + 1


def test_nothing_answers_the_question_after_a_recovery() -> None:
    house = escalated()
    house.outcome("succeeded", evidence="observed", by="lineage")
    house.outcome("succeeded", fixed_by="nothing")
    assert (acts(house), house.task().needs) == ([], ())


@pytest.mark.parametrize("notes", [("restarted it", "cleared the cache"), (None, None)])
def test_two_equal_failures_on_an_escalated_task_are_a_repeated_failure(notes: tuple[str | None, ...]) -> None:
    house = escalated()
    for note in notes:
        house.outcome("failed", note=note)
    again = house.last(TaskEscalated)
    assert (again.to, again.code) == ("calling_llm", "repeated_failure")
    assert [one.outcome for one in again.findings.similar_attempts] == ["failed", "failed"]
    task = house.task()
    assert (task.waiting_for, task.escalation and task.escalation.code) == ("override", "repeated_failure")
    assert "counterpoint override t1" in again.needs[0].how
    assert house.names()[-2:] == ["TaskResumed", "TaskEscalated"]
    assert "2 of 2 failures with this error" in house.last(TaskResumed).reason


def test_it_is_asked_once_for_repeated_failures_and_then_a_human() -> None:
    house = House(bounds=TaskLimits(max_attempts=4))
    house.route(error_message="Error: user is locked")
    house.developer("stopped", 0.3, code="low_confidence")
    asked = []
    for number in range(6):
        house.outcome("failed", note=f"try {number}")
        escalation = house.task().escalation
        assert escalation
        asked.append((escalation.to, escalation.code))
    repeated = ("calling_llm", "repeated_failure")
    human = ("human", "repeated_failure")
    assert asked == [("calling_llm", "low_confidence"), repeated, repeated, human, human, human]
    assert house.names().count("TaskEscalated") == 3


def test_two_different_failures_on_an_escalated_task_are_none() -> None:
    house = escalated()
    house.outcome("failed", error_message="Error: user is locked")
    house.outcome("failed", error_message="PermissionError: no such role")
    assert house.names().count("TaskEscalated") == 1


def test_the_reason_and_the_constraints_of_an_override_stay_with_its_attempt() -> None:
    house = escalated()
    house.override(instruction="Reboot node 3", reasoning="it swaps", constraints=("Drain the queue first",))
    house.developer("proposed", text="Reboot node 3")
    (attempt,) = house.items("attempts")
    house.drop("attempts", attempt.id)
    house.outcome("succeeded")
    (kept,) = house.attempts()
    assert (kept.reason, kept.constraints) == ("it swaps", ("Drain the queue first",))
    (shown,) = house.last(TaskCompleted).findings.similar_attempts
    assert (shown.reason, shown.constraints) == ("it swaps", ("Drain the queue first",))
