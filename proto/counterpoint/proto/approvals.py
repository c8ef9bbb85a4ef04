"""Approvals: acts that wait for a person, bound to the sha256 of the text shown (docs/approvals.md).

The record's transitions are pure functions here. An approval is decided by one person, once, before it expires.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.messages import Id, Message, ProjectName, Shape, Time, Usd
from counterpoint.proto.principals import PrincipalKind

STORE = "approvals"

Category = Literal["spend", "proposal", "document", "web"]
LargeAct = Literal["erasure", "take_back"]
"""Acts of persons that a second person approves over a size, in place of a `Category`. They belong to no task."""
ApprovalState = Literal["pending", "approved", "rejected", "expired", "withdrawn", "applied", "outdated"]
Verdict = Literal["approved", "rejected"]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
CLOSED: frozenset[str] = frozenset({"rejected", "expired", "withdrawn", "applied", "outdated"})
"""States that do not change any more."""


class ApprovalRequested(Message):
    """An act waits for a person. `reminder` counts how often the request was repeated since."""

    TYPE: ClassVar[str] = "counterpoint.approval.requested.v1"

    approval_id: Id
    task_id: Id
    category: str
    artifact_sha256: str
    summary: str
    expires_at: Time
    reminder: int = 0


class ApprovalDecided(Message):
    """A person decided."""

    TYPE: ClassVar[str] = "counterpoint.approval.decided.v1"

    approval_id: Id
    decision: Verdict
    artifact_sha256: str
    by: str
    reason: str | None = None
    task_id: Id | None = None


class PendingApproval(Shape):
    """The approval that a task waits for, in the task's record. `remind_at`: when the request is repeated."""

    approval_id: Id
    category: Category | str
    artifact_sha256: str
    expires_at: Time
    remind_at: tuple[Time, ...] = ()

    def next_check(self, now: datetime) -> datetime:
        """Return when the approval is looked at next: at its next reminder, or at its end."""
        return min((at for at in self.remind_at if at > now), default=self.expires_at)


class RefusedCall(Shape):
    """The estimate of a model call that a limit refused; without `usd` the price is unknown. `principal`: whose tool
    made the call; none for a call of the developer."""

    usd: Usd | None = None
    tokens: int
    principal: str | None = None


class Lift(Shape):
    """An amount by which one limit is lifted. `spend_id` is the record that counts the spending under it.

    `cap_*` is the limit as shown, with earlier lifts; an absent cap is not lifted.
    """

    spend_id: str
    limit: str
    cap_usd: Usd | None = None
    used_usd: Usd | None = None
    by_usd: Usd | None = None
    cap_tokens: int | None = None
    used_tokens: int | None = None
    by_tokens: int | None = None


class ApprovalDecision(Shape):
    """A decision: `artifact_sha256` is the hash of the text that the person saw."""

    decision: Verdict
    artifact_sha256: Sha256
    reason: str | None = Field(default=None, min_length=1, max_length=16_000)

    @model_validator(mode="after")
    def _check_reason(self) -> Self:
        if self.decision == "rejected" and not self.reason:
            raise ValueError("reason must be given for a rejection")
        return self


class ShownApproval(Shape):
    """An approval as people see it. `artifact` is the text shown; `version` is that of the record. `decided_for`: the
    person in whose place a deputy decided. `requested_by`: who asked for a large act, which has no task."""

    approval_id: Id
    project: ProjectName
    task_id: Id | None = None
    requested_by: str | None = None
    category: Category | LargeAct | str
    autonomy: str
    summary: str
    artifact: str
    artifact_sha256: str
    state: ApprovalState | str = "pending"
    requested_at: Time
    expires_at: Time
    decided_by: str | None = None
    decided_for: str | None = None
    decided_at: Time | None = None
    reason: str | None = None


class Approval(ShownApproval):
    """A record of the store `approvals`.

    `held` is the developer's result that waits, without the text of a proposal, which is the artifact. `lifts` are the
    amounts by which limits are lifted, for the call `refused`. `act` is the key of a large act: what is asked for,
    whatever it covers at present.
    """

    lifts: tuple[Lift, ...] = ()
    refused: RefusedCall | None = None
    held: dict[str, Any] | None = None
    remind_at: tuple[Time, ...] = ()
    act: str | None = None

    @property
    def is_intact(self) -> bool:
        """Whether the stored text is the one that was hashed, and states the stored lifts."""
        stated = not self.lifts or self.artifact == lifts_as_text(self.lifts)
        return stated and artifact_sha256(self.artifact) == self.artifact_sha256

    @property
    def decision(self) -> Verdict | None:
        """The decision, None without one."""
        if self.decided_by is None:
            return None
        return "rejected" if self.state == "rejected" else "approved"

    @property
    def has_second_person(self) -> bool:
        """Whether the person who decided, and the one in whose place, is another than the one who asked."""
        return self.requested_by not in (self.decided_by, self.decided_for)

    def state_at(self, now: datetime) -> str:
        """Return the state, `expired` as soon as the time is over."""
        return "expired" if self.state == "pending" and now >= self.expires_at else self.state

    def decided(
        self,
        given: ApprovalDecision,
        by: str,
        by_kind: PrincipalKind | str,
        now: datetime,
        delegators: Sequence[str] = (),
    ) -> "Approval":
        """Return the approval after a decision, which a deputy takes in the place of the first of their `delegators`
        who did not ask for the act. The same decision again by the same person changes nothing.

        Raises `Denied` for anyone but a person, and for the one who asked or a deputy of theirs alone; `Permanent`
        `conflict` for an approval that is decided, expired or closed, or a hash of another text.
        """
        if by_kind != "person":
            raise Denied(ErrorCode.ROLE, "a person, to decide an approval")
        in_place_of = next((each for each in delegators if each != self.requested_by), None)
        if self.requested_by is not None and (by == self.requested_by or (delegators and in_place_of is None)):
            raise Denied(ErrorCode.ROLE, f"a second person, neither {self.requested_by} who asked nor their deputy")
        is_known = self.is_intact or given.decision == "rejected"
        if given.artifact_sha256 != self.artifact_sha256 or not is_known:
            raise _conflict("artifact_sha256", "is not that of the text to approve; read the approval again")
        state = self.state_at(now)
        if state != "pending":
            if (self.decision, self.decided_by) == (given.decision, by):
                return self
            raise _conflict("decision", f"comes too late: the approval {self._outcome(state)}")
        decided = {"state": given.decision, "decided_by": by, "decided_at": now, "reason": given.reason}
        decided |= {"decided_for": in_place_of} if in_place_of else {}
        return self.model_copy(update=decided)

    def expired(self, now: datetime) -> "Approval":
        """Return the approval at `now`, expired if nobody decided in time."""
        return self.model_copy(update={"state": self.state_at(now)})

    def applied(self) -> "Approval":
        """Return an approved approval after its act was done; another one as it is."""
        return self.model_copy(update={"state": "applied"}) if self.state == "approved" else self

    def abandoned(self, reason: str) -> "Approval":
        """Return the approval after its subject changed or its task went on without it.

        A pending one is withdrawn, an approved one outdated: its act was not and will not be done.
        """
        state = {"pending": "withdrawn", "approved": "outdated"}.get(self.state)
        return self.model_copy(update={"state": state, "reason": reason}) if state else self

    def _outcome(self, state: str) -> str:
        if self.decided_by is not None and self.decided_at is not None:
            return f"was {self.decision} by {self.decided_by} at {self.decided_at:%Y-%m-%d %H:%M} UTC"
        if state == "expired":
            return f"expired at {self.expires_at:%Y-%m-%d %H:%M} UTC"
        return f"was {state}: {self.reason}"


def decision_of(approval: Approval) -> ApprovalDecided | None:
    """Return the message of the decision on an approval, None without one."""
    if approval.decision is None or approval.decided_by is None:
        return None
    return ApprovalDecided(
        approval_id=approval.approval_id,
        decision=approval.decision,
        artifact_sha256=approval.artifact_sha256,
        by=approval.decided_by,
        # The reason of one that is outdated says why it does not apply.
        reason=None if approval.state == "outdated" else approval.reason,
        task_id=approval.task_id,
    )


def artifact_sha256(artifact: str) -> str:
    """Return the hash that binds an approval to the text shown."""
    return hashlib.sha256(artifact.encode()).hexdigest()


def lifts_as_text(lifts: tuple[Lift, ...]) -> str:
    """Return what is approved with these lifts: limits, what was used of them, and the amounts added."""
    lines = []
    for lift in lifts:
        if lift.by_usd is not None:
            lines.append(f"- {lift.limit}: add {lift.by_usd:f} USD to {lift.cap_usd:f} USD, used {lift.used_usd:f} USD")
        if lift.by_tokens is not None:
            used = f"used {lift.used_tokens} tokens"
            lines.append(f"- {lift.limit}: add {lift.by_tokens} tokens to {lift.cap_tokens} tokens, {used}")
    return "Lift the limits that refused a model call:\n" + "\n".join(lines)


def search_as_text(query: str) -> str:
    """Return what is approved with a search of the web: the words that leave the house."""
    return f"Search the web for:\n{query}"


def _conflict(field: str, problem: str) -> Permanent:
    return Permanent(ErrorCode.CONFLICT, (Problem(field=field, problem=problem),))
