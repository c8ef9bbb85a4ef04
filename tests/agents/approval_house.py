"""Approvals that the manager asks for, and the decisions of people."""

from decimal import Decimal
from typing import Any

from agents.manager_house import House

from counterpoint.client import record
from counterpoint.guard.policy import ApprovalPolicy
from counterpoint.proto.approvals import Approval, ApprovalDecided, ApprovalDecision, RefusedCall

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


def pending_approval(house: House) -> Approval:
    """The approval that the task waits for."""
    waiting = house.task().approval
    assert waiting is not None
    (found,) = [each for each in approvals(house) if each.approval_id == waiting.approval_id]
    assert (waiting.artifact_sha256, waiting.expires_at) == (found.artifact_sha256, found.expires_at)
    return found


def decide(house: House, decision: str = "approved", by: str = "ana", told: bool = True) -> str | None:
    """A person decides, as the router writes it; `told` delivers the message to the manager."""
    approval = pending_approval(house)
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
