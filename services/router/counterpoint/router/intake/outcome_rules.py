"""Outcome rules: the validity of reports about a task. Pure. The manager decides on their effect."""

from typing import Any, Literal

from counterpoint.proto.attempts import SUPERSEDED, ReportOutcome
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.tasks import ENDED, UNANSWERED, Task

Evidence = Literal["reported", "observed"]


def check_outcome(task: Task, report: ReportOutcome, evidence: Evidence) -> None:
    """Raise `Permanent`: `invalid` for an unknown attempt, `conflict` for an outcome that contradicts a reported one.

    A report without a number about an ended task concerns its latest attempt. Reports replace observations.
    """
    if report.by and report.outcome != "succeeded":
        problem = f"is only allowed with the outcome succeeded, not {report.outcome}"
        raise Permanent(ErrorCode.INVALID, (Problem(field="by", problem=problem),))
    made = _latest(task)
    # Without a pending outcome the report is about the reporter's own next attempt.
    possible = made if task.state in ENDED or task.waiting_for == "outcome" else made + 1
    if report.attempt and report.attempt > possible:
        said = f"attempt {report.attempt} does not exist; the latest is {made}" if made else "no attempt was made"
        raise Permanent(ErrorCode.INVALID, (Problem(field="attempt", problem=said),))
    number = report.attempt if evidence == "observed" else _number(task, report)
    told = task.outcomes.get(str(number))
    if told is None or told["outcome"] == _meant(task, report) or _refines(told, task, report):
        return
    if evidence == "reported" and _explains(task, report):
        return
    if told["evidence"] == "reported" or evidence == "observed":
        problem = f"contradicts the reported outcome of attempt {number}, {told['outcome']}"
        raise Permanent(ErrorCode.CONFLICT, (Problem(field="outcome", problem=problem),))


def is_late(task: Task, report: ReportOutcome | None = None) -> bool:
    """Return whether an intervention comes after the end of a task and has no effect.

    Still effective are the outcome of a proposal that had none, and a report that replaces an observation. A repeated
    report is not late.
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
    """Return whether a report adds another cause to a success without one."""
    unsaid = told["outcome"] == "succeeded" and told.get("fixed_by") is None
    return unsaid and _meant(task, report) == SUPERSEDED


def _explains(task: Task, report: ReportOutcome) -> bool:
    """Return whether a report explains a recovery."""
    return bool(task.needs) and report.outcome == "succeeded" and report.attempt is None


def _meant(task: Task, report: ReportOutcome) -> str:
    """Return the outcome of the proposal that a report implies."""
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
