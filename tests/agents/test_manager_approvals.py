"""Approvals in the workflow: what is held, and what becomes of it when a person has decided or nobody has."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from agents.approval_house import (
    ASKING,
    HOUR,
    REFUSED,
    approvals,
    decide,
    over_limit,
    pending_approval,
    proposed,
    spending,
    tell,
)
from agents.manager_house import PROJECT, House
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from counterpoint.client import record
from counterpoint.guard.policy import ApprovalPolicy, policy
from counterpoint.manager.gateway.ledger import SpendRecord
from counterpoint.manager.gateway.lifts import CALLS, CountedSpend, lifts_for
from counterpoint.proto.approvals import ApprovalDecision, ApprovalRequested, RefusedCall, artifact_sha256
from counterpoint.proto.tasks import TaskCompleted, TaskDelegated, TaskEscalated, TaskProposed


class TestSpend:
    def test_a_refused_call_escalates_with_the_budget_that_is_needed(self) -> None:
        house = over_limit()
        task = house.task()
        assert (task.state, task.waiting_for, task.proposal) == ("input_required", "approval", "Quotes say so.")
        assert house.names()[-2:] == ["ApprovalRequested", "TaskEscalated"]
        escalated, approval = house.last(TaskEscalated), pending_approval(house)
        assert (escalated.to, escalated.code, [need.kind for need in escalated.needs]) == (
            "human",
            "budget",
            ["budget"],
        )
        assert "counterpoint approvals --task t1" in escalated.needs[0].how
        assert escalated.confidence == task.confidence is not None
        requested = house.last(ApprovalRequested)
        assert requested.artifact_sha256 == approval.artifact_sha256 == artifact_sha256(approval.artifact)
        assert "add 0.02 USD to 0.01 USD, used 0.008 USD" in approval.artifact

    def test_an_approval_lifts_the_budget_by_the_stated_amount_and_the_task_goes_on(self) -> None:
        house = over_limit()
        decide(house)
        spend = record(house.item("spend", "t1"), SpendRecord)  # type: ignore[arg-type]
        assert (spend.lifted_usd, spend.cap_usd, spend.refused) == (Decimal("0.02"), Decimal("0.03"), None)
        assert (house.task().state, house.task().approval) == ("working", None)
        assert house.last(TaskDelegated).attempt == 1
        assert approvals(house)[0].state == "applied"
        house.developer("answered", text="The model says so.")
        assert house.last(TaskCompleted).result == "The model says so."

    def test_a_decision_delivered_twice_lifts_once(self) -> None:
        house = over_limit()
        decide(house)
        tell(house, approvals(house)[0])
        spend = record(house.item("spend", "t1"), SpendRecord)  # type: ignore[arg-type]
        assert spend.lifted_usd == Decimal("0.02")
        assert house.names().count("TaskDelegated") == 2

    def test_a_rejection_completes_with_the_findings_without_the_call(self) -> None:
        house = over_limit()
        decide(house, "rejected")
        assert house.last(TaskCompleted).result == "Quotes say so."
        spend = record(house.item("spend", "t1"), SpendRecord)  # type: ignore[arg-type]
        assert (spend.lifted_usd, approvals(house)[0].state) == (Decimal(0), "rejected")

    def test_a_stop_that_was_held_is_escalated_after_a_rejection(self) -> None:
        house = House(approvals=ASKING)
        house.route(kind="question")
        spending(house)
        house.developer("stopped", code="insufficient_evidence")
        decide(house, "rejected")
        assert house.task().waiting_for == "documents"
        assert house.last(TaskEscalated).code == "insufficient_evidence"

    def test_an_approval_without_a_decision_in_time_is_a_refusal(self) -> None:
        house = over_limit()
        assert house.wait(HOUR - 1) == 0
        assert house.task().waiting_for == "approval"
        assert house.wait(1) == 1
        assert house.last(TaskCompleted).result == "Quotes say so."
        assert approvals(house)[0].state == "expired"

    def test_a_limit_that_changed_since_asks_again_with_its_present_value(self) -> None:
        house = over_limit()
        first = pending_approval(house)
        decide(house, told=False)
        spending(house, limit_usd="0.009", refused=None)
        tell(house, approvals(house)[0])
        second = pending_approval(house)
        assert second.approval_id != first.approval_id
        assert second.artifact_sha256 != first.artifact_sha256
        assert "to 0.009 USD" in second.artifact
        assert {each.state for each in approvals(house)} == {"outdated", "pending"}
        spend = record(house.item("spend", "t1"), SpendRecord)  # type: ignore[arg-type]
        assert spend.lifted_usd == 0
        decide(house)
        assert house.task().state == "working"

    def test_a_limit_raised_meanwhile_needs_no_lift(self) -> None:
        house = over_limit()
        decide(house, told=False)
        spending(house, limit_usd="5", refused=None)
        tell(house, approvals(house)[0])
        spend = record(house.item("spend", "t1"), SpendRecord)  # type: ignore[arg-type]
        assert (house.task().state, spend.lifted_usd, approvals(house)[0].state) == ("working", Decimal(0), "outdated")

    def test_an_autonomous_task_stays_below_its_limit_without_asking(self) -> None:
        house = over_limit("autonomous")
        assert house.last(TaskCompleted).result == "Quotes say so."
        assert not approvals(house)

    def test_no_approval_is_requested_when_the_limit_allows_the_call(self) -> None:
        assert not approvals(over_limit(limit_usd="1"))
        assert not approvals(over_limit(refused=None))


class TestProposals:
    def test_a_supervised_proposal_is_offered_only_after_approval(self) -> None:
        house = proposed()
        task = house.task()
        assert (task.waiting_for, task.proposal) == ("approval", None)
        assert "TaskProposed" not in house.names()
        assert pending_approval(house).artifact == "restart the service"
        assert "text" not in (pending_approval(house).held or {})
        decide(house)
        offered = house.last(TaskProposed)
        assert (offered.proposal, offered.artifact_sha256) == (
            "restart the service",
            artifact_sha256("restart the service"),
        )
        assert (house.task().waiting_for, approvals(house)[0].state) == ("outcome", "applied")

    def test_a_rejected_proposal_is_never_offered(self) -> None:
        house = proposed()
        decide(house, "rejected")
        escalated = house.last(TaskEscalated)
        assert (escalated.code, house.task().waiting_for) == ("not_approved", "override")
        assert "rejected by ana: seen" in escalated.needs[0].what
        assert "TaskProposed" not in house.names()

    @pytest.mark.parametrize("ends", ["rejected", "overridden"])
    def test_a_success_is_not_credited_to_a_proposal_that_was_never_offered(self, ends: str) -> None:
        house = proposed()
        if ends == "rejected":
            decide(house, "rejected")
        house.override()
        house.outcome("succeeded", by="lineage", by_kind="system", evidence="observed")
        assert house.attempt(1).outcome == "unknown"
        assert house.attempt(1).shadow

    def test_an_expired_proposal_is_never_offered(self) -> None:
        house = proposed()
        house.wait(HOUR)
        assert (house.last(TaskEscalated).code, approvals(house)[0].state) == ("not_approved", "expired")
        assert "TaskProposed" not in house.names()

    @pytest.mark.parametrize("autonomy", ["milestone", "autonomous"])
    def test_with_more_autonomy_it_is_offered_at_once(self, autonomy: str) -> None:
        assert proposed(autonomy).task().waiting_for == "outcome"

    def test_an_unknown_autonomy_is_supervised(self) -> None:
        assert ASKING.act("proposal", "full_control", PROJECT) == "ask"

    def test_a_change_of_the_task_withdraws_the_approval(self) -> None:
        for intervene in (House.cancel, House.override, lambda house: house.outcome("succeeded", by="ops")):
            house = proposed()
            intervene(house)
            (approval,) = approvals(house)
            assert (approval.state, house.task().approval) == ("withdrawn", None)
            tell(house, approval, "approved")
            assert "TaskProposed" not in house.names()

    def test_an_approved_act_that_the_task_went_on_without_is_outdated(self) -> None:
        house = proposed()
        decide(house, told=False)
        house.override()
        (approval,) = approvals(house)
        assert (approval.state, approval.decided_by) == ("outdated", "ana")
        tell(house, approval)
        assert "TaskProposed" not in house.names()

    def test_a_new_attempt_needs_an_approval_of_its_own(self) -> None:
        house = proposed()
        first = pending_approval(house)
        house.override()
        house.developer("proposed", text="restart everything")
        assert pending_approval(house).approval_id != first.approval_id
        assert pending_approval(house).artifact == "restart everything"

    def test_a_message_without_a_decision_in_the_record_has_no_effect(self) -> None:
        house = proposed()
        tell(house, pending_approval(house), "approved")
        assert (house.task().waiting_for, pending_approval(house).state) == ("approval", "pending")

    def test_a_decision_at_the_last_moment_beats_the_timer(self) -> None:
        house = proposed()
        house.now += timedelta(seconds=HOUR - 1)
        decide(house, told=False)
        house.wait(1)
        assert house.task().waiting_for == "approval"
        tell(house, approvals(house)[0])
        assert house.task().waiting_for == "outcome"

    def test_a_decision_between_the_timer_and_its_commit_wins(self) -> None:
        house = proposed()
        approval = pending_approval(house)
        given = ApprovalDecision(decision="approved", artifact_sha256=approval.artifact_sha256)
        decided = approval.decided(given, "ana", "person", house.now)

        def overtake() -> None:
            body = decided.model_dump(mode="json", exclude_none=True)
            house.put("approvals", approval.approval_id, body, author="router")

        house.before_commit = overtake
        house.wait(HOUR)
        assert approvals(house)[0].state == "approved"
        tell(house, decided)
        assert house.task().waiting_for == "outcome"

    def test_offering_proposals_needs_no_approval_in_the_policy_of_this_build(self) -> None:
        house = House()
        house.route()
        house.developer("proposed")
        assert house.task().waiting_for == "outcome"


@given(
    cap=st.integers(0, 100),
    used=st.integers(0, 120),
    call=st.integers(0, 60),
    tokens=st.integers(0, 9000),
    cap_tokens=st.none() | st.integers(0, 9000),
)
def test_a_lift_covers_the_refused_call_and_only_limits_that_refuse_it(
    cap: int, used: int, call: int, tokens: int, cap_tokens: int | None
) -> None:
    spend = SpendRecord(
        limit_usd=Decimal(cap) / 1000, limit_tokens=cap_tokens, spent_usd=Decimal(used) / 1000, spent_tokens=used
    )
    refused = RefusedCall(usd=Decimal(call) / 1000, tokens=tokens)
    counted = CountedSpend("t1", spend, None)
    over = used + call > cap, cap_tokens is not None and used + tokens > cap_tokens
    lifts = lifts_for(refused, [counted])
    assert bool(lifts) == any(over)
    for lift in lifts:
        assert (lift.by_usd is not None, lift.by_tokens is not None) == over
        lifted = counted.lifted(lift)
        assert lifted.cap_usd is not None
        if lift.by_usd is not None:
            assert 0 <= lifted.cap_usd - lifted.used_usd - CALLS * refused.usd < Decimal("0.01")
        if lift.by_tokens is not None:
            assert 0 <= (lifted.cap_tokens or 0) - used - CALLS * tokens < 1000


@pytest.mark.parametrize(
    ("acts", "problem"),
    [
        ({"spend": {"supervised": "allow", "milestone": "ask", "autonomous": "refuse"}}, "unknown allow"),
        ({"proposal": {"supervised": "refuse", "milestone": "ask", "autonomous": "allow"}}, "unknown refuse"),
        ({"spend": {"supervised": "ask"}}, "unknown autonomous, milestone"),
    ],
)
def test_a_policy_that_would_open_a_hard_limit_is_refused(acts: dict[str, Any], problem: str) -> None:
    whole = policy().approvals.model_dump()
    with pytest.raises(ValidationError, match=problem):
        ApprovalPolicy.model_validate(whole | {"acts": whole["acts"] | acts})
    with pytest.raises(ValidationError, match=problem):
        ApprovalPolicy.model_validate(whole | {"projects": {"orders": acts}})


def test_a_project_may_differ() -> None:
    rules = {"proposal": {"supervised": "ask", "milestone": "ask", "autonomous": "ask"}}
    changed = ApprovalPolicy.model_validate(policy().approvals.model_dump() | {"projects": {"orders": rules}})
    assert [changed.act("proposal", "autonomous", name) for name in ("orders", "sales")] == ["ask", "allow"]
    assert changed.act("spend", "autonomous", "orders") == "refuse"


@pytest.mark.parametrize("spend", [False, True])
def test_a_task_whose_approval_record_is_gone_stops_waiting(spend: bool) -> None:
    house = House(approvals=ASKING)
    house.route(**({"budget": {"tokens": 10}} if spend else {}))
    if spend:
        spent = SpendRecord(task_id="t1", limit_tokens=10, refused=REFUSED)
        house.put("spend", "t1", spent.model_dump(mode="json", exclude_none=True))
    house.developer("answered" if spend else "proposed")
    assert house.task().waiting_for == "approval"
    house.drop("approvals", pending_approval(house).approval_id)
    house.wait(HOUR)
    task = house.task()
    assert (task.waiting_for, task.approval) == ("override", None)
    assert task.escalation is not None
    assert task.escalation.code == "not_approved"
    assert "the approval is gone" in task.escalation.needs[0].what


def test_a_text_that_is_not_the_one_that_was_hashed_is_never_offered() -> None:
    """Should the record of a decision be altered past the router, the manager takes it for a rejection."""
    house = proposed()
    altered = pending_approval(house).model_copy(
        update={"artifact": "drop the table", "state": "approved", "decided_by": "ana", "decided_at": house.now}
    )
    house.put("approvals", altered.approval_id, altered.model_dump(mode="json", exclude_none=True), author="router")
    tell(house, altered)
    assert "TaskProposed" not in house.names()
    assert house.last(TaskEscalated).code == "not_approved"
