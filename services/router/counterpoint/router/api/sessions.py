"""Sessions over HTTP: tasks that belong together, in a digest."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from counterpoint.client import record, records
from counterpoint.client.sessions import SessionDigest, session_digest
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import Get, List
from counterpoint.proto.messages import Id
from counterpoint.proto.sessions import SessionRecord, SessionSummary, summary_id
from counterpoint.proto.tasks import Task
from counterpoint.router.api.body import reply
from counterpoint.router.api.context import Context

router = APIRouter(prefix="/v1/sessions", tags=["tasks"])

_ATTEMPTS = 20
"""Maximum number of attempts of a task in a digest."""


@router.get("/{session_id}", responses={200: {"model": SessionDigest}}, response_model=None)
async def session(
    context: Context,
    session_id: Annotated[Id, Path(description="The session's id, which a task names.")],
    tokens: Annotated[int, Query(ge=100, le=100_000, description="Maximum size of the text, in tokens.")] = 2000,
) -> Response:
    """Return what the latest tasks of a session asked, tried, decided and learned: open ones first, then the newest."""
    context.require("read")
    memory = context.memory()
    item = await memory.get("sessions", session_id)
    if item is None:
        raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="session_id", problem="is not a known session"),))
    known = record(item, SessionRecord)
    compacted, *found = await memory.query(
        Get(store="sessions", id=summary_id(session_id)),
        *(Get(store="tasks", id=task_id) for task_id in known.task_ids),
        *(List(store="attempts", task_id=task_id, limit=_ATTEMPTS) for task_id in known.task_ids),
    )
    tasks = [task for result in found[: len(known.task_ids)] for task in records(result.items, Task)]
    attempts = [one for result in found[len(known.task_ids) :] for one in records(result.items, Attempt)]
    digest = session_digest(known, tasks, attempts, tokens)
    for summary in records(compacted.items, SessionSummary):
        digest = digest.model_copy(update={"compacted": summary.summary, "compacted_by": summary.by})
    return reply(digest)
