"""Interventions on a task: outcome, override and cancellation."""

from dataclasses import dataclass

from counterpoint.client import Memory, act, put, record, send
from counterpoint.proto.attempts import Attempt, ReportOutcome, TaskOutcomeReported
from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.interventions import CancelTask, Override, TaskOverridden
from counterpoint.proto.memory import Commit, Get, List, Outgoing, Write
from counterpoint.proto.overrides import OverrideGiven
from counterpoint.proto.tasks import Task
from counterpoint.router.intake.incident_facts import facts_of
from counterpoint.router.intake.intake import signer
from counterpoint.router.intake.outcome_rules import Evidence, check_outcome
from counterpoint.router.intake.submissions import STORE, Submission, task_key
from counterpoint.router.intake.task_links import parts_of, split_writes


@dataclass(frozen=True, slots=True)
class Reporter:
    """The author of an intervention: a principal, its kind, and whether it may read tasks, and cancel others'."""

    by: str
    by_kind: str
    may_read: bool = True
    may_cancel: bool = True


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """A task at the time of an intervention. `task` is None without a record, or when the reporter may not read it.

    `latest` and `proposed` are the ids of the newest action and the newest proposal, if any.
    """

    submission: Submission
    task: Task | None
    latest: tuple[str, ...]
    proposed: tuple[str, ...]


async def task_snapshot(memory: Memory, task_id: str, *, may_read: bool) -> TaskSnapshot:
    """Read a task. Raises `Permanent` `unknown_task`, and what a query raises."""
    task_query = (Get(store="tasks", id=task_id),) if may_read else ()
    accepted, newest, proposals, *tasks = await memory.query(
        Get(store=STORE, id=task_key(task_id)),
        List(store="actions", task_id=task_id, limit=1),
        List(store="actions", task_id=task_id, where={"kind": "propose"}, limit=1),
        *task_query,
    )
    if not accepted.items:
        raise unknown_task(memory.project)
    records = [record(item, Task) for result in tasks for item in result.items]
    return TaskSnapshot(
        record(accepted.items[0], Submission),
        records[0] if records else None,
        tuple(item.id for item in newest.items),
        tuple(item.id for item in proposals.items),
    )


def unknown_task(project: str) -> Permanent:
    """Return the error for an unknown task."""
    problem = f"is not a task of project {project}; select another with `project` or `--project`"
    return Permanent(ErrorCode.UNKNOWN_TASK, (Problem(field="task_id", problem=problem),))


async def outcome(memory: Memory, report: ReportOutcome, reporter: Reporter, evidence: Evidence) -> Commit:
    """Report the outcome of an attempt, also for merged tasks, and split what is declared different.

    Raises `Permanent` `unknown_task`, and what `check_outcome` and `split_writes` do."""
    snapshot = await task_snapshot(memory, report.task_id, may_read=reporter.may_read)
    if snapshot.task:
        check_outcome(snapshot.task, report, evidence)
    attempt = f"attempt {report.attempt}" if report.attempt else "the latest attempt"
    action = act(
        memory,
        signer(reporter.by_kind),
        "outcome",
        report.note or f"{attempt} {report.outcome}, {evidence} by {reporter.by}",
        task_id=report.task_id,
        result=report.outcome,
        after=snapshot.proposed or snapshot.latest,
    )
    message = TaskOutcomeReported(
        task_id=report.task_id,
        attempt=report.attempt,
        outcome=report.outcome,
        error_message=report.error_message,
        note=report.note,
        by=reporter.by,
        by_kind=reporter.by_kind,
        evidence=evidence,
        fixed_by=report.by,
        not_same=report.not_same,
        changed=report.changed,
        action_id=action.action_id,
    )
    splits = await _split_writes(memory, snapshot.task, report, reporter)
    reported = snapshot.task if evidence == "reported" else None
    writes, messages = await _for_parts(memory, reported, report, reporter)
    return Commit(
        writes=(put("actions", action.action_id, action), *splits, *writes), messages=(send(message), *messages)
    )


async def _split_writes(
    memory: Memory, task: Task | None, report: ReportOutcome, reporter: Reporter
) -> tuple[Write, ...]:
    if not report.not_same:
        return ()
    if task is None:
        action = "no attempts were shown for it yet" if reporter.may_read else "needs the role read as well"
        raise Permanent(ErrorCode.INVALID, (Problem(field="not_same", problem=action),))
    return await split_writes(memory, task, report.not_same, report.note, reporter.by, reporter.by_kind)


async def _for_parts(
    memory: Memory, task: Task | None, report: ReportOutcome, reporter: Reporter
) -> tuple[tuple[Write, ...], tuple[Outgoing, ...]]:
    """Return the writes and messages that report a task's success for its merged parts."""
    if task is None or report.outcome != "succeeded":
        return (), ()
    facts = await facts_of(memory, [task.task_id])
    parts_in_facts = [part["task_id"] for each in facts.values() for part in each.get("merged", ())]
    if not (parts := dict.fromkeys((*await parts_of(memory, task.task_id), *parts_in_facts))):
        return (), ()
    fix = await _fix_of(memory, task, report)
    writes, messages = list[Write](), list[Outgoing]()
    for part in parts:
        reasoning = fix or f"resolved with {task.task_id}, into which it is merged"
        action = act(
            memory, signer(reporter.by_kind), "outcome", reasoning, task_id=part, result=report.outcome, step=part
        )
        writes.append(put("actions", action.action_id, action))
        message = TaskOutcomeReported(
            task_id=part,
            outcome=report.outcome,
            note=reasoning,
            by=reporter.by,
            by_kind=reporter.by_kind,
            fixed_by="something_else" if fix else "nothing",
            action_id=action.action_id,
        )
        messages.append(send(message))
    return tuple(writes), tuple(messages)


async def _fix_of(memory: Memory, task: Task, report: ReportOutcome) -> str | None:
    """Return the fix: the note where something else helped, otherwise the reported attempt."""
    number = report.attempt or task.attempt
    proposed = task.waiting_for == "outcome" and (task.override is not None or not task.shadow)
    if report.by in ("something_else", "nothing") or number is None or not proposed:
        return report.note if report.by != "nothing" else None
    where = {"task_id": task.task_id, "attempt": number}
    (result,) = await memory.query(List(store="attempts", where=where, limit=1))
    return record(result.items[0], Attempt).tried if result.items else None


async def override(memory: Memory, request: Override, reporter: Reporter) -> Commit:
    """Forward an instruction that overrides the developer. Raises `Permanent` `unknown_task`."""
    snapshot = await task_snapshot(memory, request.task_id, may_read=False)
    action = act(
        memory,
        signer(reporter.by_kind),
        "override",
        request.reasoning,
        task_id=request.task_id,
        result=request.instruction,
        after=snapshot.latest,
    )
    recorded = OverrideGiven(**request.model_dump(exclude={"task_id"}), by=reporter.by, by_kind=reporter.by_kind)
    message = TaskOverridden(task_id=request.task_id, override=recorded, action_id=action.action_id)
    return Commit(writes=(put("actions", action.action_id, action),), messages=(send(message),))


async def cancellation(memory: Memory, task_id: str, reason: str | None, reporter: Reporter) -> Commit:
    """Request the cancellation of a task. Raises `Permanent` `unknown_task`, and `Denied` for the task of another
    principal if the reporter may not cancel it."""
    snapshot = await task_snapshot(memory, task_id, may_read=False)
    if snapshot.submission.submitted_by != reporter.by and not reporter.may_cancel:
        needed = f"the role override in project {memory.project}, because another principal submitted the task"
        raise Denied(ErrorCode.ROLE, needed)
    return Commit(
        messages=(send(CancelTask(task_id=task_id, by=reporter.by, by_kind=reporter.by_kind, reason=reason)),)
    )
