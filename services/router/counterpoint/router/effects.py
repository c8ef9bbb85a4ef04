"""Effects: the consequences that something said about a task can still have, as its record stands. Pure; the manager
decides."""

from typing import Any, Literal

from counterpoint.proto.attempts import SUPERSEDED, ReportOutcome
from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.tasks import ENDED, UNANSWERED, Task

Evidence = Literal["reported", "observed"]


def check_outcome(task: Task, report: ReportOutcome, evidence: Evidence) -> None:
    """Raises `Permanent`: `invalid` for an attempt that was never made, `conflict` for one that is known to differ.

    Without a number a report about an ended task is about its latest attempt; an observation there is only noted. What
    is reported replaces what was observed.
    """
    if report.by and report.outcome != "succeeded":
        problem = f"says what fixed it, and the outcome is {report.outcome}"
        raise Permanent("invalid", (Problem(field="by", problem=problem),))
    made = _latest(task)
    # A task that waits for no outcome takes one as the reporter's own next attempt.
    possible = made if task.state in ENDED or task.waiting_for == "outcome" else made + 1
    if report.attempt and report.attempt > possible:
        said = f"attempt {report.attempt} was never made, the latest is {made}" if made else "no attempt was made"
        raise Permanent("invalid", (Problem(field="attempt", problem=said),))
    number = report.attempt if evidence == "observed" else _number(task, report)
    told = task.outcomes.get(str(number))
    if told is None or told["outcome"] == _meant(task, report) or _refines(told, task, report):
        return
    if evidence == "reported" and _explains(task, report):
        return
    if told["evidence"] == "reported" or evidence == "observed":
        problem = f"is another one than is known for attempt {number}, {told['outcome']}"
        raise Permanent("conflict", (Problem(field="outcome", problem=problem),))


def comes_late(task: Task, report: ReportOutcome | None = None) -> bool:
    """Whether a task has ended, so that what is said about it is only noted.

    An end is followed by the outcome of a proposal that had none in time, and by a report in the place of what was
    observed; a report that is known already is not late.
    """
    if task.state not in ENDED:
        return False
    if report is None:
        return True
    told = task.outcomes.get(str(_number(task, report)))
    if _explains(task, report):
        return False
    if told is None:
        return task.resolution not in UNANSWERED
    differs = told["outcome"] != _meant(task, report) and not _refines(told, task, report)
    return bool(told["evidence"] == "reported" and differs)


def _refines(told: dict[str, Any], task: Task, report: ReportOutcome) -> bool:
    """Whether a success that was reported without a cause is now said to be due to something else."""
    unsaid = told["outcome"] == "succeeded" and told.get("fixed_by") is None
    return unsaid and _meant(task, report) == SUPERSEDED


def _explains(task: Task, report: ReportOutcome) -> bool:
    """Whether a report answers what is asked after a recovery."""
    return bool(task.needs) and report.outcome == "succeeded" and report.attempt is None


def _meant(task: Task, report: ReportOutcome) -> str:
    """The outcome of the proposal that a report is about. In shadow nobody was shown it."""
    by = report.by or ("something_else" if task.shadow and task.override is None else "proposal")
    other = report.outcome == "succeeded" and by != "proposal"
    return SUPERSEDED if other else report.outcome


def _number(task: Task, report: ReportOutcome) -> int | None:
    if report.attempt:
        return report.attempt
    if _meant(task, report) == SUPERSEDED:
        before = [int(number) for number, told in task.outcomes.items() if told["outcome"] == SUPERSEDED]
        if before:
            return max(before)
    return _latest(task) if task.state in ENDED else None


def _latest(task: Task) -> int:
    return max([task.attempt or 0, *map(int, task.outcomes)])
