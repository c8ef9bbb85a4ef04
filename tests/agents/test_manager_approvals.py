"""Approvals in the workflow: what is held, and what becomes of it when a person has decided or nobody has."""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from agents.manager_house import PROJECT, House
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from counterpoint.client import record
from counterpoint.guard.policy import ApprovalPolicy, policy
from counterpoint.manager.gateway.ledger import SpendRecord
from counterpoint.manager.gateway.lifts import CALLS, CountedSpend, lifts_for
from counterpoint.proto.approvals import (
    Approval,
    ApprovalDecided,
    ApprovalDecision,
    ApprovalRequested,
    RefusedCall,
    artifact_sha256,
)
from counterpoint.proto.ids import new_id
from counterpoint.proto.messages import Message
from counterpoint.proto.tasks import ENDED, TaskCompleted, TaskDelegated, TaskDue, TaskEscalated, TaskProposed

REFUSED = RefusedCall(usd=Decimal("0.004"), tokens=1200)
ASKING = ApprovalPolicy.model_validate(
    {
        "expires_s": 3600,
        "over": {"erasure": 1000, "take_back": 1000},
        "acts": {
            "spend": {"supervised": "ask", "milestone": "ask", "autonomous": "refuse"},
            "proposal": {"supervised": "ask", "milestone": "allow", "autonomous": "allow"},
            "document": {"supervised": "allow", "milestone": "allow", "autonomous": "allow"},
            "web": {"supervised": "ask", "milestone": "allow", "autonomous": "refuse"},
        },
    }
)
REMINDING = ASKING.model_copy(update={"remind_s": (600, 1800)})
HOUR = 3600


def approvals(house: House) -> list[Approval]:
    """All approvals, oldest first."""
    return sorted((record(item, Approval) for item in house.items("approvals")), key=lambda each: each.approval_id)


def pending(house: House) -> Approval:
    """The approval that the task waits for."""
    waiting = house.task().approval
    assert waiting is not None
    (found,) = [each for each in approvals(house) if each.approval_id == waiting.approval_id]
    assert (waiting.artifact_sha256, waiting.expires_at) == (found.artifact_sha256, found.expires_at)
    return found


def decide(house: House, decision: str = "approved", by: str = "ana", told: bool = True) -> str | None:
    """A person decides, as the router writes it; `told` delivers the message to the manager."""
    approval = pending(house)
    given = ApprovalDecision(decision=decision, artifact_sha256=approval.artifact_sha256, reason="seen")
    decided = approval.decided(given, by, "person", house.now)
    house.put("approvals", approval.approval_id, decided.model_dump(mode="json", exclude_none=True), author="router")
    return tell(house, decided) if told else None


def tell(house: House, approval: Approval, decision: Any = None) -> str:
    message = ApprovalDecided(
        approval_id=approval.approval_id,
        decision=decision or approval.decision,
        artifact_sha256=approval.artifact_sha256,
        by=approval.decided_by or "nobody",
        task_id="t1",
    )
    return house.deliver(message)


def spending(house: House, **fields: Any) -> None:
    """Store what the task has spent, and the call that was refused."""
    spent = {"task_id": "t1", "limit_usd": "0.01", "spent_usd": "0.008", "refused": REFUSED.model_dump(mode="json")}
    house.put("spend", "t1", spent | fields)


def over_limit(autonomy: str = "supervised", **fields: Any) -> House:
    """A question whose model call was refused, answered by quotes."""
    house = House(approvals=ASKING)
    house.route(kind="question", autonomy=autonomy)
    spending(house, **fields)
    house.developer("answered", text="Quotes say so.")
    return house


def proposed(autonomy: str = "supervised") -> House:
    house = House(approvals=ASKING)
    house.route(autonomy=autonomy)
    house.developer("proposed", text="restart the service")
    return house


class TestSpend:
    def test_a_refused_call_escalates_with_the_budget_that_is_needed(self) -> None:
        house = over_limit()
        task = house.task()
        assert (task.state, task.waiting_for, task.proposal) == ("input_required", "approval", "Quotes say so.")
        assert house.names()[-2:] == ["ApprovalRequested", "TaskEscalated"]
        escalated, approval = house.last(TaskEscalated), pending(house)
        assert (escalated.to, escalated.code, [need.kind for need in escalated.needs]) == (
            "human",
            "budget",
            ["budget"],
        )
        assert "counterpoint approvals --task t1" in escalated.needs[0].how
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

    def test_a_rejection_completes_with_what_was_found_without_the_call(self) -> None:
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

    def test_nobody_deciding_in_time_is_a_no(self) -> None:
        house = over_limit()
        assert house.wait(HOUR - 1) == 0
        assert house.task().waiting_for == "approval"
        assert house.wait(1) == 1
        assert house.last(TaskCompleted).result == "Quotes say so."
        assert approvals(house)[0].state == "expired"

    def test_a_limit_that_changed_since_asks_again_about_what_it_is_now(self) -> None:
        house = over_limit()
        first = pending(house)
        decide(house, told=False)
        spending(house, limit_usd="0.009", refused=None)
        tell(house, approvals(house)[0])
        second = pending(house)
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

    def test_nothing_is_asked_where_no_limit_refuses_the_call_any_more(self) -> None:
        assert not approvals(over_limit(limit_usd="1"))
        assert not approvals(over_limit(refused=None))


class TestProposals:
    def test_a_supervised_proposal_is_offered_only_after_approval(self) -> None:
        house = proposed()
        task = house.task()
        assert (task.waiting_for, task.proposal) == ("approval", None)
        assert "TaskProposed" not in house.names()
        assert pending(house).artifact == "restart the service"
        assert "text" not in (pending(house).held or {})
        decide(house)
        offered = house.last(TaskProposed)
        assert (offered.proposal, offered.artifact_sha256) == (
            "restart the service",
            pending_sha("restart the service"),
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
        first = pending(house)
        house.override()
        house.developer("proposed", text="restart everything")
        assert pending(house).approval_id != first.approval_id
        assert pending(house).artifact == "restart everything"

    def test_a_message_without_a_decision_in_the_record_has_no_effect(self) -> None:
        house = proposed()
        tell(house, pending(house), "approved")
        assert (house.task().waiting_for, pending(house).state) == ("approval", "pending")

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
        approval = pending(house)
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


def pending_sha(text: str) -> str:
    return artifact_sha256(text)


class Killed(BaseException):
    """The end of the manager's process."""


@dataclass
class Mortal(House):
    """A house whose manager dies at request `dies_at` of a delivery, before memory has it or after it has answered."""

    dies_at: int | None = None
    answered: bool = False

    async def transport(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        if self.dies_at is not None:
            self.dies_at -= 1
        dies = self.dies_at == 0
        if dies and not self.answered:
            raise Killed
        reply = await super().transport(subject, body, timeout_s)
        if dies:
            raise Killed
        return reply

    def deliver(self, message: Message, message_id: str | None = None, version: int | None = None) -> str:
        message_id = message_id or new_id()
        try:
            return super().deliver(message, message_id, version)
        except Killed:
            return super().deliver(message, message_id, version)


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 8))
@pytest.mark.parametrize("dies_in", ["hold", "approve", "reject", "expire", "change"])
def test_a_manager_killed_at_any_request_asks_and_acts_once(dies_in: str, dies_at: int, answered: bool) -> None:
    house = Mortal(approvals=ASKING, answered=answered)
    house.route(kind="question")
    spending(house)
    house.dies_at = dies_at if dies_in == "hold" else None
    house.developer("answered", text="Quotes say so.")
    house.dies_at = dies_at if dies_in != "hold" else None
    match dies_in:
        case "hold" | "approve":
            decide(house)
        case "reject":
            decide(house, "rejected")
        case "expire":
            house.wait(HOUR)
        case _:
            decide(house, told=False)
            spending(house, limit_usd="0.009", refused=None)
            tell(house, approvals(house)[0])
    spend = record(house.item("spend", "t1"), SpendRecord)  # type: ignore[arg-type]
    names, states = house.names(), sorted(each.state for each in approvals(house))
    expected: dict[str, tuple[list[str], str, str, list[str]]] = {
        "hold": (["applied"], "0.02", "working", ["TaskResumed", "TaskDelegated"]),
        "approve": (["applied"], "0.02", "working", ["TaskResumed", "TaskDelegated"]),
        "reject": (["rejected"], "0", "completed", ["TaskResumed", "TaskCompleted"]),
        "expire": (["expired"], "0", "completed", ["TaskResumed", "TaskCompleted"]),
        "change": (["outdated", "pending"], "0", "input_required", ["ApprovalRequested"]),
    }
    asked = ["TaskDelegated", "ApprovalRequested", "TaskEscalated"]
    known, lifted, state, sent = expected[dies_in]
    assert (states, spend.lifted_usd, house.task().state) == (known, Decimal(lifted), state)
    assert names == [*asked, *sent]


@given(
    steps=st.lists(st.sampled_from(["propose", "stop", "approve", "reject", "wait", "override", "fail"]), max_size=12)
)
def test_whatever_happens_the_transitions_are_legal_and_nothing_is_offered_unapproved(steps: list[str]) -> None:
    house = House(approvals=ASKING)
    house.route()
    for step in steps:
        task = house.task()
        match step:
            case "propose" if house.work_under_way():
                house.developer("proposed")
            case "stop" if house.work_under_way():
                house.developer("stopped")
            case "approve" | "reject" if task.waiting_for == "approval" and pending(house).state == "pending":
                decide(house, {"approve": "approved", "reject": "rejected"}[step])
            case "wait":
                house.wait(HOUR)
            case "override":
                house.override()
            case "fail" if task.waiting_for == "outcome":
                house.outcome("failed")
    states = [each.state for each in approvals(house)]
    assert house.names().count("TaskProposed") == states.count("applied")
    waiting = house.task().waiting_for == "approval" and house.task().state not in ENDED
    assert states.count("pending") == int(waiting)


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


def reminded(house: House) -> list[tuple[str, int]]:
    requests = [sent.message for sent in house.log if isinstance(sent.message, ApprovalRequested)]
    return [(each.approval_id, each.reminder) for each in requests]


def tool_refused() -> House:
    """A task of which a call of a tool of ines was refused, and about which a person is asked."""
    house = House(approvals=REMINDING)
    house.route(budget={"usd": "0.01"})
    refused = REFUSED.model_copy(update={"principal": "ines"}).model_dump(mode="json")
    spending(house, refused=None, tool_refused=refused)
    house.deliver(TaskDue(task_id="t1", timer="tool_refused"))
    return house


class TestReminders:
    def test_the_request_is_repeated_at_the_times_of_the_policy_until_the_end(self) -> None:
        house = House(approvals=REMINDING)
        house.route()
        house.developer("proposed", text="restart the service")
        approval_id, counts = pending(house).approval_id, []
        for seconds in (599, 1, 1199, 1, 1799):
            house.wait(seconds)
            counts.append([number for _, number in reminded(house)])
        assert counts == [[0], [0, 1], [0, 1], [0, 1, 2], [0, 1, 2]]
        assert {each for each, _ in reminded(house)} == {approval_id}
        assert house.task().waiting_for == "approval"
        house.wait(1)
        assert (house.task().waiting_for, approvals(house)[0].state) == ("override", "expired")

    def test_a_decided_approval_is_not_repeated(self) -> None:
        house = House(approvals=REMINDING)
        house.route()
        house.developer("proposed", text="restart the service")
        house.wait(700)
        decide(house)
        house.wait(HOUR)
        assert [number for _, number in reminded(house)] == [0, 1]

    def test_a_decision_that_the_manager_has_not_heard_of_is_not_repeated(self) -> None:
        house = House(approvals=REMINDING)
        house.route()
        house.developer("proposed", text="restart the service")
        decide(house, told=False)
        house.wait(700)
        assert [number for _, number in reminded(house)] == [0]

    def test_a_refused_call_of_a_tool_is_reminded_of_while_the_task_goes_on(self) -> None:
        house = tool_refused()
        (waiting,) = approvals(house)
        house.wait(599)
        house.override()
        house.wait(1)
        assert reminded(house) == [(waiting.approval_id, 0), (waiting.approval_id, 1)]
        assert any("reminder 1: nobody has decided" in each.reasoning for each in house.line())
        house.wait(HOUR)
        assert [number for _, number in reminded(house)] == [0, 1, 2]

    def test_a_manager_that_was_down_for_both_reminders_sends_the_last(self) -> None:
        house = tool_refused()
        house.now += timedelta(seconds=2000)
        house.wait(HOUR)
        assert [number for _, number in reminded(house)] == [0, 2]

    @pytest.mark.parametrize("how", ["decided", "ended", "another"])
    def test_an_approval_for_a_tool_that_no_longer_waits_is_not_reminded_of(self, how: str) -> None:
        house = tool_refused()
        (waiting,) = approvals(house)
        if how == "ended":
            house.cancel()
        elif how == "decided":
            given = ApprovalDecision(decision="rejected", artifact_sha256=waiting.artifact_sha256, reason="too dear")
            after = waiting.decided(given, "ana", "person", house.now)
            house.put("approvals", waiting.approval_id, after.model_dump(mode="json", exclude_none=True))
        else:
            spent = house.item("spend", "t1")
            assert spent is not None
            house.put("spend", "t1", spent.body | {"tool_approval": "a-2"})
        house.wait(HOUR)
        assert [number for _, number in reminded(house)] == [0]

    @pytest.mark.parametrize("remind_s", [(3600,), (900, 600)])
    def test_a_reminder_at_the_end_or_out_of_order_is_refused(self, remind_s: tuple[int, ...]) -> None:
        with pytest.raises(ValidationError, match="remind_s: must rise, and end before expires_s"):
            ApprovalPolicy.model_validate(ASKING.model_dump() | {"remind_s": remind_s})


def test_a_project_may_differ() -> None:
    rules = {"proposal": {"supervised": "ask", "milestone": "ask", "autonomous": "ask"}}
    changed = ApprovalPolicy.model_validate(policy().approvals.model_dump() | {"projects": {"orders": rules}})
    assert [changed.act("proposal", "autonomous", name) for name in ("orders", "sales")] == ["ask", "allow"]
    assert changed.act("spend", "autonomous", "orders") == "refuse"


@pytest.mark.parametrize("spend", [False, True])
def test_a_task_whose_approval_has_no_record_any_more_does_not_wait_for_ever(spend: bool) -> None:
    house = House(approvals=ASKING)
    house.route(**({"budget": {"tokens": 10}} if spend else {}))
    if spend:
        spent = SpendRecord(task_id="t1", limit_tokens=10, refused=REFUSED)
        house.put("spend", "t1", spent.model_dump(mode="json", exclude_none=True))
    house.developer("answered" if spend else "proposed")
    assert house.task().waiting_for == "approval"
    house.drop("approvals", pending(house).approval_id)
    house.wait(HOUR)
    task = house.task()
    assert (task.waiting_for, task.approval) == ("override", None)
    assert task.escalation is not None
    assert task.escalation.code == "not_approved"
    assert "the approval is gone" in task.escalation.needs[0].what


def test_a_text_that_is_not_the_one_that_was_hashed_is_never_offered() -> None:
    """Should the record of a decision be altered past the router, the manager takes it for a rejection."""
    house = proposed()
    altered = pending(house).model_copy(
        update={"artifact": "drop the table", "state": "approved", "decided_by": "ana", "decided_at": house.now}
    )
    house.put("approvals", altered.approval_id, altered.model_dump(mode="json", exclude_none=True), author="router")
    tell(house, altered)
    assert "TaskProposed" not in house.names()
    assert house.last(TaskEscalated).code == "not_approved"


class TestWeb:
    QUERY = "What is the latest version of Airflow?"

    def wants(self, autonomy: str = "supervised", **more: Any) -> House:
        """A question that memory cannot answer and for which the developer would search the web."""
        house = House(approvals=ASKING)
        house.route(kind="question", autonomy=autonomy)
        rule = house.last(TaskDelegated).web
        more = {"wanted_search": self.QUERY, "code": "insufficient_evidence", **more} if rule == "ask" else more
        house.developer("stopped", **{"code": "insufficient_evidence", **more})
        return house

    def test_the_developer_is_told_the_rule_for_the_autonomy_of_the_task(self) -> None:
        for autonomy, rule in (("supervised", "ask"), ("milestone", "allow"), ("autonomous", "refuse")):
            house = House(approvals=ASKING)
            house.route(kind="question", autonomy=autonomy)
            assert house.last(TaskDelegated).web == rule

    def test_the_words_of_a_search_are_approved_and_only_these_are_permitted(self) -> None:
        house = self.wants()
        approval = pending(house)
        assert (approval.category, approval.artifact) == ("web", f"Search the web for:\n{self.QUERY}")
        assert "TaskEscalated" not in house.names()
        decide(house)
        delegated = house.last(TaskDelegated)
        assert (delegated.attempt, delegated.web, delegated.permitted_search) == (1, "ask", self.QUERY)
        assert [each.state for each in approvals(house)] == ["applied"]
        house.developer("stopped", code="insufficient_evidence", wanted_search="another question")
        assert pending(house).artifact == "Search the web for:\nanother question"

    def test_words_other_than_those_approved_are_not_permitted(self) -> None:
        house = self.wants()
        other = f"Search the web for:\nthe password of {PROJECT}"
        altered = {"artifact": other, "artifact_sha256": artifact_sha256(other), "state": "approved"}
        made = pending(house).model_copy(update=altered | {"decided_by": "ana", "decided_at": house.now})
        house.put("approvals", made.approval_id, made.model_dump(mode="json", exclude_none=True), author="router")
        tell(house, made)
        assert house.last(TaskEscalated).code == "insufficient_evidence"
        assert house.task().permitted_search is None

    def test_without_an_approval_the_task_goes_on_without_the_search(self) -> None:
        house = self.wants()
        decide(house, "rejected")
        assert house.last(TaskEscalated).code == "insufficient_evidence"
        assert house.task().permitted_search is None
        house = self.wants()
        house.wait(HOUR)
        assert [each.state for each in approvals(house)] == ["expired"]
        assert house.last(TaskEscalated).code == "insufficient_evidence"

    def test_a_search_that_needs_no_approval_is_not_asked_for(self) -> None:
        for autonomy in ("milestone", "autonomous"):
            house = self.wants(autonomy)
            assert not approvals(house)
            assert house.last(TaskEscalated).code == "insufficient_evidence"

    def test_a_new_attempt_needs_a_permit_of_its_own(self) -> None:
        house = self.wants()
        decide(house)
        house.override(instruction="look again", by="ada")
        assert house.last(TaskDelegated).permitted_search is None
