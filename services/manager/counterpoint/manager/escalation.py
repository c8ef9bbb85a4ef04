"""Escalation: the recipient, the needs, and the commands that supply them (docs/workflow.md)."""

from collections.abc import Iterable

from counterpoint.manager.triggers import Trigger
from counterpoint.manager.workflow import TransitionGuard
from counterpoint.proto.approvals import Lift
from counterpoint.proto.findings import Findings
from counterpoint.proto.tasks import Escalation, Need, Task, TaskEscalated, TaskWorked

ANSWERED_BY_DOCUMENTS = frozenset({"low_confidence", "insufficient_evidence"})


def escalate_stop(task: Task, worked: TaskWorked) -> Escalation:
    """Escalate a stop of the developer to the calling LLM."""
    code = worked.code or "low_confidence"
    needs = worked.needs or (_default_need(code, worked.searched_for or task.systems),)
    return Escalation(
        to="calling_llm",
        code=code,
        needs=tuple(_with_how(task, need) for need in needs),
        searched_for=worked.searched_for,
    )


def escalate_failures(task: Task, to: str, attempts: int, same: int) -> Escalation:
    """Escalate repeated failures for a decision."""
    what = f"how to continue after {attempts} attempts, {same} of them with the same error"
    need = _with_how(task, Need(kind="decision", what=what, how=""))
    return Escalation(to=to, code="repeated_failure", needs=(need,))


def escalate_budget(task: Task, lifts: Iterable[Lift]) -> Escalation:
    """Escalate a refused model call to a person who may lift the limits."""
    limits = ", ".join(lift.limit for lift in lifts)
    how = f"counterpoint approvals --task {task.task_id} --project {task.project}"
    return Escalation(
        to="human", code="budget", needs=(Need(kind="budget", what=f"an approval that lifts {limits}", how=how),)
    )


def escalate_rejection(task: Task, reason: str) -> Escalation:
    """Escalate a proposal that was not approved, for a decision."""
    need = _with_how(task, Need(kind="decision", what=f"how to continue without the proposal: {reason}", how=""))
    return Escalation(to="calling_llm", code="not_approved", needs=(need,))


def escalate_trigger(task: Task, trigger: Trigger) -> Escalation:
    """Escalate a task to the calling LLM, which has to decide although work could go on."""
    need = _with_how(task, Need(kind="decision", what=trigger.what, how=""))
    return Escalation(to="calling_llm", code=trigger.code, needs=(need,))


def escalation_message(task: Task) -> TaskEscalated:
    """Return the message about an escalated task."""
    assert task.escalation is not None, "the task is escalated"
    return TaskEscalated(
        task_id=task.task_id,
        to=task.escalation.to,
        code=task.escalation.code,
        needs=task.escalation.needs,
        confidence=task.confidence,
        findings=task.findings or Findings(),
    )


def ask_cause(task: Task, attempt: int | None) -> Need:
    """Ask for the cause of an unexplained recovery. `attempt`: the proposal that may be the cause."""
    subject = "the job" if task.target and task.target.job else "it"
    report = f"counterpoint outcome {task.task_id} succeeded"
    how = f'{report} --by something-else --note "WHAT WAS CHANGED" --project {task.project}'
    if attempt is None:
        return Need(kind="outcome", what=f"{subject} works again: report what was changed", how=how)
    what = (
        f"{subject} works again: report what was changed; if it was attempt {attempt}, `--by proposal` without a note"
    )
    return Need(kind="outcome", what=what, how=how)


def guard_for_needs(needs: Iterable[Need]) -> TransitionGuard:
    """Return the guard: a document is needed, or a decision."""
    return (
        TransitionGuard.NEEDS_DOCUMENT
        if any(need.kind == "document" for need in needs)
        else TransitionGuard.NEEDS_DECISION
    )


def _default_need(code: str, missing: tuple[str, ...]) -> Need:
    if code in ANSWERED_BY_DOCUMENTS:
        subject = ", ".join(missing) or "the subject of the task"
        return Need(kind="document", what=f"documentation about {subject}", how="")
    return Need(kind="decision", what=f"how to continue: {code}", how="")


def _with_how(task: Task, need: Need) -> Need:
    if need.how:
        return need
    match need.kind:
        case "document" | "provider":
            how = f"counterpoint ingest PATH --project {task.project}"
        case "model":
            how = f'counterpoint outcome {task.task_id} succeeded --note "WHAT WAS DONE" --project {task.project}'
        case _:
            how = f'counterpoint override {task.task_id} "INSTRUCTION" --reason "WHY" --project {task.project}'
    return need.model_copy(update={"how": how})
