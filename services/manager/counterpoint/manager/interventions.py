"""Interventions from outside the work: an override, a cancellation, a timer (rows A6, E2)."""

from datetime import datetime, timedelta

from counterpoint.manager.attempts import with_tried
from counterpoint.manager.bounds import Bounds
from counterpoint.manager.dossier import Dossier
from counterpoint.manager.moves import Move, Said, attempting, late, moved
from counterpoint.manager.work import completed
from counterpoint.manager.workflow import ESCALATED, Event, transition
from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.findings import Findings
from counterpoint.proto.interventions import AmendTask, CancelTask, TaskOverridden
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import TaskCancelled, TaskDue, TaskFailed, TaskResumed


def overridden(dossier: Dossier, message: TaskOverridden, now: datetime) -> Move:
    """The next attempt under an override, at once.

    Work under way is set aside: the record moves on, so what the developer still brings of it is stale.
    The override stands for every delegation until an attempt under it has failed.
    """
    row = transition(dossier.place, Event.OVERRIDDEN)
    given = message.override
    if row is None:
        return late(dossier, f"an override by {given.by} ({given.by_kind})")
    number, waited = dossier.next_attempt, dossier.place in ESCALATED
    reason = f"override by {given.by} ({given.by_kind}), {len(given.constraints)} constraints"
    gate = "confidence gate waived" if given.confidence_override else "confidence gate as it is"
    return Move(
        said=(Said("resume" if waited else "plan", f"{reason}, {gate}: attempt {number} goes to the developer"),),
        decision=f"delegate attempt {number} under override",
        task=attempting(dossier.task, row, now, number, override=given),
        delegate="work",
        messages=(TaskResumed(task_id=message.task_id, reason=reason),) if waited else (),
    )


def amended(dossier: Dossier, message: AmendTask, now: datetime) -> Move:
    """The task pointed at another error, and work on it from the beginning.

    What the developer still brings of the error before is stale, as under an override. An amendment that says what the
    task says already has no effect.
    """
    row = transition(dossier.place, Event.AMENDED)
    said = message.model_dump(exclude={"task_id", "by", "by_kind", "reason"}, exclude_none=True)
    fields = {name: getattr(message, name) for name in said}
    if row is None:
        return late(dossier, f"an amendment by {message.by}")
    if all(getattr(dossier.task, name) == value for name, value in fields.items()):
        return Move(said=(Said("late", f"an amendment by {message.by}: no effect, the task is as it says"),))
    if message.error_message is not None:
        fields["error_signature"] = signature(message.error_message).digest
    number, waited = dossier.next_attempt, dossier.place in ESCALATED
    reason = f"amended by {message.by}: {message.reason}"
    return Move(
        said=(Said("resume" if waited else "plan", f"{reason}; attempt {number} goes to the developer"),),
        decision=f"delegate attempt {number} at another error",
        task=attempting(dossier.task, row, now, number, confidence=None, findings=None, **fields),
        delegate="work",
        messages=(TaskResumed(task_id=message.task_id, reason=reason),) if waited else (),
    )


def cancelled(dossier: Dossier, message: CancelTask, now: datetime) -> Move:
    """The end that somebody asked for, whatever the task was doing."""
    row = transition(dossier.place, Event.CANCEL)
    if row is None:
        return late(dossier, f"a cancellation by {message.by}")
    return Move(
        said=(Said("cancel", f"cancelled by {message.by} ({message.by_kind}) while {dossier.place.state}"),),
        decision="cancel",
        task=moved(dossier.task, row, now, reason=message.reason),
        messages=(TaskCancelled(task_id=message.task_id, by=message.by, reason=message.reason),),
    )


def due(dossier: Dossier, message: TaskDue, now: datetime, bounds: Bounds, failed_at: datetime | None = None) -> Move:
    """Return the move when a timer of the task has come due. `failed_at`: the last failure of its incident.

    Raises `Permanent` for a timer that nobody knows.
    """
    match message.timer:
        case "deadline":
            return _too_late(dossier, now)
        case "outcome":
            return _untold(dossier, now, bounds)
        case "reassess":
            return _to_reassess(dossier, now)
        case "quiet":
            return _quiet(dossier, now, failed_at)
        case unknown:
            raise Permanent("invalid_message", (Problem(field="timer", problem=f"{unknown} is no timer"),))


def _too_late(dossier: Dossier, now: datetime) -> Move:
    row = transition(dossier.place, Event.DEADLINE_DUE)
    deadline = dossier.task.deadline
    if row is None or deadline is None:
        return late(dossier, "the deadline")
    reason = f"the deadline {deadline.isoformat()} has passed after {len(dossier.attempts)} attempts"
    findings = with_tried(dossier.task.findings, dossier.tried)
    failed = TaskFailed(
        task_id=dossier.task.task_id,
        code="deadline",
        reason=reason,
        attempts=len(dossier.attempts),
        findings=findings,
    )
    return Move(
        said=(Said("fail", reason),),
        decision="fail: deadline",
        task=moved(dossier.task, row, now, reason=reason, findings=findings),
        messages=(failed,),
    )


def _untold(dossier: Dossier, now: datetime, bounds: Bounds) -> Move:
    row = transition(dossier.place, Event.OUTCOME_DUE)
    if row is None:
        return late(dossier, "the end of the wait for an outcome")
    result, findings = dossier.task.proposal or "", dossier.task.findings or Findings()
    task = moved(dossier.task, row, now, result=result, resolution="proposed")
    return Move(
        said=(Said("complete", f"attempt {task.attempt} had no outcome for {bounds.outcome_wait_s:.0f} s"),),
        decision="complete as proposed",
        task=task,
        messages=(completed(task, "proposed", result, findings, now),),
    )


def _quiet(dossier: Dossier, now: datetime, failed_at: datetime | None) -> Move:
    row, quiet_s = transition(dossier.place, Event.QUIET_DUE), dossier.task.quiet_s
    if row is None or quiet_s is None:
        return late(dossier, "the end of a quiet time")
    until = failed_at + timedelta(seconds=quiet_s) if failed_at else now
    if until > now:
        said = Said("assess", f"it failed last at {failed_at}: it is not quiet yet")
        return Move(said=(said,), quiet_at=until)
    result = f"no failure for {quiet_s:.0f} s, closed by itself"
    findings = with_tried(dossier.task.findings, dossier.tried)
    task = moved(dossier.task, row, now, result=result, resolution="quiet", findings=findings)
    return Move(
        said=(Said("complete", result),),
        decision="complete as quiet",
        task=task,
        messages=(completed(task, "quiet", result, findings, now),),
    )


def _to_reassess(dossier: Dossier, now: datetime) -> Move:
    row = transition(dossier.place, Event.REASSESS_DUE)
    if row is None:
        return late(dossier, "new knowledge")
    escalation, number = dossier.task.escalation, dossier.next_attempt
    return Move(
        said=(Said("assess", "knowledge has changed: the developer is asked for the confidence as it is now"),),
        task=attempting(dossier.task, row, now, number, escalation=escalation),
        delegate="reassess",
    )
