"""Tools about work: delegate, override, read tasks and their lines, report what was tried."""

from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Any

from fastmcp import Context as McpContext
from fastmcp.tools.base import ToolResult
from pydantic import Field

from counterpoint.card.content import task_title
from counterpoint.client import records
from counterpoint.proto.attempts import FixedBy, Outcome, ReportOutcome
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.interventions import Override
from counterpoint.proto.memory import AsOf, List
from counterpoint.proto.messages import Id, Shape
from counterpoint.proto.tasks import Kind, SubmitTask, Task
from counterpoint.proto.validation import parse
from counterpoint.router.api.context import RequestContext
from counterpoint.router.api.jobs import parse_job
from counterpoint.router.api.task_line import read_line
from counterpoint.router.api.task_state import current_task, is_settled, watch_task
from counterpoint.router.api.tasks import override_task, read_task, report_outcome, submit_task
from counterpoint.router.api.waiting_tasks import waiting_tasks
from counterpoint.router.mcp.caller import Project, TaskIdArgument, WaitArgument, caller
from counterpoint.router.mcp.knowledge import import_attempt
from counterpoint.router.mcp.task_view import TaskView, as_result, view

_WAITING = 50
"""Maximum number of waiting tasks that an ambiguous override names."""
_ANYWAY = "The caller takes responsibility and skips the confidence check."


class LineAction(Shape):
    """One step of the reasoning about a task."""

    seq: int
    agent: str
    kind: str
    reasoning: str
    result: str | None = None
    at: str
    sources: tuple[str, ...] = ()


class LineDecision(Shape):
    """One decision about a task."""

    decision_id: str
    agent: str
    decision_type: str
    decision: str
    reasoning: str
    made_at: str


class LineView(Shape):
    """The reasoning of a task: its actions in order, the oldest first, and its decisions."""

    task_id: str
    project: str
    actions: tuple[LineAction, ...]
    decisions: tuple[LineDecision, ...]


class Escalations(Shape):
    """Tasks that wait for a person or an agent; `more` of them than the limit allows."""

    project: str
    items: tuple[TaskView, ...]
    more: bool = False


class LoggedAttempt(Shape):
    """A recorded attempt. `late`: its task has ended, as `state` says, so that it has no effect on it."""

    status: str
    task_id: str | None = None
    attempt_id: str | None = None
    state: str | None = None
    late: bool = False


async def delegate_to_developer(
    ctx: McpContext,
    task: Annotated[str, Field(min_length=1, max_length=16_000, description="What is to be done or has failed.")],
    context: Annotated[dict[str, Any] | None, Field(description="Further facts, as JSON.")] = None,
    override_confidence: Annotated[
        bool, Field(description="Skip the confidence check: you take responsibility. An override, recorded as yours.")
    ] = False,
    kind: Annotated[
        Kind | None, Field(description="Left out: troubleshoot with an error_message, else develop.")
    ] = None,
    error_message: Annotated[str | None, Field(max_length=16_000, description="The error as it was.")] = None,
    systems: Annotated[tuple[str, ...], Field(max_length=20, description="External systems that it touches.")] = (),
    job: Annotated[str | None, Field(description="The failed job, NAMESPACE/NAME.")] = None,
    session_id: Annotated[Id | None, Field(description="The session that it belongs to.")] = None,
    task_id: Annotated[
        Id | None, Field(description="An id of your own: the same id and content is the same task.")
    ] = None,
    wait_s: WaitArgument = 30,
    project: Project = None,
) -> ToolResult:
    """Give the developer agent a task and return its answer, proposal or escalation with its confidence.

    Example: {"task": "load_stock fails since midnight", "error_message": "permission denied for table stock"}
    """
    request = caller(project)
    request.require("submit")
    if override_confidence:
        request.require("override")
    body: dict[str, Any] = {
        "kind": kind or ("troubleshoot" if error_message else "develop"),
        "description": task,
        "context": context,
        "error_message": error_message,
        "systems": list(systems),
        "target": {"job": parse_job(job).model_dump()} if job else None,
        "session_id": session_id,
        "task_id": task_id,
    }
    body = {name: each for name, each in body.items() if each not in (None, [])}
    submission = parse(SubmitTask.TYPE, body)
    assert isinstance(submission, SubmitTask)
    accepted = await submit_task(request, submission, body)
    settled: Callable[[Task], bool] = is_settled
    if override_confidence and accepted.override is None:
        override = {"instruction": task, "reasoning": _ANYWAY, "confidence_override": True}
        await override_task(request, _override(accepted.task_id, override))
        settled = _settled_under_override
    if not request.may("read"):
        return as_result(accepted)
    await _wait(ctx, request, accepted.task_id, wait_s, settled)
    found = await read_task(request, accepted.task_id)
    # A task without a record yet lacks the fields that the reply to its submission has.
    return as_result(accepted if found.state == "submitted" else found)


async def override_developer(
    ctx: McpContext,
    instruction: Annotated[str, Field(min_length=1, max_length=16_000, description="The approach to take.")],
    reasoning: Annotated[str, Field(min_length=1, max_length=16_000, description="Why earlier attempts failed.")],
    constraints: Annotated[tuple[str, ...], Field(max_length=50, description="What to do first, or not to do.")] = (),
    task_id: Annotated[Id | None, Field(description="The task; may be left out while only one waits.")] = None,
    confidence_override: Annotated[bool, Field(description="Continue at any confidence.")] = True,
    wait_s: WaitArgument = 30,
    project: Project = None,
) -> ToolResult:
    """Override the developer agent with an explicit instruction, and return what it makes of it.

    Use it when the same error came twice, when the change spans several DAGs, when confidence stays low, or when a
    person says "take over". It is recorded under your name.
    Example: {"instruction": "Grant the loader access to the new table", "reasoning": "Both attempts retried the run",
    "constraints": ["no superuser rights"]}
    """
    request = caller(project)
    request.require("override")
    task_id = task_id or await _only_waiting_task(request)
    body = {
        "instruction": instruction,
        "reasoning": reasoning,
        "constraints": list(constraints),
        "confidence_override": confidence_override,
    }
    override = _override(task_id, body)
    before = (await current_task(request, task_id)).version if request.may("read") else None
    receipt = await override_task(request, override)
    if receipt.late:
        problem = Problem(field="task_id", problem=f"is {receipt.state}: an override comes too late")
        raise Permanent(ErrorCode.CONFLICT, (problem,))
    if not request.may("read"):
        return ToolResult(structured_content={"task_id": task_id, "state": "working", "next": ""})
    await _wait(ctx, request, task_id, wait_s, lambda task: is_settled(task) and task.version != before)
    return as_result(await read_task(request, task_id))


async def get_task(task_id: TaskIdArgument, wait_s: WaitArgument = 0, project: Project = None) -> ToolResult:
    """Return a task: its state, its proposal or answer, what it waits for, and its card.

    Example: {"task_id": "incident-0f3a", "wait_s": 30}
    """
    return as_result(await read_task(caller(project), task_id, wait_s))


async def get_line(
    task_id: TaskIdArgument,
    as_of: Annotated[AsOf | None, Field(description="As it was at a commit's id or a time.")] = None,
    project: Project = None,
) -> LineView:
    """Return the reasoning of a task: every step of every agent with its sources, and the decisions.

    Example: {"task_id": "incident-0f3a"}
    """
    context = caller(project)
    line = await read_line(context, task_id, as_of)
    names = {(each["store"], each["id"]): each["name"] for each in line["sources"]}
    actions = tuple(
        LineAction.model_validate({**each, "sources": _source_names(each.get("sources", ()), names)})
        for each in line["items"]
    )
    decisions = tuple(LineDecision.model_validate(each) for each in line["decisions"])
    return LineView(task_id=task_id, project=context.project, actions=actions, decisions=decisions)


async def list_escalations(
    limit: Annotated[int, Field(ge=1, le=100, description="Maximum number of tasks.")] = 20, project: Project = None
) -> Escalations:
    """List the tasks that wait for a person or an agent, with what each one needs, and proposals without an outcome.

    Example: {"limit": 10}
    """
    context = caller(project)
    tasks, more = await waiting_tasks(context, limit)
    return Escalations(project=context.project, items=tuple(map(view, tasks)), more=more)


async def log_attempt(
    outcome: Annotated[Outcome, Field(description="How it ended.")],
    tried: Annotated[
        str | None, Field(max_length=16_000, description="What was done. Left out: the task's proposal.")
    ] = None,
    task_id: Annotated[Id | None, Field(description="The task that it was for, if any.")] = None,
    attempt: Annotated[int | None, Field(ge=1, le=1_000, description="The task's attempt, or the latest.")] = None,
    error_message: Annotated[
        str | None, Field(max_length=16_000, description="The error, or that of the attempt.")
    ] = None,
    description: Annotated[str | None, Field(max_length=16_000, description="The failure, without a task_id.")] = None,
    note: Annotated[str | None, Field(max_length=16_000, description="What was learned.")] = None,
    by: Annotated[
        FixedBy | None,
        Field(description="Cause of a success: left out, `something_else` when `tried` is given, else `proposal`."),
    ] = None,
    not_same: Annotated[
        tuple[Id, ...], Field(max_length=50, description="Earlier attempts shown that belong to another failure.")
    ] = (),
    job: Annotated[str | None, Field(description="The failed job, NAMESPACE/NAME, without a task_id.")] = None,
    systems: Annotated[tuple[str, ...], Field(max_length=50, description="External systems, without a task_id.")] = (),
    project: Project = None,
) -> LoggedAttempt:
    """Record what was tried and how it ended, so that the next task knows.

    With task_id it is the outcome of that task; without, an attempt of its own, which needs an error_message or a
    description. Example: {"task_id": "incident-0f3a", "outcome": "succeeded", "tried": "Opened port 53/udp"}
    """
    context = caller(project)
    if task_id is None:
        _require_tried(tried)
        incident = {
            "source": "mcp",
            "tried": tried,
            "outcome": outcome,
            "error_message": error_message,
            "description": description,
            "note": note,
            "job": parse_job(job).model_dump() if job else None,
            "systems": list(systems),
            "when": datetime.now(UTC).isoformat(),
            "by": context.principal.name,
        }
        recorded = await import_attempt(context, {name: each for name, each in incident.items() if each is not None})
        return LoggedAttempt(status=recorded.status, attempt_id=recorded.id)
    context.require("report")
    body = {
        "task_id": task_id,
        "outcome": outcome,
        "attempt": attempt,
        "error_message": error_message,
        "note": "\n\n".join(each for each in (tried, note) if each) or None,
        "by": by or ("something_else" if outcome == "succeeded" and tried is not None else None),
        "not_same": not_same or None,
    }
    report = parse(ReportOutcome.TYPE, {name: each for name, each in body.items() if each is not None})
    assert isinstance(report, ReportOutcome)
    receipt = await report_outcome(context, report)
    return LoggedAttempt(status="reported", task_id=task_id, state=receipt.state, late=receipt.late)


def _require_tried(tried: str | None) -> None:
    if tried is None:
        raise Permanent(ErrorCode.INVALID, (Problem(field="tried", problem="is required without a task_id"),))


def _override(task_id: str, body: dict[str, Any]) -> Override:
    value = parse(Override.TYPE, {**body, "task_id": task_id})
    assert isinstance(value, Override)
    return value


def _settled_under_override(task: Task) -> bool:
    return is_settled(task) and task.override is not None


async def _wait(
    ctx: McpContext, context: RequestContext, task_id: str, wait_s: float, until: Callable[[Task], bool]
) -> None:
    """Wait for a task, and report each change of its state as progress."""
    shown: tuple[Any, ...] | None = None
    changes = 0
    async with aclosing(watch_task(context, task_id, wait_s)) as readings:
        async for task in readings:
            if (state := (task.state, task.waiting_for, task.attempt)) != shown:
                shown, changes = state, changes + 1
                words = f"{task.state}, attempt {task.attempt}" if task.attempt else task.state
                await ctx.report_progress(changes, message=words)
            if until(task):
                return


async def _only_waiting_task(context: RequestContext) -> str:
    """Return the id of the only task that waits. Raises `Permanent` `ambiguous` or `not_found`."""
    context.require("read")
    found = await context.fetch(List(store="tasks", where={"state": "input_required"}, limit=_WAITING))
    waiting = records(found.items, Task)
    if not waiting:
        problem = f"no task of project {context.project} waits; name the one to override"
        raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="task_id", problem=problem),))
    if len(waiting) > 1:
        raise Permanent(
            ErrorCode.AMBIGUOUS,
            tuple(
                Problem(
                    field="task_id",
                    problem=f"{task.task_id} waits for {task.waiting_for}: {task_title(task)}",
                )
                for task in waiting
            ),
        )
    return waiting[0].task_id


def _source_names(sources: list[dict[str, Any]], names: dict[tuple[str, str], str]) -> tuple[str, ...]:
    return tuple(names.get((each["store"], each["id"]), f"{each['store']}/{each['id']}") for each in sources)
