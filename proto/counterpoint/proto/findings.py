"""Findings about a task, part of every proposal, escalation and end."""

from typing import Literal

from counterpoint.proto.messages import Id, Shape, Time

NOTHING_IN_COMMON = "few words in common, and not similar in meaning"
"""The reason of a similar attempt that has nothing in common with the failure."""


class SimilarAttempt(Shape):
    """An earlier attempt at the same or a similar failure.

    `evidence`: whether the outcome was reported by a person or observed from a run, `confirmed` whether a trusted
    principal reported it. `outcome` is `superseded` when the
    failure ended for another reason. `summary` is one line for a procedure of a document. `reason` and `constraints`
    are those of the override it followed; `changed` lists known differences at the recovery. `likelihood` is the
    probability that the failures have the same cause, `because` the reasons.
    """

    id: Id
    when: Time
    tried: str
    summary: str | None = None
    outcome: Literal["succeeded", "failed", "partial", "superseded", "unknown"] | str
    note: str | None = None
    evidence: Literal["reported", "observed"] | str = "reported"
    confirmed: bool = True
    by: str
    reason: str | None = None
    constraints: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    score: float
    likelihood: float | None = None
    because: tuple[str, ...] = ()


OUTDATED_SOURCES = "outdated_sources"
"""Key in the context of a task as read: the quoted sources that were changed or taken back since."""
OPEN_SAME_FAILURE = "open_same_failure"
"""Key in the context of a task as read: the oldest other open task about the same failure, with `task_id`,
`submitted_by` and `submitted_at`."""


class Citation(Shape):
    """A span of a stored item: `quote` is the item's text from `start` to `end` (characters).

    A `candidate` is a place to look further: the result is not based on it.
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
    """A job or dataset downstream of the failure, `hops` away.

    `claimed_by` is `caller` for a row that is not known from lineage but named by the submitter of the task.
    """

    kind: Literal["job", "dataset"] | str
    namespace: str
    name: str
    hops: int
    edge: Literal["data", "control"] | str
    owner: str | None = None
    claimed_by: Literal["caller"] | str | None = None


class Findings(Shape):
    """Results of memory and lineage about a task. An empty list means that the search found nothing.

    `likelihood` is the probability that the proposal is right for this failure; from 0.7 the failure counts as
    recognised, below that the proposal is a suggestion.
    """

    similar_attempts: tuple[SimilarAttempt, ...] = ()
    citations: tuple[Citation, ...] = ()
    downstream: tuple[Downstream, ...] = ()
    next_steps: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    likelihood: float | None = None


class Objection(Shape):
    """An objection of the reviewer to a result, with the words to search for or the act to leave out in its next
    version."""

    rule: Literal["prohibition", "number", "part", "system"] | str
    reason: str
    search_for: tuple[str, ...] = ()
    leave_out: str | None = None
