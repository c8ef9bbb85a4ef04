"""The states of an approval: one decision by a person in time, bound to the text shown."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from counterpoint.proto.approvals import CLOSED, Approval, ApprovalDecision, Lift, artifact_sha256, lifts_as_text
from counterpoint.proto.errors import CounterpointError, Denied, Permanent

START = datetime(2026, 3, 2, 3, tzinfo=UTC)
LIFT = Lift(spend_id="t-1", limit="the budget of the task", cap_usd=Decimal(1), used_usd=Decimal(1), by_usd=Decimal(2))
NEXT: dict[str, frozenset[str]] = {
    "pending": frozenset({"approved", "rejected", "expired", "withdrawn"}),
    "approved": frozenset({"applied", "outdated"}),
    **dict.fromkeys(CLOSED, frozenset()),
}


def pending_approval(artifact: str = "restart the service", **changes: Any) -> Approval:
    """An approval that waits for an hour."""
    fields = {
        "approval_id": "a-1",
        "project": "orders",
        "task_id": "t-1",
        "category": "proposal",
        "autonomy": "supervised",
        "summary": "a proposal",
        "artifact": artifact,
        "artifact_sha256": artifact_sha256(artifact),
        "requested_at": START,
        "expires_at": START + timedelta(hours=1),
    }
    return Approval.model_validate(fields | changes)


def decision(given: str = "approved", sha256: str | None = None) -> ApprovalDecision:
    return ApprovalDecision(
        decision=given,
        artifact_sha256=sha256 or artifact_sha256("restart the service"),
        reason="because",
    )


class Decisions(RuleBasedStateMachine):
    """People, agents, the clock and the manager act on one approval in any order."""

    @initialize()
    def begin(self) -> None:
        self.now, self.approval, self.seen = START, pending_approval(), ["pending"]

    def _becomes(self, after: Approval) -> None:
        if after.state != self.approval.state:
            assert after.state in NEXT[self.approval.state]
            self.seen.append(after.state)
        self.approval = after

    @rule(minutes=st.integers(0, 90))
    def time_passes(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)

    @rule(
        by=st.sampled_from(["ana", "ben"]),
        kind=st.sampled_from(["person", "agent", "system", ""]),
        given=st.sampled_from(["approved", "rejected"]),
        same_text=st.booleans(),
    )
    def decide(self, by: str, kind: str, given: str, same_text: bool) -> None:
        before = self.approval
        sha256 = before.artifact_sha256 if same_text else artifact_sha256("restart everything")
        allowed = kind == "person" and same_text and before.state == "pending" and self.now < before.expires_at
        repeated = kind == "person" and same_text and (before.decision, before.decided_by) == (given, by)
        refused: CounterpointError | None
        try:
            after = before.decided(decision(given, sha256), by, kind, self.now)
        except (Denied, Permanent) as error:
            refused = error
        else:
            refused = None
        if refused is not None:
            assert not allowed
            assert not repeated
            assert isinstance(refused, Denied) == (kind != "person")
            if kind == "person" and same_text and before.decided_by:
                assert before.decided_by in str(refused)
            return
        assert allowed or repeated
        assert (after is before) == repeated
        self._becomes(after)
        assert (after.decided_by, after.decision) == (by, given)

    @rule(what=st.sampled_from(["expired", "applied", "abandoned"]))
    def the_manager_acts(self, what: str) -> None:
        match what:
            case "expired":
                self._becomes(self.approval.expired(self.now))
            case "applied":
                self._becomes(self.approval.applied())
            case _:
                self._becomes(self.approval.abandoned("the subject changed"))

    @invariant()
    def one_decision_at_most(self) -> None:
        if not hasattr(self, "approval"):
            return
        approval = self.approval
        assert sum(state in ("approved", "rejected") for state in self.seen) <= 1
        assert (approval.decided_by is not None) == bool({"approved", "rejected"} & set(self.seen))
        assert "applied" not in self.seen or "approved" in self.seen
        if approval.decided_at is not None:
            assert approval.decided_at < approval.expires_at


TestDecisions = Decisions.TestCase


@given(text=st.text(max_size=40), other=st.text(max_size=40))
def test_a_decision_is_about_one_text(text: str, other: str) -> None:
    approval = pending_approval(text)
    given = decision(sha256=artifact_sha256(other))
    if text == other:
        assert approval.decided(given, "ana", "person", START).state == "approved"
    else:
        with pytest.raises(Permanent, match="conflict"):
            approval.decided(given, "ana", "person", START)


def test_a_stored_text_that_is_not_the_hashed_one_cannot_be_approved() -> None:
    redacted = pending_approval().model_copy(update={"artifact": "[redacted:card]"})
    with pytest.raises(Permanent, match="read the approval again"):
        redacted.decided(decision(), "ana", "person", START)


def test_lifts_that_the_text_does_not_state_cannot_be_approved() -> None:
    text = lifts_as_text((LIFT,))
    assert pending_approval(text, lifts=(LIFT,)).is_intact
    dearer = LIFT.model_copy(update={"by_usd": Decimal(200)})
    assert not pending_approval(text, lifts=(dearer,)).is_intact
    assert "add 2 USD to 1 USD, used 1 USD" in text


def test_the_end_of_the_time_is_the_first_moment_that_is_too_late() -> None:
    approval = pending_approval()
    assert approval.decided(decision(), "ana", "person", approval.expires_at - timedelta(microseconds=1))
    with pytest.raises(Permanent, match="expired at 2026-03-02 04:00 UTC"):
        approval.decided(decision(), "ana", "person", approval.expires_at)


def test_a_rejection_says_why() -> None:
    with pytest.raises(ValueError, match="reason must be given"):
        ApprovalDecision(decision="rejected", artifact_sha256=artifact_sha256("x"))
