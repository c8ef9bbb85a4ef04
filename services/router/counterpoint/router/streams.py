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
from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from counterpoint.client import records
from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.incident_settings import ShadowDue
from counterpoint.proto.issues import IssueDue, TrackerDue
from counterpoint.proto.line import Action
from counterpoint.proto.memory import Item, List, LogAfter
from counterpoint.proto.notifications import NotificationDue
from counterpoint.proto.tasks import TaskDue
from counterpoint.router.api.body import item_json
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.intake.interventions import unknown_task
from counterpoint.router.intake.submissions import STORE, task_key
from counterpoint.router.paging import TaskId

log = structlog.get_logger()
router = APIRouter(prefix="/v1", tags=["streams"])

_PAGE = 200
_TIMER_TYPES = frozenset({TaskDue.TYPE, ShadowDue.TYPE, NotificationDue.TYPE, IssueDue.TYPE, TrackerDue.TYPE})
"""Messages that enter the log before they are due; streams leave them out."""
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "CloudEvents as server-sent events; an event `gap` where retention has deleted some.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@dataclass(frozen=True)
class Feed:
    """The messages of the log that a stream contains; `line`: and the actions of its task."""

    kinds: tuple[Literal["tasks", "decisions", "changes", "dead"], ...]
    task_id: str | None = None
    line: bool = False

    async def page(self, context: RequestContext, after: int) -> "LogPage":
        """Read the messages and actions after a position, in the order of the log. If there are more of one of them
        than fit, the page ends with its last item."""
        log_query = LogAfter(after=after, kinds=self.kinds, task_id=self.task_id, limit=_PAGE)
        if not self.line:
            messages = await context.fetch(log_query)
            return LogPage(messages.items, messages.next_cursor or after, gap=messages.gap)
        line_query = List(store="actions", task_id=self.task_id, ascending=True, cursor=after, limit=_PAGE)
        messages, line = await context.fetch_all(log_query, line_query)
        end = messages.next_cursor or after
        if line.next_cursor is not None:
            end = min(end, line.items[-1].seq)
        items = sorted((*messages.items, *line.items), key=lambda item: item.seq)
        return LogPage(tuple(item for item in items if item.seq <= end), end, gap=messages.gap)


@dataclass(frozen=True)
class LogPage:
    """Items in the order of the log up to the position `end`. `gap`: retention has deleted some before them."""

    items: tuple[Item, ...]
    end: int
    gap: bool = False


@dataclass(frozen=True)
class StreamStart:
    """An accepted stream: the position it begins after, and its first read.

    It is made by a dependency, before the response begins, so that errors still have a status code.
    """

    context: RequestContext
    feed: Feed
    after: int
    first: LogPage


def _resume_position(
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", description="Resume after this event.")] = None,
) -> int | None:
    if not last_event_id:
        return None
    if not last_event_id.isdecimal() or len(last_event_id) > 18:
        raise Permanent(ErrorCode.INVALID, (Problem(field="Last-Event-ID", problem="is not the id of an event"),))
    return int(last_event_id)


ResumePosition = Annotated[int | None, Depends(_resume_position)]


async def _task_start(
    context: Context,
    task_id: TaskId,
    position: ResumePosition,
    response: Response,
    line: Annotated[bool, Query(description="With the actions of the line, as events `action`.")] = False,
) -> StreamStart:
    context.require("read")
    accepted = await context.memory().get(STORE, task_key(task_id))
    if accepted is None:
        raise unknown_task(context.project)
    # The messages of a task follow its record: older gaps in the log do not concern it.
    return await _start(context, Feed(("tasks", "decisions"), task_id, line), position or accepted.seq, response)


async def _decisions_start(context: Context, position: ResumePosition, response: Response) -> StreamStart:
    context.require("read")
    feed = Feed(("decisions",))
    return await _start(context, feed, await _end_of_log(context, feed) if position is None else position, response)


@router.get("/tasks/{task_id}/events", responses=_RESPONSES, response_class=EventSourceResponse)
async def task_events(
    start: Annotated[StreamStart, Depends(_task_start)],
) -> AsyncIterator[ServerSentEvent]:
    """Stream the messages and decisions of a task, with `line` its actions too, from its start or after an event."""
    async for event in _events(start):
        yield event


@router.get("/decisions/stream", responses=_RESPONSES, response_class=EventSourceResponse)
async def decisions(
    start: Annotated[StreamStart, Depends(_decisions_start)],
) -> AsyncIterator[ServerSentEvent]:
    """Stream the decisions of a project, from now on or after an event."""
    async for event in _events(start):
        yield event


def _event_of(item: Item) -> ServerSentEvent | None:
    """Return an item as an event; None for a timer, and for an action that cannot be read."""
    if item.store == "actions":
        action = next(iter(records((item,), Action)), None)
        data = json.dumps(item_json(action, seq=item.seq), separators=(",", ":")) if action else None
        return ServerSentEvent(id=str(item.seq), event="action", raw_data=data) if data else None
    return None if item.body["type"] in _TIMER_TYPES else cloud_event(item)


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
    return StreamStart(context, feed, after, await feed.page(context, after))


async def _events(start: StreamStart) -> AsyncIterator[ServerSentEvent]:
    """Yield events until the client disconnects, loses its right to read, or the router stops."""
    context, feed, after = start.context, start.feed, start.after
    settings, clock = context.resources.settings, asyncio.get_running_loop()
    yield ServerSentEvent(comment="open")
    quiet_since = clock.time()
    found: LogPage | None = start.first
    with context.resources.hub.listen(context.project, feed.task_id) as listener:
        while True:
            if found and found.gap:
                yield ServerSentEvent(event="gap", raw_data=json.dumps({"after": after}))
            for item in found.items if found else ():
                if event := _event_of(item):
                    yield event
                    quiet_since = clock.time()
            after = found.end if found else after
            if found is None or not found.items:
                await listener.wait(settings.poll_s)
            if listener.closed:
                return
            if clock.time() - quiet_since >= settings.heartbeat_s:
                yield ServerSentEvent(comment="keep-alive")
                quiet_since = clock.time()
            listener.clear()
            try:
                found = await listener.until_closed(feed.page(context, after))
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
    while (page := await feed.page(context, position)).items:
        position = page.items[-1].seq
    return page.end
