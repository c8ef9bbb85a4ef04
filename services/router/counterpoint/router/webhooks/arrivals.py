"""Arrivals: a report becomes a task, joins the open incident that it belongs to, reports a recovery, or is a note."""

from datetime import timedelta
from typing import Literal

from counterpoint.bus.turns import urgency_of_task
from counterpoint.client import Memory, act, put, records
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.errors import ErrorCode, Permanent
from counterpoint.proto.memory import Commit, Get
from counterpoint.proto.messages import Shape, utc_now
from counterpoint.proto.tasks import ENDED, SubmitTask, Task
from counterpoint.router.api.context import RequestContext
from counterpoint.router.api.tasks import ADMISSION_TIMEOUT_S
from counterpoint.router.intake.admission import Duplicate, Submitter, TaskArrival
from counterpoint.router.intake.intake import receive, signer
from counterpoint.router.intake.interventions import outcome
from counterpoint.router.intake.open_failures import open_failure
from counterpoint.router.intake.submissions import STORE, IdempotencyRecord, content_sha256, event_key
from counterpoint.router.webhooks.mapping import submission_of
from counterpoint.router.webhooks.reports import IssueNote, Report, issue_key, task_id_of
from counterpoint.router.webhooks.sources import WebhookSource


class EventEffect(Shape):
    """The effect of one event of a request."""

    task_id: str
    effect: Literal["submitted", "joined", "duplicate", "recovered", "unknown", "synced"]
    project: str


async def arrive(context: RequestContext, source: WebhookSource, report: Report) -> EventEffect:
    """Commit a report once. Raises `Permanent` `invalid`, and `Denied` without the role that it needs."""
    if report.resolved:
        return await _recover(context, source, report)
    context.require("submit")
    task = submission_of(source, report)
    event = (f"hooks/{source.name}", report.key)

    async def admit(memory: Memory) -> tuple[EventEffect, Commit]:
        key, joined = event_key(*event), await joinable(context, task)
        if joined is not None and not await memory.get(STORE, key):
            return EventEffect(task_id=joined.task_id, effect="joined", project=context.project), _join(
                memory, joined, task, source, key, context.principal.kind
            )
        arrival = TaskArrival(
            task=task,
            task_id=task.task_id or memory.id("task"),
            project=context.project,
            submitter=Submitter(context.principal.name, context.principal.kind),
            at=memory.now,
            event=event,
        )
        verdict, commit = await receive(memory, arrival, timedelta(seconds=context.resources.settings.idempotency_s))
        if isinstance(verdict, Duplicate):
            return EventEffect(task_id=verdict.task_id, effect="duplicate", project=context.project), commit
        return EventEffect(task_id=arrival.task_id, effect="submitted", project=context.project), commit

    urgency = urgency_of_task(task.priority, task.deadline, utc_now())
    async with context.resources.running_tasks.limiter.slot(context.project, ADMISSION_TIMEOUT_S, urgency):
        return await context.commit(admit)


async def note(context: RequestContext, source: WebhookSource, found: IssueNote) -> tuple[EventEffect, ...]:
    """Note something on the lines of the open tasks of its issues, once; none without one. Raises `Denied`."""
    context.require("submit")
    tasks = await _open_tasks_of(context, source, found)
    if not tasks:
        return ()

    async def noted(memory: Memory) -> tuple[bool, Commit]:
        key = event_key(f"hooks/{source.name}", found.key)
        if await memory.get(STORE, key):
            return False, Commit()
        agent = signer(context.principal.kind)
        actions = [act(memory, agent, "submit", found.text, task_id=each, result="joined", step=each) for each in tasks]
        known = IdempotencyRecord(task_id=tasks[0], content_sha256="", at=memory.now)
        return True, Commit(
            writes=(put(STORE, key, known), *(put("actions", action.action_id, action) for action in actions))
        )

    effect: Literal["joined", "duplicate"] = "joined" if await context.commit(noted) else "duplicate"
    return tuple(EventEffect(task_id=each, effect=effect, project=context.project) for each in tasks)


async def _open_tasks_of(context: RequestContext, source: WebhookSource, found: IssueNote) -> tuple[str, ...]:
    """Return the open tasks that came from issues of this source, or that are synchronized with them."""
    memory = context.resources.memory(context.project, None)
    keys = [event_key(f"hooks/{source.name}", issue_key(found.repository_url, number)) for number in found.numbers]
    answers = await memory.query(*(Get(store=STORE, id=key) for key in keys))
    ids = [str(item.body["task_id"]) for answer in answers for item in answer.items]
    if (issues := context.resources.issues) is not None:
        ids += await issues.tasks_of(memory, found.repository_url, found.numbers)
    known = records(await memory.get_all("tasks", list(dict.fromkeys(ids))), Task)
    return tuple(task.task_id for task in known if task.state not in ENDED)


async def joinable(context: RequestContext, task: SubmitTask) -> Task | None:
    """Return the open task that a report joins; None without one.

    The router reads it on its own account, because a source has no right to read tasks.
    """
    return await open_failure(context.resources.memory(context.project, None), task)


def _join(memory: Memory, open_task: Task, task: SubmitTask, source: WebhookSource, key: str, kind: str) -> Commit:
    """Return the commit that notes a report on the line of an open task, and its event as known."""
    reasoning = f"also reported by {source.name}: {task.title or task.description}"[:2000]
    action = act(memory, signer(kind), "submit", reasoning, task_id=open_task.task_id, result="joined")
    record = IdempotencyRecord(task_id=open_task.task_id, content_sha256=content_sha256(task), at=memory.now)
    return Commit(writes=(put(STORE, key, record), put("actions", action.action_id, action)))


async def _recover(context: RequestContext, source: WebhookSource, report: Report) -> EventEffect:
    """Report that a failure is over, as observed: it is evidence for no fix. A second time has no effect."""
    context.require("report")
    memory = context.resources.memory(context.project, None)
    event = event_key(f"hooks/{source.name}", report.key)
    ended = event_key(f"hooks/{source.name}/resolved", report.key)
    opened, known = await memory.query(Get(store=STORE, id=event), Get(store=STORE, id=ended))
    if not opened.items:
        task_id = task_id_of(source.name, report.key)
        return EventEffect(task_id=task_id, effect="unknown", project=context.project)
    task_id = str(opened.items[0].body["task_id"])
    if known.items or task_id != task_id_of(source.name, report.key):
        # A task that others reported as well does not end with one report.
        return EventEffect(task_id=task_id, effect="duplicate", project=context.project)
    recovery = ReportOutcome(
        task_id=task_id, outcome="succeeded", by="nothing", note=f"{source.name} reports it as over"
    )

    async def report_it(memory: Memory) -> tuple[EventEffect, Commit]:
        commit = await outcome(memory, recovery, context.reporter(), "observed")
        record = IdempotencyRecord(task_id=task_id, content_sha256="", at=memory.now)
        writes = (*commit.writes, put(STORE, ended, record))
        arrived = EventEffect(task_id=task_id, effect="recovered", project=context.project)
        return arrived, commit.model_copy(update={"writes": writes})

    try:
        return await context.commit(report_it)
    except Permanent as error:
        if error.code not in (ErrorCode.INVALID, ErrorCode.CONFLICT):
            raise
        return EventEffect(task_id=task_id, effect="duplicate", project=context.project)
