"""A task for a calling agent: a short record, its card as markdown, and the tool to call next."""

from fastmcp.tools.base import ToolResult
from mcp_types import TextContent

from counterpoint.card.content import card
from counterpoint.card.failure import also_open
from counterpoint.card.prose import outdated, outdated_sources
from counterpoint.card.render import markdown
from counterpoint.proto.messages import Shape
from counterpoint.proto.tasks import ENDED, Need, Task


class TaskView(Shape):
    """A task. `next` is what the caller can do now; empty when nothing is left to do."""

    task_id: str
    project: str
    kind: str
    state: str
    waiting_for: str | None = None
    title: str | None = None
    attempt: int | None = None
    proposal: str | None = None
    result: str | None = None
    resolution: str | None = None
    reason: str | None = None
    confidence: float | None = None
    band: str | None = None
    escalation: str | None = None
    escalated_to: str | None = None
    needs: tuple[Need, ...] = ()
    caveats: tuple[str, ...] = ()
    approval_id: str | None = None
    next: str = ""


def view(task: Task) -> TaskView:
    """Return a task as the caller sees it."""
    names = TaskView.model_fields.keys() & Task.model_fields.keys() - {"confidence", "escalation", "needs"}
    escalation = task.escalation
    return TaskView(
        **{name: getattr(task, name) for name in names},
        confidence=task.confidence.score if task.confidence else None,
        band=task.confidence.band if task.confidence else None,
        escalation=escalation.code if escalation else None,
        escalated_to=escalation.to if escalation else None,
        needs=escalation.needs if escalation else task.needs,
        caveats=(
            *map(str, (*also_open(task).lines[:1], *outdated(task).lines[: len(outdated_sources(task))])),
            *(task.findings.caveats if task.findings else ()),
        ),
        approval_id=task.approval.approval_id if task.approval else None,
        next=next_call(task),
    )


def next_call(task: Task) -> str:
    """Return the tool that the caller can use now, in words."""
    if task.state in ENDED:
        return ""
    if task.state != "input_required":
        return f"It is being worked on: call get_task with task_id {task.task_id} and wait_s 30."
    match task.waiting_for:
        case "outcome" if outdated_sources(task):
            return (
                "A source of the proposal was changed or taken back: call log_attempt with the task_id, "
                f"attempt {task.attempt} and the outcome failed, and it is worked on again."
            )
        case "outcome":
            return f"Try the proposal, then call log_attempt with the task_id, attempt {task.attempt} and the outcome."
        case "approval":
            approval = task.approval.approval_id if task.approval else ""
            return f"A person decides: call decide_approval with approval_id {approval}."
        case "documents":
            return (
                "Supply what it needs with ingest_to_rag; it then continues by itself. "
                f"Or take responsibility with override_developer.{_report(task)}"
            )
        case _:
            return f"Give an instruction with override_developer.{_report(task)}"


def _report(task: Task) -> str:
    return " If you know what fixed it, report that with log_attempt." if task.kind == "troubleshoot" else ""


def as_result(task: Task) -> ToolResult:
    """Return a task as a tool's result: the card for reading, the record for programs."""
    seen = view(task)
    text = f"{markdown(card(task))}\n\n{seen.next}".rstrip()
    return ToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=seen.model_dump(mode="json", exclude_none=True),
    )
