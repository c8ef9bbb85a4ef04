"""Event streams (SSE): the message log of a project, resumable by `Last-Event-ID`.

The id of an event is its position in the log of its project. Events are read from the log, so none is lost or out of
order; live messages only wake the reader.
"""

import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import structlog
from fastapi import APIRouter, Depends, Header, Query
from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event
from starlette.types import Receive, Scope, Send

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
from counterpoint.router.live_log import EncodedEvent, EncodedPage
from counterpoint.router.paging import TaskId

log = structlog.get_logger()
router = APIRouter(prefix="/v1", tags=["streams"])

_PAGE = 200
_PART_BYTES = 64 * 1024
"""Bytes of events that are sent at once."""
_TIMER_TYPES = frozenset({TaskDue.TYPE, ShadowDue.TYPE, NotificationDue.TYPE, IssueDue.TYPE, TrackerDue.TYPE})
"""Messages that enter the log before they are due; streams leave them out."""
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_OPEN, _KEEP_ALIVE = b": open\n\n", b": keep-alive\n\n"
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
    first: EncodedPage

    async def read(self, after: int) -> EncodedPage:
        """Return the events after a position. Raises `Transient`, and `Denied` once the principal may not read."""
        await self.context.check_token()
        return _encoded(await self.feed.page(self.context, after))

    async def check(self) -> None:
        """Raise `Denied` if the principal may not read any more, and `Transient`."""
        await self.context.check_token()
        key = self.context.project, self.context.principal.name
        await self.context.resources.read_rights.check(
            key, lambda: self.context.fetch(List(store="decisions", limit=1))
        )


def _resume_position(
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", description="Resume after this event.")] = None,
) -> int | None:
    if not last_event_id:
        return None
    if not last_event_id.isdecimal() or len(last_event_id) > 18:
        raise Permanent(ErrorCode.INVALID, (Problem(field="Last-Event-ID", problem="is not the id of an event"),))
    return int(last_event_id)


ResumePosition = Annotated[int | None, Depends(_resume_position)]


class EventStream(StreamingResponse):
    """A response of server-sent events that are encoded already. It is refused as `OpenStreams.count` says."""

    media_type = "text/event-stream"

    def __init__(self, context: RequestContext, events: AsyncIterator[bytes], status_code: int = 200) -> None:
        super().__init__(events, status_code, _HEADERS)  # FastAPI documents the default of `status_code`.
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        with self._context.resources.open_streams.count(self._context.principal.name):
            await super().__call__(scope, receive, send)


async def _task_start(
    context: Context,
    task_id: TaskId,
    position: ResumePosition,
    line: Annotated[bool, Query(description="With the actions of the line, as events `action`.")] = False,
) -> StreamStart:
    context.require("read")
    accepted = await context.memory().get(STORE, task_key(task_id))
    if accepted is None:
        raise unknown_task(context.project)
    # The messages of a task follow its record: older gaps in the log do not concern it.
    return await _start(context, Feed(("tasks", "decisions"), task_id, line), position or accepted.seq)


async def _decisions_start(context: Context, position: ResumePosition) -> StreamStart:
    context.require("read")
    feed = Feed(("decisions",))
    return await _start(context, feed, await _end_of_log(context, feed) if position is None else position)


@router.get("/tasks/{task_id}/events", responses=_RESPONSES, response_class=EventStream)
async def task_events(start: Annotated[StreamStart, Depends(_task_start)]) -> EventStream:
    """Stream the messages and decisions of a task, with `line` its actions too, from its start or after an event."""
    return EventStream(start.context, _own_events(start))


@router.get("/decisions/stream", responses=_RESPONSES, response_class=EventStream)
async def decisions(start: Annotated[StreamStart, Depends(_decisions_start)]) -> EventStream:
    """Stream the decisions of a project, from now on or after an event."""
    return EventStream(start.context, _shared_events(start))


def _encoded(page: LogPage) -> EncodedPage:
    return EncodedPage(tuple(event for item in page.items if (event := _event_of(item))), page.end, page.gap)


def _event_of(item: Item) -> EncodedEvent | None:
    """Return an item as an event; None for a timer, and for an action that cannot be read."""
    if item.store == "actions":
        action = next(iter(records((item,), Action)), None)
        return _event(item, item_json(action, seq=item.seq), "action") if action else None
    return None if item.body["type"] in _TIMER_TYPES else _event(item, _cloud_event(item))


def _event(item: Item, content: dict[str, Any], name: str | None = None) -> EncodedEvent:
    data = json.dumps(content, separators=(",", ":"))
    return EncodedEvent(item.seq, format_sse_event(data_str=data, event=name, id=str(item.seq)))


def _cloud_event(item: Item) -> dict[str, Any]:
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
    return {name: value for name, value in cloud.items() if value is not None}


async def _start(context: RequestContext, feed: Feed, after: int) -> StreamStart:
    return StreamStart(context, feed, after, _encoded(await feed.page(context, after)))


class _Pace:
    """Comments that keep a quiet connection open."""

    def __init__(self, heartbeat_s: float) -> None:
        self.heartbeat_s = heartbeat_s
        self._quiet_since = time.monotonic()

    def sent(self) -> None:
        """Note that something was sent."""
        self._quiet_since = time.monotonic()

    def comments(self) -> Iterator[bytes]:
        """Yield a comment if one is due."""
        if time.monotonic() - self._quiet_since >= self.heartbeat_s:
            self.sent()
            yield _KEEP_ALIVE


def _parts(page: EncodedPage, after: int, pace: _Pace) -> Iterator[bytes]:
    """Yield what a page says to a client that had the events up to `after`.

    A slow client holds one part of the page, and not a copy of all of it.
    """
    if page.gap:
        yield format_sse_event(data_str=json.dumps({"after": after}), event="gap")
    part = bytearray()
    for event in page.events:
        part += event.data
        if len(part) >= _PART_BYTES:
            pace.sent()
            yield bytes(part)
            part.clear()
    if part:
        pace.sent()
        yield bytes(part)


async def _own_events(start: StreamStart) -> AsyncIterator[bytes]:
    """Yield events, read for this client, until it disconnects, loses its right to read, or the router stops."""
    context, after, page = start.context, start.after, start.first
    settings = context.resources.settings
    yield _OPEN
    pace = _Pace(settings.heartbeat_s)
    with context.resources.hub.listen(context.project, start.feed.task_id) as listener:
        while True:
            for part in _parts(page, after, pace):
                yield part
            after = page.end
            if not page.events:
                await listener.wait(settings.poll_s)
            if listener.closed:
                return
            for comment in pace.comments():
                yield comment
            listener.clear()
            try:
                page = await listener.until_closed(start.read(after))
            except Transient as error:
                if listener.closed:
                    return
                log.info("stream.waits", project=context.project, reason=str(error))
                page = EncodedPage((), after)
            except Denied as denied:
                log.info("stream.ended", project=context.project, rule=denied.rule)
                return


async def _shared_events(start: StreamStart) -> AsyncIterator[bytes]:
    """Yield the events of a project, read once for all its clients, until this one disconnects, loses its right to
    read, or the router stops."""
    context, resources = start.context, start.context.resources
    yield _OPEN
    pace = _Pace(resources.settings.heartbeat_s)
    for part in _parts(start.first, start.after, pace):
        yield part
    after = start.first.end
    with resources.hub.listen(context.project) as listener:
        async with resources.live_decisions.subscribe(context.project, start, after) as live:
            while not listener.closed and live.serves(start):
                for comment in pace.comments():
                    yield comment
                listener.clear()
                try:
                    if after < live.start:
                        page = await listener.until_closed(start.read(after))
                    else:
                        page = EncodedPage(live.after(after), max(after, live.end))
                        if page.events:
                            await listener.until_closed(start.check())
                except Transient:
                    await listener.wait(resources.settings.poll_s)
                    continue
                except Denied as denied:
                    log.info("stream.ended", project=context.project, rule=denied.rule)
                    return
                for part in _parts(page, after, pace):
                    yield part
                after = page.end
                await live.wait(after, pace.heartbeat_s)


async def _end_of_log(context: RequestContext, feed: Feed) -> int:
    newest = await context.fetch(List(store="decisions", limit=1))
    # The message follows its record in the same commit.
    position = newest.items[0].seq if newest.items else 0
    while (page := await feed.page(context, position)).items:
        position = page.items[-1].seq
    return page.end
