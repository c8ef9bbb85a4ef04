"""Reminders of approvals that nobody has decided."""

from datetime import timedelta

import pytest
from agents.approval_house import ASKING, HOUR, REFUSED, REMINDING, approvals, decide, pending_approval, spending
from agents.manager_house import House
from pydantic import ValidationError

from counterpoint.guard.policy import ApprovalPolicy
from counterpoint.proto.approvals import ApprovalDecision, ApprovalRequested
from counterpoint.proto.tasks import TaskDue


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
        approval_id, counts = pending_approval(house).approval_id, []
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
