"""Outcomes that tell the truth: what fixed it is learned, and what did not is credited with nothing."""

from typing import Any

import pytest
from agents.manager_house import START, House

from counterpoint.manager.attempts import ReporterAttempt, classify_outcome
from counterpoint.manager.task_history import TaskHistory
from counterpoint.manager.task_limits import TaskLimits
from counterpoint.proto.attempts import TaskOutcomeReported
from counterpoint.proto.findings import Citation, Findings, SimilarAttempt
from counterpoint.proto.ids import new_id
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


def findings_of(house: House) -> Findings:
    findings = house.task().findings
    assert findings is not None
    return findings


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


def test_something_else_without_a_note_credits_nothing_and_asks_for_the_cause() -> None:
    house = proposed()
    house.outcome("succeeded", fixed_by="something_else")
    assert acts(house) == [("Look at the export job", "superseded", "reported")]
    (need,) = house.task().needs
    assert "counterpoint" not in need.what
    assert "--by something-else --note" in need.how
    house.outcome("succeeded", fixed_by="something_else", note=UNLOCKED)
    assert acts(house)[1:] == [(UNLOCKED, "succeeded", "reported")]
    assert house.task().needs == ()


def test_fixed_by_nothing_credits_no_attempt_and_asks_no_question() -> None:
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


def test_the_end_of_an_alert_credits_nothing_and_asks_whether_it_was_the_proposal() -> None:
    house = proposed()
    house.outcome("succeeded", evidence="observed", by="alerts", fixed_by="nothing", note="alerts reports it as over")
    assert acts(house) == [("Look at the export job", "superseded", "observed")]
    (need,) = house.task().needs
    assert need.what == "it works again: report what was changed; if it was attempt 1, `--by proposal` without a note"
    house.outcome("succeeded", fixed_by="proposal")
    assert acts(house) == [("Look at the export job", "succeeded", "reported")]
    assert house.task().needs == ()


def test_a_success_of_the_proposal_is_its_own() -> None:
    house = proposed()
    house.outcome("succeeded", fixed_by="proposal")
    assert acts(house) == [("Look at the export job", "succeeded", "reported")]


@pytest.mark.parametrize("fixed_by", ["proposal", None])
def test_a_note_may_be_added_to_a_success_and_is_not_replaced(fixed_by: str | None) -> None:
    house = proposed()
    house.outcome("succeeded", fixed_by=fixed_by)
    house.outcome("succeeded", note="as it says")
    house.outcome("succeeded", note="in another way")
    (proposal,) = house.attempts()
    assert (proposal.tried, proposal.outcome, proposal.note) == ("Look at the export job", "succeeded", "as it says")
    assert proposal.fixed_by == fixed_by
    assert house.log[-1].message.decision == "conflict on attempt 1"  # type: ignore[attr-defined]


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


def test_an_observed_recovery_is_weak_evidence_and_asks_once_for_the_change() -> None:
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


def test_fixed_by_nothing_answers_the_question_after_a_recovery() -> None:
    house = escalated()
    house.outcome("succeeded", evidence="observed", by="lineage")
    assert findings_of(house).next_steps
    house.outcome("succeeded", fixed_by="something_else")
    assert house.task().needs
    house.outcome("succeeded", fixed_by="nothing")
    assert (acts(house), house.task().needs, findings_of(house).next_steps) == ([], (), ())


def test_an_answer_after_a_recovery_is_among_the_findings_and_the_question_is_not() -> None:
    house = proposed()
    house.outcome("succeeded", evidence="observed", by="lineage")
    house.outcome("succeeded", fixed_by="something_else", note=UNLOCKED)
    told = [(one.tried, one.outcome) for one in findings_of(house).similar_attempts]
    assert told == [("Look at the export job", "superseded"), (UNLOCKED, "succeeded")]
    assert findings_of(house).next_steps == ()


def offered() -> House:
    """A task that is escalated with a fix that may help."""
    house = House()
    house.route(error_message="Error: user is locked")
    steps = Findings(next_steps=("Unlock the user.",))
    house.developer("stopped", 0.3, code="low_confidence", text="Unlock the user.", findings=steps)
    return house


@pytest.mark.parametrize("cause", [None, "proposal"])
def test_a_success_of_an_offer_is_learned_as_the_act_that_was_offered(cause: str | None) -> None:
    house = offered()
    house.outcome("succeeded", fixed_by=cause)
    assert acts(house) == [("Unlock the user.", "succeeded", "reported")]
    assert (house.task().result, house.task().needs) == ("Unlock the user.", ())
    assert findings_of(house).next_steps == ()


def test_a_failure_of_an_offer_is_one_of_the_act_that_was_offered() -> None:
    house = offered()
    house.outcome("failed", error_message="still locked")
    assert acts(house) == [("Unlock the user.", "failed", "reported")]


def test_an_offer_of_an_earlier_act_is_that_act_and_not_the_text_around_it() -> None:
    house = offered()
    earlier = SimilarAttempt(id="a1", when=START, tried="unlock it", outcome="succeeded", by="dana", score=0.5)
    cited = Citation(store="attempts", id="a1", version=1, source_path="a1", start=0, end=6, quote="unlock")
    findings = Findings(similar_attempts=(earlier.model_copy(update={"id": "a0", "tried": "no"}), earlier))
    findings = findings.model_copy(update={"citations": (cited,)})
    task = house.task().model_copy(update={"findings": findings})
    report = {"task_id": "t1", "outcome": "succeeded", "by": "ops", "by_kind": "person", "action_id": new_id()}
    history = TaskHistory(task, house.one("tasks", "t1"), {})
    verdict = classify_outcome(history, TaskOutcomeReported.model_validate(report), START)
    assert isinstance(verdict, ReporterAttempt)
    assert verdict.attempt.tried == "unlock it"


def test_a_note_about_an_escalated_task_with_an_offer_is_the_act_of_the_reporter() -> None:
    house = offered()
    house.outcome("succeeded", note=UNLOCKED)
    assert acts(house) == [(UNLOCKED, "succeeded", "reported")]


def test_a_success_of_an_escalated_task_without_an_act_credits_nothing_and_asks_for_it() -> None:
    house = escalated()
    house.outcome("succeeded")
    assert (acts(house), house.task().state) == ([], "completed")
    assert [need.kind for need in house.task().needs] == ["outcome"]
    house.outcome("succeeded", note=UNLOCKED)
    assert (acts(house), house.task().needs) == ([(UNLOCKED, "succeeded", "reported")], ())


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


def test_repeated_failures_are_escalated_once_to_the_llm_and_then_to_a_human() -> None:
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


def test_two_different_failures_are_not_a_repeated_failure() -> None:
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


def test_a_success_of_an_attempt_that_was_never_proposed_is_told_from_a_credited_one() -> None:
    house = proposed(error_message="Error: user is locked")
    house.outcome("failed")
    house.developer("stopped", 0.3, code="repeated_failure")
    house.outcome("succeeded", attempt=2)
    task = house.task()
    assert (task.state, task.resolution, list(task.outcomes)) == ("completed", "resolved", ["1"])
    assert task.result == "recovered (reported by ops); attempt 2 was never proposed, so none is credited"
    assert [need.kind for need in task.needs] == ["outcome"]
