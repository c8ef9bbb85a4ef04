"""Tasks over HTTP: submission, reading, waiting, and interventions."""

import re
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from counterpoint.bus.turns import urgency_of_task
from counterpoint.client import Memory, put, record, records, send
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.errors import ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.interventions import Override
from counterpoint.proto.memory import Commit, List
from counterpoint.proto.messages import Id, Shape, utc_now
from counterpoint.proto.notifications import NotificationDue
from counterpoint.proto.tasks import ENDED, State, SubmitTask, Task
from counterpoint.proto.validation import ignored_fields
from counterpoint.router.api.body import RequestBody, item_json, json_body, reply
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.api.openapi import request_body
from counterpoint.router.api.task_state import current_task, is_settled, wait_for_task
from counterpoint.router.api.waiting_tasks import escalated_tasks
from counterpoint.router.intake import interventions
from counterpoint.router.intake.admission import (
    Acceptance,
    Duplicate,
    IdempotencyKey,
    Submitter,
    TaskArrival,
    with_sender_fields,
)
from counterpoint.router.intake.cited_sources import with_outdated_sources
from counterpoint.router.intake.incident_facts import with_incidents
from counterpoint.router.intake.intake import receive
from counterpoint.router.intake.open_failures import with_open_failure
from counterpoint.router.intake.outcome_rules import is_late
from counterpoint.router.intake.submissions import (
    STORE,
    IdempotencyRecord,
    Submission,
    body_sha256,
    request_key,
    task_key,
)
from counterpoint.router.paging import Cursor, Limit, ListPage, TaskId, page

router = APIRouter(prefix="/v1", tags=["tasks"])

ADMISSION_TIMEOUT_S = 10.0
"""Maximum time that a submission waits for admission."""
_EXPLAINED_AFTER = timedelta(seconds=5)
"""Time after an answer to what fixed a failure until receivers are told what has become of it."""
_PREFER_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})\"?", re.IGNORECASE)
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


class InterventionReceipt(Shape):
    """Receipt of an intervention; its effect shows in the task.

    `late`: the task has ended, as `state` says, so the intervention has no effect. Both need the role `read`.
    """

    task_id: Id
    state: State | str | None = None
    late: bool = False
    ignored: tuple[str, ...] = ()


class CancelRequest(Shape):
    """A cancellation and its reason."""

    reason: str | None = None


@router.post(
    "/tasks",
    status_code=202,
    responses={200: {"model": Task}, 202: {"model": Task}},
    response_model=None,
    openapi_extra=request_body(SubmitTask),
)
async def submit(
    body: Annotated[RequestBody[SubmitTask], json_body(SubmitTask, "submit")],
    prefer: Annotated[str | None, Header(description="`wait=30`: answer when it has ended or waits for input.")] = None,
    idempotency_key: Annotated[str | None, Header(description="The same key is the same task for 24 h.")] = None,
) -> Response:
    """Submit a task. 202: it is committed. 200: it ended or waits for input within the wait."""
    context, wait_s = body.context, _wait_of(prefer)
    keyed = _idempotency_key(context, idempotency_key, body.content)
    task_record = await submit_task(context, body.value, body.content, keyed, wait_s or 0)
    headers = {"Location": f"/v1/tasks/{task_record.task_id}?project={context.project}"}
    if wait_s is not None and context.may("read"):
        headers["Preference-Applied"] = f"wait={wait_s}"
    return reply(task_record, 200 if wait_s and is_settled(task_record) else 202, headers)


async def submit_task(
    context: RequestContext, task: SubmitTask, content: Any, keyed: IdempotencyKey | None = None, wait_s: float = 0
) -> Task:
    """Admit a task and return it, with `wait_s` once it is settled. `content` is the body that it was parsed from.

    Raises `Permanent` `invalid`, `conflict` or `idempotency_conflict`.
    """
    settings = context.resources.settings

    async def admit_task(memory: Memory) -> tuple[Acceptance | Duplicate, Commit]:
        arrival = TaskArrival(
            task=task,
            task_id=task.task_id or memory.id("task"),
            project=context.project,
            submitter=Submitter(context.principal.name, context.principal.kind),
            at=memory.now,
            ignored=ignored_fields(SubmitTask.TYPE, content),
            request=keyed,
        )
        return await receive(memory, arrival, timedelta(seconds=settings.idempotency_s))

    try:
        urgency = urgency_of_task(task.priority, task.deadline, utc_now())
        async with context.resources.running_tasks.limiter.slot(context.project, ADMISSION_TIMEOUT_S, urgency):
            verdict = await context.commit(admit_task)
    except Permanent as error:
        raise with_sender_fields(error) from error
    task_record = await _after_acceptance(context, verdict, wait_s)
    if task_record.state == "submitted":
        task_record = task_record.model_copy(update=_submitted_fields(task))
    return await _with_open_failure(context, task_record)


@router.get("/tasks", responses={200: {"model": ListPage[Task]}}, response_model=None)
async def tasks(context: Context, cursor: Cursor, state: State | None = None, limit: Limit = 50) -> Response:
    """List tasks, last changed first. A task appears shortly after its submission."""
    context.require("read")
    where = {"state": state} if state else {}
    found = await context.fetch(List(store="tasks", where=where, limit=limit, cursor=cursor))
    listed = await with_incidents(context.memory(), records(found.items, Task))
    return page((item_json(task) for task in listed), found.next_cursor)


@router.get("/escalations", responses={200: {"model": ListPage[Task]}}, response_model=None)
async def escalations(context: Context, cursor: Cursor, limit: Limit = 50) -> Response:
    """List tasks that wait for a person or an agent: `escalation` names who, the reason, and the input needed.

    Tasks merged into an open task are left out.

    A page may be shorter than `limit`; `next_cursor` tells whether there are more.
    """
    escalated, next_cursor = await escalated_tasks(context, limit, cursor)
    return page(map(item_json, escalated), next_cursor)


@router.get("/recoveries", responses={200: {"model": ListPage[Task]}}, response_model=None)
async def recoveries(context: Context, cursor: Cursor, limit: Limit = 50) -> Response:
    """List tasks that recovered without a known cause, newest first: `needs` contains the question and the command."""
    context.require("read")
    query = List(store="tasks", where={"needs": [{"kind": "outcome"}]}, limit=limit)
    found = await context.fetch(query.model_copy(update={"cursor": cursor}))
    return page(map(item_json, records(found.items, Task)), found.next_cursor)


@router.get("/tasks/{task_id}", responses={200: {"model": Task}}, response_model=None)
async def task(
    context: Context,
    task_id: TaskId,
    wait: Annotated[int, Query(ge=0, description="Seconds to wait until it has ended or waits for input.")] = 0,
) -> Response:
    """Return a task; with `wait`, once it has ended or waits for input, or after the wait."""
    return reply(await read_task(context, task_id, wait))


async def read_task(context: RequestContext, task_id: str, wait_s: float = 0) -> Task:
    """Return a task with the live facts of its incident, an open task about the same failure and its outdated sources,
    with `wait_s` once it is settled.

    Raises `Denied`, and `Permanent` `unknown_task`.
    """
    context.require("read")
    memory = context.memory()
    (task_record,) = await with_incidents(memory, [await wait_for_task(context, task_id, wait_s)])
    return await with_outdated_sources(memory, await with_open_failure(memory, task_record))


@router.post(
    "/tasks/{task_id}/outcome",
    status_code=202,
    responses={202: {"model": InterventionReceipt}},
    response_model=None,
    openapi_extra=request_body(ReportOutcome),
)
async def outcome(
    body: Annotated[RequestBody[ReportOutcome], json_body(ReportOutcome, "report")], task_id: TaskId
) -> Response:
    """Report the outcome of an attempt, and the cause of a success. `task_id` may be left out of the body.

    A success is credited to the proposal, unless `by` says otherwise: `something_else`, with the fix in the note, which
    is then learned, or `nothing` for a recovery without a fix. The text of a note alone is not interpreted.
    """
    return reply(await report_outcome(body.context, body.value, body.ignored), 202)


async def report_outcome(
    context: RequestContext, report: ReportOutcome, ignored: tuple[str, ...] = (), *, request_id: str | None = None
) -> InterventionReceipt:
    """Commit the report of an outcome, and that of a request with an id once. Raises `Permanent` `unknown_task`,
    `invalid` or `conflict`."""
    receipt = await _receipt(context, report.task_id, ignored, report)

    async def decide(memory: Memory) -> tuple[None, Commit]:
        if request_id is not None and await memory.get(STORE, request_id):
            return None, Commit()
        commit = await interventions.outcome(memory, report, context.reporter(), "reported")
        if request_id is not None:
            known = IdempotencyRecord(task_id=report.task_id, content_sha256="", at=memory.now)
            commit = commit.model_copy(update={"writes": (*commit.writes, put(STORE, request_id, known))})
        if context.resources.has_receivers and receipt.state in (None, *ENDED) and not receipt.late:
            # The answer to what fixed it changes the task without an event: receivers are told once the manager has it.
            due = NotificationDue(delivery_id=report.task_id, turn=1, task_id=report.task_id)
            later = send(due, due_at=memory.now + _EXPLAINED_AFTER)
            commit = commit.model_copy(update={"messages": (*commit.messages, later)})
        return None, commit

    await context.commit(decide)
    return receipt


@router.post(
    "/tasks/{task_id}/override",
    status_code=202,
    responses={202: {"model": InterventionReceipt}},
    response_model=None,
    openapi_extra=request_body(Override),
)
async def override(
    body: Annotated[RequestBody[Override], json_body(Override, "override")], task_id: TaskId
) -> Response:
    """Give an instruction that overrides the developer. It is recorded under the caller's kind."""
    return reply(await override_task(body.context, body.value, body.ignored), 202)


async def override_task(context: RequestContext, value: Override, ignored: tuple[str, ...] = ()) -> InterventionReceipt:
    """Commit an override. Raises `Permanent` `unknown_task`."""
    receipt = await _receipt(context, value.task_id, ignored)

    async def decide(memory: Memory) -> tuple[None, Commit]:
        return None, await interventions.override(memory, value, context.reporter())

    await context.commit(decide)
    return receipt


@router.post(
    "/tasks/{task_id}/cancel",
    status_code=202,
    responses={202: {"model": InterventionReceipt}},
    response_model=None,
    openapi_extra=request_body(CancelRequest),
)
async def cancel(
    body: Annotated[RequestBody[CancelRequest], json_body(CancelRequest, "submit", "override")], task_id: TaskId
) -> Response:
    """Cancel a task; one that another principal submitted needs the role `override`."""
    return reply(await cancel_task(body.context, task_id, body.value.reason, body.ignored), 202)


async def cancel_task(
    context: RequestContext, task_id: str, reason: str | None, ignored: tuple[str, ...] = ()
) -> InterventionReceipt:
    """Commit the request to cancel a task. Raises `Permanent` `unknown_task`, and `Denied` as `cancellation`."""
    receipt = await _receipt(context, task_id, ignored)

    async def decide(memory: Memory) -> tuple[None, Commit]:
        return None, await interventions.cancellation(memory, task_id, reason, context.reporter())

    await context.commit(decide)
    return receipt


async def _receipt(
    context: RequestContext, task_id: str, ignored: tuple[str, ...], report: ReportOutcome | None = None
) -> InterventionReceipt:
    """Return the receipt of an intervention. Raises `Permanent` `unknown_task`."""
    if not context.may("read"):
        return InterventionReceipt(task_id=task_id, ignored=ignored)
    task_record = await current_task(context, task_id)
    return InterventionReceipt(
        task_id=task_id, state=task_record.state, late=is_late(task_record, report), ignored=ignored
    )


def _submitted_fields(task: SubmitTask) -> dict[str, Any]:
    """Return the fields of a submission, for a task without a record yet."""
    names = Task.model_fields.keys() & task.model_fields_set - {"task_id", "project"}
    return {name: getattr(task, name) for name in names}


async def _after_acceptance(context: RequestContext, verdict: Acceptance | Duplicate, wait_s: float) -> Task:
    """Return the accepted task. An error here does not undo the acceptance."""
    if context.may("read"):
        try:
            task_id = verdict.submission.task_id if isinstance(verdict, Acceptance) else verdict.task_id
            if wait_s or isinstance(verdict, Duplicate):
                return await wait_for_task(context, task_id, wait_s)
        except Transient:
            if isinstance(verdict, Duplicate):
                raise
    if isinstance(verdict, Acceptance):
        return verdict.submission.as_task()
    item = await context.memory().get(STORE, task_key(verdict.task_id))
    if item is None:
        raise interventions.unknown_task(context.project)
    return record(item, Submission).as_task()


async def _with_open_failure(context: RequestContext, accepted: Task) -> Task:
    """Return an accepted task that names an open one about the same failure, if the caller may read it.

    An error here does not undo the acceptance.
    """
    if not context.may("read"):
        return accepted
    try:
        return await with_open_failure(context.memory(), accepted)
    except Transient:
        return accepted


def _idempotency_key(context: RequestContext, key: str | None, content: object) -> IdempotencyKey | None:
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        problem = Problem(field="Idempotency-Key", problem="must be 1 to 255 visible ASCII characters")
        raise Permanent(ErrorCode.INVALID, (problem,))
    return IdempotencyKey(key=request_key(context.principal.name, key), body_sha256=body_sha256(content))


def _wait_of(prefer: str | None) -> int | None:
    found = _PREFER_WAIT.search(prefer or "")
    return int(found.group(1)) if found else None
