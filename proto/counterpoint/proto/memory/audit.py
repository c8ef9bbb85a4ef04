"""Queries of the audit log; their replies are in `report`."""

from typing import Literal

from pydantic import Field

from counterpoint.proto.messages import Shape


class Verify(Shape):
    """Verify the audit log of a project or task: hashes, chains, tree, and that records match their commits.

    `checkpoints` are signed checkpoints that the caller kept; the tree is compared with them too.
    """

    op: Literal["verify"] = "verify"
    task_id: str | None = None
    checkpoints: str = ""


class Prove(Shape):
    """Inclusion proofs of a task's leaves, or of one leaf by its id, in the tree of the newest checkpoint."""

    op: Literal["prove"] = "prove"
    task_id: str | None = None
    id: str | None = None
    after: int = Field(default=0, ge=0, lt=2**63)
    limit: int = Field(default=100, ge=1, le=200)


class Checkpoints(Shape):
    """Signed checkpoints of the audit log, newest first; with `before` those of smaller trees."""

    op: Literal["checkpoints"] = "checkpoints"
    before: int | None = Field(default=None, ge=0, lt=2**63)
    limit: int = Field(default=50, ge=1, le=200)


class AuditLeaves(Shape):
    """The leaves of the whole audit log after a position; leaves of other projects as hashes."""

    op: Literal["leaves"] = "leaves"
    after: int = Field(default=0, ge=0, lt=2**63)
    limit: int = Field(default=1000, ge=1, le=4000)


class Explain(Shape):
    """Refusals of a project in plain words, newest first; or one refusal by its id."""

    op: Literal["explain"] = "explain"
    id: str | None = None
    before: int | None = Field(default=None, ge=0, lt=2**63)
    limit: int = Field(default=20, ge=1, le=200)


AuditQuery = Verify | Prove | Checkpoints | AuditLeaves | Explain
