"""Approvals: acts that wait for a person, bound to the sha256 of the artifact shown."""

from typing import ClassVar, Literal

from counterpoint.proto.messages import Id, Message, Time


class ApprovalRequested(Message):
    """An act waits for a person."""

    TYPE: ClassVar[str] = "counterpoint.approval.requested.v1"

    approval_id: Id
    task_id: Id
    category: str
    artifact_sha256: str
    summary: str
    expires_at: Time


class ApprovalDecided(Message):
    """A person decided."""

    TYPE: ClassVar[str] = "counterpoint.approval.decided.v1"

    approval_id: Id
    decision: Literal["approved", "rejected"]
    artifact_sha256: str
    by: str
    reason: str | None = None
