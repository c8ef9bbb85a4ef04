"""Admission: one effect for the same content, a conflict for another, and every refusal names its field."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from agents.router_house import NOW
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.proto.tasks import SubmitTask
from counterpoint.router.intake.admission import (
    Acceptance,
    Duplicate,
    IdempotencyKey,
    PriorRecords,
    Rejection,
    Submitter,
    TaskArrival,
    admit,
)
from counterpoint.router.intake.submissions import IdempotencyRecord, Submission, content_sha256

DAY = timedelta(days=1)
TASK = SubmitTask(kind="troubleshoot", description="The import fails", task_id="t1", error_message="timed out")


def arrival(task: SubmitTask = TASK, **more: Any) -> TaskArrival:
    known: dict[str, Any] = {
        "task": task,
        "task_id": task.task_id or "ours",
        "project": "orders",
        "submitter": Submitter("me", "person"),
        "at": NOW,
    }
    return TaskArrival(**(known | more))


def accepted(what: TaskArrival) -> Submission:
    verdict = admit(what, PriorRecords(), DAY)
    assert isinstance(verdict, Acceptance)
    return verdict.submission


def test_a_new_task_is_accepted_with_submitter_time_and_ignored_fields() -> None:
    kept = accepted(arrival(ignored=("descripton",)))
    assert (kept.submitted_by, kept.submitted_by_kind, kept.submitted_at) == ("me", "person", NOW)
    assert kept.ignored == ("descripton",)
    assert kept.as_task().state == "submitted"


fields = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["question", "troubleshoot", "develop", "plan"]),
        "description": st.text(min_size=1).filter(str.strip),
    },
    optional={
        "title": st.text(max_size=50),
        "error_message": st.text(),
        "systems": st.lists(st.text(min_size=1, max_size=20), max_size=3),
        "context": st.dictionaries(st.text(), st.integers()),
        "priority": st.sampled_from(["low", "normal", "high"]),
    },
)


@given(one=fields, other=fields)
def test_the_same_id_is_the_same_task_exactly_when_the_content_is_the_same(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    first, second = (SubmitTask.model_validate(body | {"task_id": "t1"}) for body in (one, other))
    known = PriorRecords(task=accepted(arrival(first)))
    assert admit(arrival(first), known, DAY) == Duplicate("t1")
    verdict = admit(arrival(second), known, DAY)
    if first == second:
        assert verdict == Duplicate("t1")
    else:
        assert isinstance(verdict, Rejection)
        assert verdict.code == "conflict"
        assert [problem.field for problem in verdict.problems] == ["task_id"]


def test_the_project_is_no_part_of_the_content() -> None:
    named = TASK.model_copy(update={"project": "orders"})
    assert content_sha256(named) == content_sha256(TASK)
    assert admit(arrival(named), PriorRecords(task=accepted(arrival())), DAY) == Duplicate("t1")


def test_another_project_in_the_body_is_refused_even_of_a_known_task() -> None:
    elsewhere = arrival(TASK.model_copy(update={"project": "billing"}))
    for known in (PriorRecords(), PriorRecords(task=accepted(arrival()))):
        verdict = admit(elsewhere, known, DAY)
        assert isinstance(verdict, Rejection)
        assert (verdict.code, verdict.problems[0].field) == ("invalid", "project")


def test_a_passed_deadline_is_refused_but_not_of_a_task_that_was_in_time() -> None:
    task = TASK.model_copy(update={"deadline": NOW + timedelta(minutes=1)})
    known = PriorRecords(task=accepted(arrival(task)))
    late = arrival(task, at=NOW + timedelta(minutes=2))
    assert admit(late, known, DAY) == Duplicate("t1")
    verdict = admit(late, PriorRecords(), DAY)
    assert isinstance(verdict, Rejection)
    assert (verdict.code, verdict.problems[0].field) == ("invalid", "deadline")


def test_the_same_event_is_the_same_task() -> None:
    task = TASK.model_copy(update={"task_id": None})
    known = PriorRecords(event=IdempotencyRecord(task_id="made-before", content_sha256=content_sha256(task), at=NOW))
    assert admit(arrival(task, event=("ci", "1")), known, DAY) == Duplicate("made-before")


@given(hours=st.floats(min_value=0, max_value=48))
def test_an_idempotency_key_stands_for_one_body_for_a_day(hours: float) -> None:
    known = PriorRecords(request=IdempotencyRecord(task_id="made-before", content_sha256="aa", at=NOW))
    later = arrival(TASK, at=NOW + timedelta(hours=hours), request=IdempotencyKey("request:k", "aa"))
    other = replace(later, request=IdempotencyKey("request:k", "bb"))
    if hours < 24:
        assert admit(later, known, DAY) == Duplicate("made-before")
        verdict = admit(other, known, DAY)
        assert isinstance(verdict, Rejection)
        assert (verdict.code, verdict.problems[0].field) == ("idempotency_conflict", "Idempotency-Key")
    else:
        assert isinstance(admit(later, known, DAY), Acceptance)
        assert isinstance(admit(other, known, DAY), Acceptance)
