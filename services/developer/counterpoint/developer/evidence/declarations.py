"""Declarations of persons that two failures are the same or different."""

from collections.abc import Sequence

from counterpoint.developer.evidence.failure import Failure
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.links import Link, Side


def declared_same(links: Sequence[Link], task_id: str, current: Failure, attempt: Attempt) -> bool | None:
    """Return whether a person declared this failure and that of `attempt` the same; None without a declaration.

    This task matches a side of a pair by its id, or by signature and job. A match by signature alone counts if the
    other side has another signature.
    """
    for link in sorted(links, key=lambda link: link.at, reverse=True):
        first, second = link.pair
        for mine, other in ((first, second), (second, first)):
            if _is_other_side(other, attempt) and _is_this_side(mine, other, task_id, current):
                return link.relation != "different"
    return None


def _is_this_side(side: Side, other: Side, task_id: str, current: Failure) -> bool:
    if side.task_id == task_id:
        return True
    if current.digest is None or side.error_signature != current.digest or other.task_id == task_id:
        return False
    if current.generic or other.error_signature == current.digest:
        return side.job is not None and side.job == current.job
    return True


def _is_other_side(side: Side, attempt: Attempt) -> bool:
    return attempt.attempt_id == side.attempt_id or attempt.task_id == side.task_id
