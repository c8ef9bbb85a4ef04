"""Event streams (SSE): the message log of a project, resumable by `Last-Event-ID`.

The id of an event is its position in the log of its project. Events are read from the log, so none is lost or out of
order; live messages only wake the reader.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import structlog
from fastapi import APIRouter, Depends, Header, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.incident_settings import ShadowDue
from counterpoint.proto.memory import Item, List, LogAfter, QueryResult
from counterpoint.proto.notifications import NotificationDue
from counterpoint.proto.tasks import TaskDue
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.intake.interventions import unknown_task
from counterpoint.router.intake.submissions import STORE, task_key
from counterpoint.router.paging import TaskId

log = structlog.get_logger()
router = APIRouter(prefix="/v1", tags=["streams"])

_PAGE = 200
_TIMER_TYPES = frozenset({TaskDue.TYPE, ShadowDue.TYPE, NotificationDue.TYPE})
"""Messages that enter the log before they are due; streams leave them out."""
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "CloudEvents as server-sent events; an event `gap` where retention has deleted some.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@dataclass(frozen=True)
class Feed:
    """The messages of the log that a stream contains."""

    kinds: tuple[Literal["tasks", "decisions", "changes", "dead"], ...]
    task_id: str | None = None

    def after(self, seq: int) -> LogAfter:
        """Return the query for the messages after a position."""
        return LogAfter(after=seq, kinds=self.kinds, task_id=self.task_id, limit=_PAGE)


@dataclass(frozen=True)
class StreamStart:
    """An accepted stream: the position it begins after, and its first read.

    It is made by a dependency, before the response begins, so that errors still have a status code.
    """

    context: RequestContext
    feed: Feed
    after: int
    first: QueryResult


def _resume_position(
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", description="Resume after this event.")] = None,
) -> int | None:
    if not last_event_id:
        return None
    if not last_event_id.isdecimal() or len(last_event_id) > 18:
        raise Permanent(ErrorCode.INVALID, (Problem(field="Last-Event-ID", problem="is not the id of an event"),))
    return int(last_event_id)


ResumePosition = Annotated[int | None, Depends(_resume_position)]


async def _task_start(context: Context, task_id: TaskId, position: ResumePosition, response: Response) -> StreamStart:
    context.require("read")
    accepted = await context.memory().get(STORE, task_key(task_id))
    if accepted is None:
        raise unknown_task(context.project)
    # The messages of a task follow its record: older gaps in the log do not concern it.
    return await _start(context, Feed(("tasks", "decisions"), task_id), position or accepted.seq, response)


async def _decisions_start(context: Context, position: ResumePosition, response: Response) -> StreamStart:
    context.require("read")
    feed = Feed(("decisions",))
    return await _start(context, feed, await _end_of_log(context, feed) if position is None else position, response)


@router.get("/tasks/{task_id}/events", responses=_RESPONSES, response_class=EventSourceResponse)
async def task_events(
    start: Annotated[StreamStart, Depends(_task_start)],
) -> AsyncIterator[ServerSentEvent]:
    """Stream the messages and decisions of a task, from its beginning or after an event."""
    async for event in _events(start):
        yield event


@router.get("/decisions/stream", responses=_RESPONSES, response_class=EventSourceResponse)
async def decisions(
    start: Annotated[StreamStart, Depends(_decisions_start)],
) -> AsyncIterator[ServerSentEvent]:
    """Stream the decisions of a project, from now on or after an event."""
    async for event in _events(start):
        yield event


def cloud_event(item: Item) -> ServerSentEvent:
    """Return a message of the log as a CloudEvent in structured mode."""
    body = item.body
    cloud = {
        "specversion": "1.0",
        "id": item.id,
        "type": body["type"],
        "source": f"counterpoint/{item.author}",
        "time": body["time"],
        "subject": body.get("task_id"),
        "datacontenttype": "application/json",
        "data": json.loads(body["data"]) if isinstance(body["data"], str) else body["data"],
    }
    data = json.dumps({name: value for name, value in cloud.items() if value is not None}, separators=(",", ":"))
    return ServerSentEvent(id=str(item.seq), raw_data=data)


async def _start(context: RequestContext, feed: Feed, after: int, response: Response) -> StreamStart:
    response.headers["Cache-Control"] = "no-store"
    return StreamStart(context, feed, after, await context.fetch(feed.after(after)))


async def _events(start: StreamStart) -> AsyncIterator[ServerSentEvent]:
    """Yield events until the client disconnects, loses its right to read, or the router stops."""
    context, feed, after = start.context, start.feed, start.after
    settings, clock = context.resources.settings, asyncio.get_running_loop()
    yield ServerSentEvent(comment="open")
    quiet_since = clock.time()
    found: QueryResult | None = start.first
    with context.resources.hub.listen(context.project, feed.task_id) as listener:
        while True:
            if found and found.gap:
                yield ServerSentEvent(event="gap", raw_data=json.dumps({"after": after}))
            for item in found.items if found else ():
                if item.body["type"] not in _TIMER_TYPES:
                    yield cloud_event(item)
                    quiet_since = clock.time()
                after = item.seq
            if found and found.next_cursor:
                after = found.next_cursor
            if found is None or not found.items:
                await listener.wait(settings.poll_s)
            if listener.closed:
                return
            if clock.time() - quiet_since >= settings.heartbeat_s:
                yield ServerSentEvent(comment="keep-alive")
                quiet_since = clock.time()
            listener.clear()
            try:
                found = await listener.until_closed(context.fetch(feed.after(after)))
            except Transient as error:
                if listener.closed:
                    return
                log.info("stream.waits", project=context.project, reason=str(error))
                found = None
            except Denied as denied:
                log.info("stream.ended", project=context.project, rule=denied.rule)
                return


async def _end_of_log(context: RequestContext, feed: Feed) -> int:
    newest = await context.fetch(List(store="decisions", limit=1))
    # The message follows its record in the same commit.
    position = newest.items[0].seq if newest.items else 0
    while True:
        found = await context.fetch(feed.after(position))
        if not found.items:
            return found.next_cursor or position
        position = found.items[-1].seq
