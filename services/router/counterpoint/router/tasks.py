"""Tasks over HTTP: submit, look, wait, and say something about them."""

import asyncio
import re
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response

from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.errors import Permanent, Problem, Transient
from counterpoint.proto.interventions import Override
from counterpoint.proto.memory import Commit, Get, List
from counterpoint.proto.messages import Id, Shape
from counterpoint.proto.tasks import ENDED, State, SubmitTask, Task
from counterpoint.proto.validation import ignored_fields
from counterpoint.recall import Memory, record, records
from counterpoint.router import interventions
from counterpoint.router.admission import Accepted, Arrival, Duplicate, Keyed, in_senders_words
from counterpoint.router.bodies import Page, ignored, message_of, page, read_json, reply, shown, value_of
from counterpoint.router.desk import Asked, Asking
from counterpoint.router.effects import comes_late
from counterpoint.router.incidents import facts_of, with_incidents
from counterpoint.router.intake import receive
from counterpoint.router.openapi import takes
from counterpoint.router.pairs import parts_among
from counterpoint.router.submissions import STORE, Submission, body_sha256, request_key, task_key

router = APIRouter(prefix="/v1", tags=["tasks"])

TaskId = Annotated[Id, Path(description="The task's id.")]
Limit = Annotated[int, Query(ge=1, le=200, description="At most so many items.")]
Cursor = Annotated[str | None, Query(pattern=r"^\d{1,18}$", description="`next_cursor` of the page before.")]
PATIENCE_S = 10.0
"""Longest wait of a task for its turn at the door."""
_PREFER_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6})\"?", re.IGNORECASE)
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


class Noted(Shape):
    """Something said about a task was taken; what comes of it shows in the task.

    `late`: the task has ended, as `state` says, and nothing comes of it. Both are for those who may read.
    """

    task_id: Id
    state: State | str | None = None
    late: bool = False
    ignored: tuple[str, ...] = ()


class Cancel(Shape):
    """Why a task is called off."""

    reason: str | None = None


@router.post(
    "/tasks",
    status_code=202,
    responses={200: {"model": Task}, 202: {"model": Task}},
    response_model=None,
    openapi_extra=takes(SubmitTask),
)
async def submit(
    request: Request,
    asked: Asking,
    prefer: Annotated[str | None, Header(description="`wait=30`: answer when it has ended or waits for input.")] = None,
    idempotency_key: Annotated[str | None, Header(description="The same key is the same task for 24 h.")] = None,
) -> Response:
    """Submit a task. It is committed when 202 is answered; 200 when it has ended or waits for input within the wait."""
    body = await read_json(request)
    task = message_of(SubmitTask, body)
    asked = asked.within(body)
    asked.needs("submit")
    keyed = _keyed(asked, idempotency_key, body)
    settings = asked.desk.settings

    async def admitted(memory: Memory) -> tuple[Accepted | Duplicate, Commit]:
        arrival = Arrival(
            task=task,
            task_id=task.task_id or memory.id("task"),
            project=asked.project,
            by=asked.principal.name,
            by_kind=asked.principal.kind,
            at=memory.now,
            ignored=ignored_fields(SubmitTask.TYPE, body),
            request=keyed,
        )
        return await receive(memory, arrival, timedelta(seconds=settings.idempotency_s))

    try:
        async with asked.desk.under_way.turns.turn(asked.project, PATIENCE_S):
            verdict = await asked.commit(admitted)
    except Permanent as error:
        raise in_senders_words(error) from error
    task_id = verdict.submission.task_id if isinstance(verdict, Accepted) else verdict.task_id
    headers = {"Location": f"/v1/tasks/{task_id}?project={asked.project}"}
    wait_s = _wait_of(prefer)
    if wait_s is not None and asked.may("read"):
        headers["Preference-Applied"] = f"wait={wait_s}"
    known = await _after_acceptance(asked, verdict, wait_s or 0)
    if known.state == "submitted":
        known = known.model_copy(update=_said(task))
    return reply(known, 200 if wait_s and settled(known) else 202, headers)


@router.get("/tasks", responses={200: {"model": Page[Task]}}, response_model=None)
async def tasks(asked: Asking, state: State | None = None, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Tasks, the one that changed last first. A task that was only just accepted is not among them yet."""
    asked.needs("read")
    where = {"state": state} if state else {}
    found = await asked.look(List(store="tasks", where=where, limit=limit, cursor=int(cursor) if cursor else None))
    known = await with_incidents(asked.memory(), records(found.items, Task))
    return page((shown(task) for task in known), found.next_cursor)


@router.get("/escalations", responses={200: {"model": Page[Task]}}, response_model=None)
async def escalations(asked: Asking, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Tasks that stopped and need somebody: `escalation` says whom, why, and what would let them go on.

    Tasks that are merged into others are not among them as long as those have not ended.

    A page may hold fewer than `limit` although there are more: `next_cursor` says so.
    """
    asked.needs("read")
    found = await asked.look(
        List(store="tasks", where={"state": "input_required"}, limit=limit, cursor=int(cursor) if cursor else None)
    )
    known = await with_incidents(asked.memory(), records(found.items, Task))
    waiting = [task for task in known if task.escalation]
    parts = await parts_among(asked.memory(), [task.task_id for task in waiting])
    facts = await facts_of(asked.memory(), (task.task_id for task in waiting))
    parts |= {task_id for task_id, each in facts.items() if each.get("merged_into")}
    return page((shown(task) for task in waiting if task.task_id not in parts), found.next_cursor)


@router.get("/recoveries", responses={200: {"model": Page[Task]}}, response_model=None)
async def recoveries(asked: Asking, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Tasks that recovered and nobody has said why, newest first: `needs` holds the question and how to answer it."""
    asked.needs("read")
    query = List(store="tasks", where={"needs": [{"kind": "outcome"}]}, limit=limit)
    found = await asked.look(query.model_copy(update={"cursor": int(cursor) if cursor else None}))
    return page(map(shown, records(found.items, Task)), found.next_cursor)


@router.get("/tasks/{task_id}", responses={200: {"model": Task}}, response_model=None)
async def task(
    asked: Asking,
    task_id: TaskId,
    wait: Annotated[int, Query(ge=0, description="Seconds to wait until it has ended or waits for input.")] = 0,
) -> Response:
    """A task as it is, or as it is when it has ended, waits for input, or the wait is over."""
    asked.needs("read")
    (known,) = await with_incidents(asked.memory(), [await waited(asked, task_id, wait)])
    return reply(known)


@router.post(
    "/tasks/{task_id}/outcome",
    status_code=202,
    responses={202: {"model": Noted}},
    response_model=None,
    openapi_extra=takes(ReportOutcome),
)
async def outcome(request: Request, asked: Asking, task_id: TaskId) -> Response:
    """Say how an attempt went, and what fixed it. `task_id` may be left out of the body.

    A success is credited to the proposal. Where it was not what helped, `by` is `something_else` and the note, which is
    then learned, says what did, or `nothing` where it recovered by itself. A note alone is not read for its meaning.
    """
    body = await read_json(request)
    asked = asked.within(body)
    asked.needs("report")
    report = message_of(ReportOutcome, body, task_id=task_id)
    noted = await _noted(asked, task_id, ignored(ReportOutcome, body), report)

    async def said(memory: Memory) -> tuple[None, Commit]:
        return None, await interventions.outcome(memory, report, asked.sayer(), "reported")

    await asked.commit(said)
    return reply(noted, 202)


@router.post(
    "/tasks/{task_id}/override",
    status_code=202,
    responses={202: {"model": Noted}},
    response_model=None,
    openapi_extra=takes(Override),
)
async def override(request: Request, asked: Asking, task_id: TaskId) -> Response:
    """Give an instruction that outranks the developer's judgement. It is recorded under the asker's own kind."""
    body = await read_json(request)
    asked = asked.within(body)
    asked.needs("override")
    given = message_of(Override, body, task_id=task_id)
    noted = await _noted(asked, task_id, ignored(Override, body))

    async def said(memory: Memory) -> tuple[None, Commit]:
        return None, await interventions.override(memory, given, asked.sayer())

    await asked.commit(said)
    return reply(noted, 202)


@router.post(
    "/tasks/{task_id}/cancel",
    status_code=202,
    responses={202: {"model": Noted}},
    response_model=None,
    openapi_extra=takes(Cancel),
)
async def cancel(request: Request, asked: Asking, task_id: TaskId) -> Response:
    """Call a task off."""
    body = await read_json(request)
    asked = asked.within(body)
    asked.needs("submit", "override")
    given = value_of(Cancel, body)
    noted = await _noted(asked, task_id, ignored(Cancel, body))

    async def said(memory: Memory) -> tuple[None, Commit]:
        return None, await interventions.cancellation(memory, task_id, given.reason, asked.sayer())

    await asked.commit(said)
    return reply(noted, 202)


def settled(known: Task) -> bool:
    """Whether a task has ended or waits for input, so that waiting longer is for others."""
    return known.state in ENDED or known.state == "input_required"


async def waited(asked: Asked, task_id: str, wait_s: float) -> Task:
    """A task once it is settled, or as it is after `wait_s`. Raises `Permanent` `unknown_task`."""
    settings, clock = asked.desk.settings, asyncio.get_running_loop()
    until = clock.time() + min(wait_s, settings.wait_limit_s)
    with asked.desk.hub.listening(asked.project, task_id) as listener:
        while True:
            listener.clear()
            known = await listener.unless_closed(_known(asked, task_id))
            left = until - clock.time()
            if settled(known) or left <= 0:
                return known
            await listener.wait(min(left, settings.poll_s))
            if listener.closed:
                return known


async def _known(asked: Asked, task_id: str) -> Task:
    made, accepted = await asked.memory().query(Get(store="tasks", id=task_id), Get(store=STORE, id=task_key(task_id)))
    submission = record(accepted.items[0], Submission) if accepted.items else None
    if made.items:
        known = record(made.items[0], Task)
        return known.model_copy(update={"ignored": submission.ignored}) if submission else known
    if submission is None:
        raise interventions.unknown_task(asked.project)
    return submission.as_task()


async def _noted(asked: Asked, task_id: str, unread: tuple[str, ...], report: ReportOutcome | None = None) -> Noted:
    """The answer to what is said about a task, by how it stands before. Raises `Permanent` `unknown_task`."""
    if not asked.may("read"):
        return Noted(task_id=task_id, ignored=unread)
    known = await _known(asked, task_id)
    return Noted(task_id=task_id, state=known.state, late=comes_late(known, report), ignored=unread)


def _said(task: SubmitTask) -> dict[str, Any]:
    """What a submission says of its task, as long as there is no record to say it."""
    names = Task.model_fields.keys() & task.model_fields_set - {"task_id", "project"}
    return {name: getattr(task, name) for name in names}


async def _after_acceptance(asked: Asked, verdict: Accepted | Duplicate, wait_s: float) -> Task:
    """The task that was accepted. Nothing that fails from here on takes the acceptance back."""
    if asked.may("read"):
        try:
            task_id = verdict.submission.task_id if isinstance(verdict, Accepted) else verdict.task_id
            if wait_s or isinstance(verdict, Duplicate):
                return await waited(asked, task_id, wait_s)
        except Transient:
            if isinstance(verdict, Duplicate):
                raise
    if isinstance(verdict, Accepted):
        return verdict.submission.as_task()
    item = await asked.memory().get(STORE, task_key(verdict.task_id))
    if item is None:
        raise interventions.unknown_task(asked.project)
    return record(item, Submission).as_task()


def _keyed(asked: Asked, key: str | None, body: object) -> Keyed | None:
    if key is None:
        return None
    if not _KEY.fullmatch(key):
        problem = Problem(field="Idempotency-Key", problem="must be 1 to 255 visible ASCII characters")
        raise Permanent("invalid", (problem,))
    return Keyed(key=request_key(asked.principal.name, key), body_sha256=body_sha256(body))


def _wait_of(prefer: str | None) -> int | None:
    found = _PREFER_WAIT.search(prefer or "")
    return int(found.group(1)) if found else None
