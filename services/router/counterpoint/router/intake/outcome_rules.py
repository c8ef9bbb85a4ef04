"""Outcome rules: the validity of reports about a task. Pure. The manager decides on their effect."""

from typing import Any, Literal

from counterpoint.proto.attempts import SUPERSEDED, ReportOutcome
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.tasks import ENDED, UNANSWERED, Task

Evidence = Literal["reported", "observed"]


def check_outcome(task: Task, report: ReportOutcome, evidence: Evidence) -> None:
    """Raise `Permanent`: `invalid` for an unknown attempt, `conflict` for an outcome that contradicts a reported one,
    or that repeats the one of the attempt before without the number of an attempt.

    A report without a number about an ended task concerns its latest attempt. Reports replace observations.
    """
    if report.by and report.outcome != "succeeded":
        problem = f"is only allowed with the outcome succeeded, not {report.outcome}"
        raise Permanent(ErrorCode.INVALID, (Problem(field="by", problem=problem),))
    latest = _latest(task)
    # Without a pending outcome the report is about the reporter's own next attempt.
    possible = latest if task.state in ENDED or task.waiting_for == "outcome" else latest + 1
    if report.attempt and report.attempt > possible:
        problem = (
            f"attempt {report.attempt} does not exist; the latest is {latest}" if latest else "no attempt was made"
        )
        raise Permanent(ErrorCode.INVALID, (Problem(field="attempt", problem=problem),))
    if evidence == "reported" and (repeated := _repeated(task, report)):
        problem = f"attempt {repeated} has this outcome and note already; if they are about another attempt, name it"
        raise Permanent(ErrorCode.CONFLICT, (Problem(field="attempt", problem=problem),))
    number = report.attempt if evidence == "observed" else _number(task, report)
    stored = task.outcomes.get(str(number))
    if stored is None or stored["outcome"] == _implied_outcome(task, report) or _refines(stored, task, report):
        return
    if evidence == "reported" and _explains(task, report):
        return
    if stored["evidence"] == "reported" or evidence == "observed":
        problem = f"contradicts the reported outcome of attempt {number}, {stored['outcome']}"
        raise Permanent(ErrorCode.CONFLICT, (Problem(field="outcome", problem=problem),))


def is_late(task: Task, report: ReportOutcome | None = None) -> bool:
    """Return whether an intervention comes after the end of a task and has no effect.

    Still effective are the outcome of a proposal or a plan that had none, a report that replaces an observation, and
    the first note of a success. A repeated report is not late, one with another note is.
    """
    if task.state not in ENDED:
        return False
    if report is None:
        return True
    stored = task.outcomes.get(str(_number(task, report)))
    if _explains(task, report):
        return False
    if stored is None:
        return task.resolution not in {*UNANSWERED, "planned"}
    same = stored["outcome"] == _implied_outcome(task, report) and report.note in (None, stored.get("note"))
    adds = stored["outcome"] == _implied_outcome(task, report) and stored.get("note") is None
    return bool(stored["evidence"] == "reported" and not (same or adds or _refines(stored, task, report)))


def _repeated(task: Task, report: ReportOutcome) -> int | None:
    """Return the last attempt with an outcome, if a report without a number has the same outcome and note.

    A sender that repeats itself, such as a language model, must not make the next attempt fail.
    """
    number = max(map(int, task.outcomes), default=0)
    if task.state in ENDED or report.attempt or not report.note or not number:
        return None
    stored = task.outcomes[str(number)]
    return number if (stored["outcome"], stored.get("note")) == (report.outcome, report.note) else None


def _refines(stored: dict[str, Any], task: Task, report: ReportOutcome) -> bool:
    """Return whether a report adds another cause to a success without one."""
    has_no_cause = stored["outcome"] == "succeeded" and stored.get("fixed_by") is None
    return has_no_cause and _implied_outcome(task, report) == SUPERSEDED


def _explains(task: Task, report: ReportOutcome) -> bool:
    """Return whether a report explains a recovery."""
    return bool(task.needs) and report.outcome == "succeeded" and report.attempt is None


def _implied_outcome(task: Task, report: ReportOutcome) -> str:
    """Return the outcome of the proposal that a report implies."""
    by = report.by or ("something_else" if task.shadow and task.override is None else "proposal")
    other = report.outcome == "succeeded" and by != "proposal"
    return SUPERSEDED if other else report.outcome


def _number(task: Task, report: ReportOutcome) -> int | None:
    if report.attempt:
        return report.attempt
    if _implied_outcome(task, report) == SUPERSEDED:
        numbers = [int(number) for number, stored in task.outcomes.items() if stored["outcome"] == SUPERSEDED]
        if numbers:
            return max(numbers)
    return _latest(task) if task.state in ENDED else None


def _latest(task: Task) -> int:
    return max([task.attempt or 0, *map(int, task.outcomes)])
