"""Open incidents over HTTP: what is not over, by severity and age, and who is hit."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from counterpoint.client import records
from counterpoint.proto.findings import Downstream
from counterpoint.proto.memory import List
from counterpoint.proto.messages import Id, ProjectName, Shape, Time
from counterpoint.proto.tasks import Kind, Need, State, Task, WaitingFor
from counterpoint.proto.titles import title_of
from counterpoint.router.api.body import reply
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.intake.incident_facts import with_incidents
from counterpoint.router.intake.task_links import parts_of_open_tasks
from counterpoint.router.notify.summary import severity_level, shortened

router = APIRouter(prefix="/v1", tags=["tasks"])

OPEN_STATES: tuple[State, ...] = ("input_required", "working", "submitted")
OWNERS = 20
"""Maximum number of owners of an item."""
PROPOSAL_CHARS = 300
"""Maximum length of a proposal that is shown in short."""
_PAGE, _FACTS = 200, 100
_READ_LIMIT = 2000
"""Maximum number of tasks that are read of each state, last changed first."""


class Impact(Shape):
    """Jobs and data sets downstream that wait for an incident, and their owners, near before far."""

    jobs: int
    datasets: int
    owners: tuple[str, ...]


class OpenIncident(Shape):
    """An open task in short.

    `count` is the number of failures of the job, `affected` that of the failures downstream that follow from it.
    `to` and `code` are those of its escalation, `occurred_at` is the last failure. `proposal` is the beginning of the
    proposal whose outcome nobody has reported.
    """

    task_id: Id
    project: ProjectName
    kind: Kind | str
    state: State | str
    title: str
    severity: str
    opened_at: Time
    occurred_at: Time | str | None = None
    waiting_for: WaitingFor | str | None = None
    to: str | None = None
    code: str | None = None
    needs: tuple[Need, ...] = ()
    proposal: str | None = None
    attempt: int | None = None
    band: str | None = None
    job: str | None = None
    owner: str | None = None
    count: int = 1
    affected: int = 0
    previous: Id | None = None
    approval_id: Id | None = None
    hit: Impact


class OpenIncidents(Shape):
    """Open tasks, urgent before low, old before new. `total` counts all; `complete` is false if there are more."""

    items: tuple[OpenIncident, ...]
    total: int
    complete: bool


@router.get("/incidents", responses={200: {"model": OpenIncidents}}, response_model=None)
async def incidents(
    context: Context, limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of items.")] = 200
) -> Response:
    """List what is not over, by severity and age. Tasks merged into an open one are left out."""
    return reply(await open_incidents(context, limit))


async def open_incidents(context: RequestContext, limit: int) -> OpenIncidents:
    """Return the open tasks of a project. Raises `Denied`."""
    context.require("read")
    found: list[Task] = []
    complete = True
    for state in OPEN_STATES:
        tasks, is_all = await _tasks_in(context, state)
        found += tasks
        complete &= is_all
    parts = await parts_of_open_tasks(context.memory(), [task.task_id for task in found]) if found else set()
    whole = [task for task in found if task.task_id not in parts]
    shown = [
        task
        for first in range(0, len(whole), _FACTS)
        for task in await with_incidents(context.memory(), whole[first : first + _FACTS])
        if not (task.context or {}).get("merged_into")
    ]
    shown.sort(key=lambda task: (-severity_level(task.priority), task.submitted_at))
    items = tuple(map(incident_of, shown[:limit]))
    return OpenIncidents(items=items, total=len(shown), complete=complete and len(shown) <= limit)


async def _tasks_in(context: RequestContext, state: State) -> tuple[list[Task], bool]:
    """Return the tasks in a state, and whether they are all."""
    tasks: list[Task] = []
    cursor: int | None = None
    while True:
        found = await context.fetch(List(store="tasks", where={"state": state}, limit=_PAGE, cursor=cursor))
        tasks += records(found.items, Task)
        cursor = found.next_cursor
        if cursor is None or len(tasks) >= _READ_LIMIT:
            return tasks, cursor is None


def incident_of(task: Task) -> OpenIncident:
    """Return a task in short."""
    facts: Mapping[str, Any] = task.context or {}
    job = task.target.job if task.target else None
    escalation = task.escalation if task.state == "input_required" else None
    return OpenIncident(
        task_id=task.task_id,
        project=task.project,
        kind=task.kind,
        state=task.state,
        title=title_of(task.description, task.title, task.error_message, job.name if job else None),
        severity=task.priority,
        opened_at=task.submitted_at,
        occurred_at=_text(facts.get("failed_at")),
        waiting_for=task.waiting_for if task.state == "input_required" else None,
        to=escalation.to if escalation else None,
        code=escalation.code if escalation else None,
        needs=(*(escalation.needs if escalation else ()), *task.needs),
        proposal=_beginning(task.proposal) if task.waiting_for == "outcome" else None,
        attempt=task.attempt,
        band=task.confidence.band if task.confidence else None,
        job=f"{job.namespace}/{job.name}" if job else None,
        owner=_text(facts.get("owner")),
        count=_count(facts.get("repeats")),
        affected=facts["affected_count"] if isinstance(facts.get("affected_count"), int) else 0,
        previous=_text(facts.get("previous_incident")),
        approval_id=task.approval.approval_id if task.approval else None,
        hit=_hit(task, facts),
    )


def _beginning(text: str | None) -> str | None:
    """Return the beginning of a markdown text, without the signs of its quotes."""
    return shortened(re.sub(r"^> ?", "", text, flags=re.MULTILINE), PROPOSAL_CHARS) if text else None


def _hit(task: Task, facts: Mapping[str, Any]) -> Impact:
    rows = {(row.kind, row.namespace, row.name): row for row in reversed(list(_downstream(task, facts)))}
    nearest = sorted(rows.values(), key=lambda row: row.hops)
    jobs = sum(row.kind == "job" for row in nearest)
    owners = tuple(dict.fromkeys(row.owner for row in nearest if row.owner))[:OWNERS]
    return Impact(jobs=jobs, datasets=len(nearest) - jobs, owners=owners)


def _downstream(task: Task, facts: Mapping[str, Any]) -> Iterator[Downstream]:
    """Yield what is downstream: as found by the developer, before that as the sender of the task gave it."""
    if task.findings is not None:
        yield from task.findings.downstream
        return
    given = facts.get("downstream")
    for row in given if isinstance(given, list) else ():
        try:
            yield Downstream.model_validate(row)
        except ValueError:
            continue


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(repeats: Any) -> int:
    count = repeats.get("count") if isinstance(repeats, dict) else None
    return count if isinstance(count, int) and count > 0 else 1
