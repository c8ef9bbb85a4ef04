"""Findings: what is known about a task, handed out with every proposal, escalation and end."""

from typing import Literal

from counterpoint.proto.messages import Id, Shape, Time


class SimilarAttempt(Shape):
    """An earlier try at the same or a similar failure.

    `evidence` says whether a person reported the outcome or a run showed it. `outcome` is `superseded` where the
    failure ended for another reason. `summary` is the act in a line, where it is a procedure of a document. `reason`
    and `constraints` stood beside the instruction that it followed; `changed` is what was known to differ when the
    failure was over. `likelihood` is the probability that the failures have the same cause, `because` the reasons.
    """

    id: Id
    when: Time
    tried: str
    summary: str | None = None
    outcome: Literal["succeeded", "failed", "partial", "superseded", "unknown"] | str
    note: str | None = None
    evidence: Literal["reported", "observed"] | str = "reported"
    by: str
    reason: str | None = None
    constraints: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    score: float
    likelihood: float | None = None
    because: tuple[str, ...] = ()


class Citation(Shape):
    """A span of a stored item: `quote` is the item's text from `start` to `end` (characters).

    A `candidate` is a place to look further: the result does not rest on it.
    """

    store: str
    id: str
    version: int
    source_path: str
    start: int
    end: int
    quote: str
    role: Literal["candidate"] | str | None = None


class Downstream(Shape):
    """A job or dataset that rests on what failed, `hops` away.

    Rows are looked up in lineage. `claimed_by` is `caller` for a row that only the submitter of the task has named.
    """

    kind: Literal["job", "dataset"] | str
    namespace: str
    name: str
    hops: int
    edge: Literal["data", "control"] | str
    owner: str | None = None
    claimed_by: Literal["caller"] | str | None = None


class Findings(Shape):
    """Knowledge of memory and lineage about a task. Empty lists mean: looked, and nothing found.

    `likelihood` is the probability that what is proposed is right for this failure; from 0.7 the failure counts as
    recognised, below that the proposal is an offer.
    """

    similar_attempts: tuple[SimilarAttempt, ...] = ()
    citations: tuple[Citation, ...] = ()
    downstream: tuple[Downstream, ...] = ()
    next_steps: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    likelihood: float | None = None
