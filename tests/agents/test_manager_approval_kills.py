"""Approvals while the manager is killed or messages come in any order: it asks and acts once, in legal transitions."""

from dataclasses import dataclass
from decimal import Decimal

import pytest
from agents.approval_house import ASKING, HOUR, approvals, decide, pending_approval, spending, tell
from agents.manager_house import House
from agents.process_death import ProcessDeath
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.client import record
from counterpoint.manager.gateway.ledger import SpendRecord
from counterpoint.proto.ids import new_id
from counterpoint.proto.messages import Message
from counterpoint.proto.tasks import ENDED


@dataclass
class MortalHouse(House):
    """A house whose manager dies at request `dies_at` of a delivery, before memory has it or after it has answered."""

    dies_at: int | None = None
    answered: bool = False

    async def transport(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        if self.dies_at is not None:
            self.dies_at -= 1
        dies = self.dies_at == 0
        if dies and not self.answered:
            raise ProcessDeath
        reply = await super().transport(subject, body, timeout_s)
        if dies:
            raise ProcessDeath
        return reply

    def deliver(self, message: Message, message_id: str | None = None, version: int | None = None) -> str:
        message_id = message_id or new_id()
        try:
            return super().deliver(message, message_id, version)
        except ProcessDeath:
            return super().deliver(message, message_id, version)


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 8))
@pytest.mark.parametrize("dies_in", ["hold", "approve", "reject", "expire", "change"])
def test_a_manager_killed_at_any_request_asks_and_acts_once(dies_in: str, dies_at: int, answered: bool) -> None:
    house = MortalHouse(approvals=ASKING, answered=answered)
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
def test_transitions_stay_legal_and_nothing_is_offered_without_approval(steps: list[str]) -> None:
    house = House(approvals=ASKING)
    house.route()
    for step in steps:
        task = house.task()
        match step:
            case "propose" if house.work_under_way():
                house.developer("proposed")
            case "stop" if house.work_under_way():
                house.developer("stopped")
            case "approve" | "reject" if task.waiting_for == "approval" and pending_approval(house).state == "pending":
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
