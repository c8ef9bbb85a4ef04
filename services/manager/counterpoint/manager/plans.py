"""Plans: their records, the documents about missing providers, and what plans came to (docs/agents.md). Pure."""

import hashlib

from counterpoint.manager.task_history import PLANNED_KINDS, TaskHistory
from counterpoint.manager.task_update import ReasoningStep, TaskUpdate, without_effect
from counterpoint.proto.attempts import TaskOutcomeReported
from counterpoint.proto.findings import Findings
from counterpoint.proto.ids import derived_id, document_id
from counterpoint.proto.messages import Time
from counterpoint.proto.plans import Artifact, PlanNote, PlanRecord
from counterpoint.proto.tasks import Task, TaskWorked
from counterpoint.proto.titles import title_of

_TEXT_CHARS, _REASON_CHARS = 1_500, 500


def plans_of(task: Task, message: TaskWorked, now: Time) -> tuple[PlanRecord, ...]:
    """Return the records of the plan in a result: the plan itself, and a document for each missing provider."""
    if task.kind not in PLANNED_KINDS or message.outcome == "proposed" or not message.text:
        return ()
    systems = {"systems": task.systems, "missing": tuple(each.system for each in message.plans)}
    made = {"task_id": task.task_id, "attempt": message.attempt, "at": now, **systems}
    documents = (
        PlanRecord(
            plan_id=derived_id(task.task_id, "plan", each.path),
            text=each.text,
            path=each.path,
            system=each.system,
            **made,
        )
        for each in message.plans
    )
    return (PlanRecord(plan_id=task.task_id, text=message.text, **made), *documents)


def artifacts_of(message: TaskWorked) -> tuple[Artifact, ...]:
    """Return the documents of a result as artifacts of its task."""
    return tuple(
        Artifact(
            path=each.path,
            document_id=document_id(each.path),
            sha256=hashlib.sha256(each.text.encode()).hexdigest(),
        )
        for each in message.plans
    )


def documents_text(message: TaskWorked) -> str:
    """Return the documents of a result as the text that a person approves."""
    return "\n\n".join(f"Store `{each.path}`:\n\n{each.text}" for each in message.plans)


def note_of(task: Task, plan: PlanRecord, now: Time) -> PlanNote:
    """Return what the plan of an ended task came to."""
    return PlanNote(
        task_id=task.task_id,
        text=_note_text(task, plan, _end_of(task)),
        outcome=task.resolution or task.state,
        systems=plan.systems,
        missing=plan.missing,
        at=now,
    )


def reported(note: PlanNote, outcome: str, remark: str | None, by: str, now: Time) -> PlanNote:
    """Return a note with an outcome that was reported after the end of its task."""
    report = f"reported as {outcome} by {by}{f': {remark[:_REASON_CHARS]}' if remark else ''}"
    first, _, rest = note.text.partition("\n")
    return note.model_copy(
        update={"text": "\n".join(filter(None, (f"{first}; {report}", rest))), "outcome": outcome, "at": now}
    )


def _note_text(task: Task, plan: PlanRecord, end: str) -> str:
    job = task.target.job.name if task.target and task.target.job else None
    title = title_of(task.description, task.title, task.error_message, job)
    missing = f"; no official provider of {', '.join(plan.missing)}" if plan.missing else ""
    steps = plan.text.partition("## Steps")[2].partition("## Open points")[0].strip()
    return f"{title}{missing}; {end}\n{steps[:_TEXT_CHARS]}".strip()


def _end_of(task: Task) -> str:
    end = f"the task ended {task.resolution or task.state}"
    tried = [": ".join(filter(None, (one["outcome"], one.get("note")))) for one in task.outcomes.values()]
    reason = task.reason or (task.override.instruction if task.override else None)
    parts = [end, *tried[-3:], *([reason] if reason else [])]
    return "; ".join(part[:_REASON_CHARS] for part in parts)


def without_plans(message: TaskWorked, why: str) -> TaskWorked:
    """Return a result whose documents are not stored."""
    findings: Findings = message.findings
    noted = findings.model_copy(update={"caveats": (*findings.caveats, why)})
    return message.model_copy(update={"plans": (), "findings": noted})


def remember_report(history: TaskHistory, message: TaskOutcomeReported, now: Time) -> TaskUpdate | None:
    """Return the update for an outcome that is reported of a plan after its task ended; None for any other."""
    if history.task.resolution != "planned" or history.plan_note is None:
        return None
    note, summary = history.plan_note[0], f"the plan is reported as {message.outcome} by {message.by}"
    after = reported(note, message.outcome, message.note, message.by, now)
    if note.outcome == message.outcome and after.text.split("\n")[0].rpartition("; ")[2] in note.text:
        return without_effect(history, summary)
    return TaskUpdate(
        steps=(ReasoningStep("learn", summary),), decision="remember what the plan came to", plan_note=after
    )
