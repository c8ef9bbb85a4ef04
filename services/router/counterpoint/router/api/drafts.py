"""Draft of a postmortem or of a runbook section over HTTP, made by rules from the records of a task."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from counterpoint.card.draft import DraftForm, IncidentRecords, draft
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.line import Action
from counterpoint.proto.messages import Id, Shape
from counterpoint.router.api.body import reply
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.api.search import find_attempts
from counterpoint.router.api.task_line import read_line
from counterpoint.router.api.tasks import read_task
from counterpoint.router.paging import TaskId

router = APIRouter(prefix="/v1", tags=["tasks"])

_PAGE = 200


class TaskDraft(Shape):
    """A draft in markdown. Texts of others are quotes in blocks, and what no record holds is marked `Not recorded`."""

    task_id: Id
    form: DraftForm
    markdown: str


@router.get("/tasks/{task_id}/draft", responses={200: {"model": TaskDraft}}, response_model=None)
async def task_draft(
    context: Context,
    task_id: TaskId,
    form: Annotated[DraftForm, Query(description="What is drafted.")] = DraftForm.POSTMORTEM,
) -> Response:
    """Draft a postmortem or a section of a runbook from the records of a task. No model is asked."""
    records = await incident_records(context, task_id)
    return reply(TaskDraft(task_id=task_id, form=form, markdown=draft(records, form)))


async def incident_records(context: RequestContext, task_id: str) -> IncidentRecords:
    """Return the records of a task. Raises `Denied`, and `Permanent` `unknown_task`."""
    task, line = await read_task(context, task_id), await read_line(context, task_id)
    attempts, cursor = list[Attempt](), None
    while True:
        page, cursor = await find_attempts(context, task_id=task_id, limit=_PAGE, cursor=cursor)
        attempts += map(Attempt.model_validate, page)
        if cursor is None:
            break
    return IncidentRecords(task, tuple(attempts), tuple(map(Action.model_validate, line["items"])))
