"""Interventions: what is said about a task that exists. An outcome, an override, a cancellation (rows A6, A8)."""

from dataclasses import dataclass

from counterpoint.proto.attempts import Attempt, ReportOutcome, TaskOutcomeReported
from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.interventions import CancelTask, Override, TaskOverridden
from counterpoint.proto.memory import Commit, Get, List, Outgoing, Write
from counterpoint.proto.tasks import OverrideGiven, Task
from counterpoint.recall import Memory, act, put, record, send
from counterpoint.router.effects import Evidence, check_outcome
from counterpoint.router.incidents import facts_of
from counterpoint.router.intake import signer
from counterpoint.router.pairs import parts_of, unlinked
from counterpoint.router.submissions import STORE, Submission, task_key


@dataclass(frozen=True, slots=True)
class Sayer:
    """Who says it: a principal and its kind, and whether it may read tasks."""

    by: str
    by_kind: str
    reads: bool = True


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of a task when something is said about it; `task` is None before there is a record, or when the
    sayer may not read it. `latest` and `proposed` are the newest action and the newest proposal, none or one."""

    submission: Submission
    task: Task | None
    latest: tuple[str, ...]
    proposed: tuple[str, ...]


async def standing(memory: Memory, task_id: str, *, reads: bool) -> Standing:
    """What is known of a task. Raises `Permanent` `unknown_task`, and what a query raises."""
    wanted = (Get(store="tasks", id=task_id),) if reads else ()
    accepted, newest, proposals, *tasks = await memory.query(
        Get(store=STORE, id=task_key(task_id)),
        List(store="actions", task_id=task_id, limit=1),
        List(store="actions", task_id=task_id, where={"kind": "propose"}, limit=1),
        *wanted,
    )
    if not accepted.items:
        raise unknown_task(memory.project)
    records = [record(item, Task) for found in tasks for item in found.items]
    return Standing(
        record(accepted.items[0], Submission),
        records[0] if records else None,
        tuple(item.id for item in newest.items),
        tuple(item.id for item in proposals.items),
    )


def unknown_task(project: str) -> Permanent:
    """The error for a task that is not there."""
    problem = f"is no task of project {project}; `project`, on the command line `--project`, names another"
    return Permanent("unknown_task", (Problem(field="task_id", problem=problem),))


async def outcome(memory: Memory, report: ReportOutcome, sayer: Sayer, evidence: Evidence) -> Commit:
    """Hand on how an attempt went, to the tasks that are merged into this one as well, and keep apart what is not the
    same. Raises `Permanent` `unknown_task`, and what `check_outcome` and `unlinked` do."""
    known = await standing(memory, report.task_id, reads=sayer.reads)
    if known.task:
        check_outcome(known.task, report, evidence)
    attempt = f"attempt {report.attempt}" if report.attempt else "the latest attempt"
    said = act(
        memory,
        signer(sayer.by_kind),
        "outcome",
        report.note or f"{attempt} {report.outcome}, {evidence} by {sayer.by}",
        task_id=report.task_id,
        result=report.outcome,
        after=known.proposed or known.latest,
    )
    message = TaskOutcomeReported(
        task_id=report.task_id,
        attempt=report.attempt,
        outcome=report.outcome,
        error_message=report.error_message,
        note=report.note,
        by=sayer.by,
        by_kind=sayer.by_kind,
        evidence=evidence,
        fixed_by=report.by,
        not_same=report.not_same,
        changed=report.changed,
        action_id=said.action_id,
    )
    apart = await _kept_apart(memory, known.task, report, sayer)
    reported = known.task if evidence == "reported" else None
    writes, messages = await _for_parts(memory, reported, report, sayer)
    return Commit(writes=(put("actions", said.action_id, said), *apart, *writes), messages=(send(message), *messages))


async def _kept_apart(memory: Memory, task: Task | None, report: ReportOutcome, sayer: Sayer) -> tuple[Write, ...]:
    if not report.not_same:
        return ()
    if task is None:
        said = "nothing was shown for it yet" if sayer.reads else "takes the role read as well"
        raise Permanent("invalid", (Problem(field="not_same", problem=said),))
    return await unlinked(memory, task, report.not_same, report.note, sayer.by, sayer.by_kind)


async def _for_parts(
    memory: Memory, task: Task | None, report: ReportOutcome, sayer: Sayer
) -> tuple[tuple[Write, ...], tuple[Outgoing, ...]]:
    """Return the success of a task as that of its parts: the act that helped is theirs, their proposals are not."""
    if task is None or report.outcome != "succeeded":
        return (), ()
    facts = await facts_of(memory, [task.task_id])
    joined = [part["task_id"] for each in facts.values() for part in each.get("merged", ())]
    if not (parts := dict.fromkeys((*await parts_of(memory, task.task_id), *joined))):
        return (), ()
    act_of_it = await _act_of(memory, task, report)
    writes, messages = list[Write](), list[Outgoing]()
    for part in parts:
        reasoning = act_of_it or f"resolved with {task.task_id}, which it is a part of"
        said = act(memory, signer(sayer.by_kind), "outcome", reasoning, task_id=part, result=report.outcome, step=part)
        writes.append(put("actions", said.action_id, said))
        message = TaskOutcomeReported(
            task_id=part,
            outcome=report.outcome,
            note=reasoning,
            by=sayer.by,
            by_kind=sayer.by_kind,
            fixed_by="something_else" if act_of_it else "nothing",
            action_id=said.action_id,
        )
        messages.append(send(message))
    return tuple(writes), tuple(messages)


async def _act_of(memory: Memory, task: Task, report: ReportOutcome) -> str | None:
    """Return what helped: the note where something else did, otherwise the attempt that is reported."""
    number = report.attempt or task.attempt
    proposed = task.waiting_for == "outcome" and (task.override is not None or not task.shadow)
    if report.by in ("something_else", "nothing") or number is None or not proposed:
        return report.note if report.by != "nothing" else None
    where = {"task_id": task.task_id, "attempt": number}
    (found,) = await memory.query(List(store="attempts", where=where, limit=1))
    return record(found.items[0], Attempt).tried if found.items else None


async def override(memory: Memory, given: Override, sayer: Sayer) -> Commit:
    """Hand on an instruction that outranks the developer's judgement. Raises `Permanent` `unknown_task`."""
    known = await standing(memory, given.task_id, reads=False)
    said = act(
        memory,
        signer(sayer.by_kind),
        "override",
        given.reasoning,
        task_id=given.task_id,
        result=given.instruction,
        after=known.latest,
    )
    recorded = OverrideGiven(**given.model_dump(exclude={"task_id"}), by=sayer.by, by_kind=sayer.by_kind)
    message = TaskOverridden(task_id=given.task_id, override=recorded, action_id=said.action_id)
    return Commit(writes=(put("actions", said.action_id, said),), messages=(send(message),))


async def cancellation(memory: Memory, task_id: str, reason: str | None, sayer: Sayer) -> Commit:
    """Ask for a task to be called off. Raises `Permanent` `unknown_task`."""
    await standing(memory, task_id, reads=False)
    return Commit(messages=(send(CancelTask(task_id=task_id, by=sayer.by, by_kind=sayer.by_kind, reason=reason)),))
