"""A task that stopped for want of documents goes on by itself when they come, and only then."""

import shlex
from datetime import timedelta
from itertools import pairwise

import pytest
from agents.manager_house import START, House, confidence
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from counterpoint.cli.main import app
from counterpoint.manager.knowledge import has_risen
from counterpoint.manager.task_limits import TaskLimits
from counterpoint.manager.timers import next_reassessment
from counterpoint.proto.findings import Citation, Findings
from counterpoint.proto.tasks import Need, TaskDelegated, TaskEscalated, TaskResumed


def stopped(score: float = 0.4) -> House:
    house = House()
    house.route(systems=("freeipa",))
    house.developer("stopped", score, code="low_confidence", searched_for=("freeipa dns",))
    return house


def test_a_stop_asks_the_calling_llm_and_says_how_to_supply_the_evidence() -> None:
    house = stopped()
    escalated = house.last(TaskEscalated)
    assert (escalated.to, escalated.code, escalated.searched_for) == ("calling_llm", "low_confidence", ("freeipa dns",))
    assert [(need.kind, need.how) for need in escalated.needs] == [
        ("document", "counterpoint ingest PATH --project orders")
    ]
    assert "freeipa dns" in escalated.needs[0].what
    task = house.task()
    assert (task.state, task.waiting_for) == ("input_required", "documents")
    assert task.escalation is not None
    assert task.escalation.needs == escalated.needs


def test_the_developers_own_needs_are_kept_and_completed() -> None:
    house = House()
    house.route()
    needs = (Need(kind="document", what="the DNS chapter", how=""), Need(kind="decision", what="which zone", how="ask"))
    house.developer("stopped", 0.3, code="low_confidence", needs=needs)
    assert [need.how for need in house.last(TaskEscalated).needs] == [
        "counterpoint ingest PATH --project orders",
        "ask",
    ]


def test_an_outline_made_before_a_stop_is_part_of_the_escalation() -> None:
    house = House()
    house.route(kind="develop")
    house.developer("stopped", 0.9, code="no_model", text="[1] make the zone")
    assert house.last(TaskEscalated).findings.next_steps == ("[1] make the zone",)
    assert house.task().proposal == "[1] make the zone"
    house.outcome("succeeded", note="wrote it by hand")
    assert (house.task().state, house.attempt(1).tried) == ("completed", "wrote it by hand")


@pytest.mark.parametrize("code", ["no_provider", "no_model", "architecture_scope", "budget"])
def test_a_stop_that_no_document_helps_waits_for_an_override(code: str) -> None:
    house = House()
    house.route(kind="develop")
    house.developer("stopped", code=code)
    assert house.task().waiting_for == "override"
    assert "counterpoint override t1" in house.last(TaskEscalated).needs[0].how
    house.ingest()
    assert house.wait(60) == 0


@pytest.mark.parametrize("kind", ["decision", "model", "budget"])
def test_the_command_of_a_need_runs_as_it_is(kind: str) -> None:
    house = House()
    house.route(kind="develop")
    house.developer("stopped", code="no_model", needs=(Need(kind=kind, what="something", how=""),))
    (need,) = house.last(TaskEscalated).needs
    program, name, *arguments = shlex.split(need.how)
    context = get_command(app).commands[name].make_context(name, arguments)  # type: ignore[attr-defined]
    assert (program, context.params["task"], context.params["project"]) == ("counterpoint", "t1", "orders")


def test_the_right_document_resumes_the_task_and_it_completes() -> None:
    house = stopped()
    house.ingest()
    assert house.wait(5) == 1
    asked = house.last(TaskDelegated)
    assert asked.purpose == "reassess"
    citation = Citation(store="chunks", id="c1", version=1, source_path="dns.md", start=0, end=3, quote="dns")
    house.developer("stopped", 0.72, findings=Findings(citations=(citation,)))
    resumed = house.last(TaskResumed)
    assert "0.40 (low)" in resumed.reason
    assert "0.72 (medium)" in resumed.reason
    assert resumed.sources == ("dns.md",)
    assert house.last(TaskDelegated).purpose == "work"
    assert (house.task().state, house.task().resumes, house.task().escalation) == ("working", 1, None)
    house.developer("answered", 0.72)
    assert house.task().state == "completed"
    assert house.names().count("TaskEscalated") == 1


def test_past_incidents_that_come_in_wake_a_task_like_documents_do() -> None:
    house = stopped()
    house.deliver_changes("memory", ("attempts",))
    assert house.wait(5) == 1
    assert house.last(TaskDelegated).purpose == "reassess"


@pytest.mark.parametrize(("store", "woken"), [("documents", True), ("attempts", True), ("chunks", False)])
def test_only_new_knowledge_during_work_causes_a_reassessment(store: str, woken: bool) -> None:
    house = House()
    house.route()
    house.now += timedelta(seconds=1)
    house.deliver_changes("memory", (store,))
    house.developer("stopped", 0.4, code="low_confidence")
    assert any(timer.message.timer == "reassess" for timer in house.timers) is woken  # type: ignore[attr-defined]


@pytest.mark.parametrize(("outcome", "state"), [("answered", "completed"), ("proposed", "input_required")])
def test_a_reassessment_may_bring_the_result_itself(outcome: str, state: str) -> None:
    house = stopped()
    house.ingest()
    house.wait(5)
    house.developer(outcome, 0.9)
    assert (house.task().state, house.task().resumes) == (state, 1)
    assert house.names().count("TaskResumed") == 1


def test_an_unrelated_document_wakes_nothing() -> None:
    house = stopped()
    before, seen = house.task(), len(house.log)
    house.ingest()
    house.wait(5)
    decided = sum(sent.name == "DecisionMade" for sent in house.log)
    house.developer("stopped", 0.45)
    assert house.names(seen) == ["TaskDelegated"]
    assert sum(sent.name == "DecisionMade" for sent in house.log) == decided
    after = house.task()
    assert (after.state, after.waiting_for, after.resumes, after.escalation) == (
        before.state,
        before.waiting_for,
        0,
        before.escalation,
    )
    assert house.line()[-1].kind == "assess"
    assert "0.40 (low) and is 0.45 (low)" in house.line()[-1].reasoning


def test_much_that_is_ingested_together_is_one_reassessment() -> None:
    house = stopped()
    for _ in range(20):
        house.ingest()
        house.wait(0.1)
        assert len(house.timers) == 1
    house.wait(60)
    assert house.names().count("TaskDelegated") == 2


def test_reassessments_are_never_closer_than_five_seconds() -> None:
    house = stopped()
    asked = []
    for _ in range(100):
        house.ingest()
        before = len(house.log)
        house.wait(0.3)
        asked += [house.now] * house.names(before).count("TaskDelegated")
    assert 5 <= len(asked) <= 7
    assert all(later - earlier >= timedelta(seconds=4.5) for earlier, later in pairwise(asked))


def test_documents_that_arrive_during_a_reassessment_are_not_missed() -> None:
    house = stopped()
    house.ingest()
    house.wait(5)
    house.ingest()
    house.developer("stopped", 0.41)
    assert house.wait(5) == 1
    house.developer("stopped", 0.9)
    assert house.task().state == "working"


def test_a_document_that_came_while_the_developer_was_searching_is_not_missed() -> None:
    house = House()
    house.route()
    house.wait(1)
    house.ingest()
    house.developer("stopped", 0.4, code="low_confidence")
    assert house.wait(5) == 1
    assert house.last(TaskDelegated).purpose == "reassess"


def test_documents_from_before_the_task_wake_nothing() -> None:
    house = House()
    house.ingest()
    house.wait(10)
    house.route()
    house.wait(1)
    house.developer("stopped", 0.4, code="low_confidence")
    assert house.wait(60) == 0


def test_a_task_resumes_by_itself_three_times_at_most() -> None:
    house = stopped()
    for _ in range(10):
        house.ingest()
        house.wait(5)
        if house.task().state == "input_required" and house.work_under_way():
            house.developer("stopped", 0.7)
        if house.task().state == "working":
            house.developer("stopped", 0.4, code="low_confidence")
    assert house.task().resumes == 3
    assert house.names().count("TaskResumed") == 3
    assert house.names().count("TaskEscalated") == 4
    house.ingest()
    assert not house.timers


@pytest.mark.parametrize(
    ("service", "stores"),
    [
        ("developer", ("chunks",)),
        ("developer", ("attempts",)),
        ("lineage", ("jobs",)),
        ("memory", ("dead_letters",)),
        ("memory", ("chunks",)),
    ],
)
def test_unrelated_changes_do_nothing(service: str, stores: tuple[str, ...]) -> None:
    house = stopped()
    before = len(house.log), dict(house.records)
    house.deliver_changes(service, stores)
    assert (len(house.log), dict(house.records), house.timers) == (*before, [])


def test_hundreds_of_waiting_tasks_are_all_woken() -> None:
    house = House()
    for n in range(230):
        house.route(f"t{n}")
        house.developer("stopped", 0.4, f"t{n}", code="low_confidence")
    house.ingest()
    assert {timer.task_id for timer in house.timers} == {f"t{n}" for n in range(230)}
    assert house.wait(5) == 230


@pytest.mark.parametrize("state", ["working", "outcome", "ended"])
def test_only_tasks_that_wait_for_documents_are_woken(state: str) -> None:
    house = House()
    house.route()
    if state != "working":
        house.developer("proposed" if state == "outcome" else "answered")
    house.ingest()
    assert not [timer for timer in house.timers if timer.message.timer == "reassess"]  # type: ignore[attr-defined]


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_band_rises_only_into_a_higher_one(before: float, after: float) -> None:
    order = ["low", "medium", "high"]
    expected = order.index(confidence(after).band) > order.index(confidence(before).band)
    assert has_risen(confidence(before), confidence(after)) == expected
    assert not has_risen(confidence(before), None)


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 60))
def test_reassessments_of_one_slot_are_due_at_one_time(first_ms: int, second_ms: int, slot_s: int) -> None:
    bounds = TaskLimits(reassess_s=slot_s)
    first, second = (START + timedelta(milliseconds=ms) for ms in (first_ms, second_ms))
    due = [next_reassessment(moment, bounds) for moment in (first, second)]
    assert timedelta(0) < due[0] - first <= timedelta(seconds=slot_s)
    assert due[0] == due[1] or abs(due[0] - due[1]) >= timedelta(seconds=slot_s)


@pytest.mark.parametrize("outcome", ["stopped", "answered", "proposed"])
def test_all_that_a_result_is_judged_by_is_read_in_one_request(outcome: str) -> None:
    house = House()
    house.route()
    before = house.requests
    house.developer(outcome, 0.4, code="low_confidence" if outcome == "stopped" else None)
    assert house.requests - before == 2, "one query, one commit"


def test_an_offer_stays_while_unrelated_documents_are_assessed() -> None:
    house = House()
    house.route()
    house.developer("stopped", 0.3, code="low_confidence", text="unlock the user")
    house.wait(10)
    house.ingest()
    house.wait(10)
    assert house.task().proposal == "unlock the user"
    house.developer("stopped", 0.3, code="low_confidence", text="unlock the user")
    house.outcome("succeeded")
    assert [(one.tried, one.outcome) for one in house.attempts()] == [("unlock the user", "succeeded")]


def test_a_failure_reported_during_a_reassessment_keeps_its_number() -> None:
    house = stopped()
    house.ingest()
    house.wait(5)
    under_way = house.work_under_way()[-1]
    house.outcome("failed", note="restarted it")
    assert house.task().outcomes["1"]["note"] == "restarted it"
    assert house.developer("proposed", 0.9, given=under_way) == "stale"
    house.wait(5)
    house.developer("proposed", 0.9)
    house.outcome("failed", error_message="another error")
    numbers = [one.attempt for one in house.attempts()]
    assert (numbers, sorted(house.task().outcomes)) == ([1, 2], ["1", "2"])


def test_a_failure_in_shadow_is_retried_under_a_free_number() -> None:
    house = House()
    house.put("incident_settings", "project", {"project": "orders", "shadow": True, "by": "ana"})
    house.route(error_message="Error: a")
    house.developer("proposed")
    house.outcome("failed", note="restarted it", error_message="Error: b")
    house.outcome("failed", attempt=1, error_message="Error: c")
    assert house.task().attempt == 3
