"""Event streams (SSE): the message log of a project, followed from where the reader left off.

The id of an event is its place in the log of its project. Live messages only say when to look; what is sent comes out
of the log, so nothing is lost or out of order.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Literal

import structlog
from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse

from counterpoint.proto.errors import Denied, Permanent, Problem, Transient
from counterpoint.proto.incident_settings import ShadowDue
from counterpoint.proto.memory import Found, Item, List, LogAfter
from counterpoint.proto.tasks import TaskDue
from counterpoint.router.desk import Asked, Asking
from counterpoint.router.interventions import unknown_task
from counterpoint.router.submissions import STORE, task_key
from counterpoint.router.tasks import TaskId

log = structlog.get_logger()
router = APIRouter(prefix="/v1", tags=["streams"])

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="Resume after this event.")]
_PAGE = 200
_UNSENT = frozenset({TaskDue.TYPE, ShadowDue.TYPE})
"""Messages that are in the log before they happen."""
_STREAM = {
    200: {
        "description": "CloudEvents as server-sent events; an event `gap` where retention has passed the reader.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@dataclass(frozen=True)
class Feed:
    """Which messages of the log a stream shows."""

    kinds: tuple[Literal["tasks", "decisions", "changes", "dead"], ...]
    task_id: str | None = None

    def after(self, seq: int) -> LogAfter:
        """The query for what comes next."""
        return LogAfter(after=seq, kinds=self.kinds, task_id=self.task_id, limit=_PAGE)


@router.get("/tasks/{task_id}/events", responses=_STREAM, response_class=StreamingResponse)  # type: ignore[arg-type]
async def events(asked: Asking, task_id: TaskId, last_event_id: LastEventId = None) -> StreamingResponse:
    """All that happens to a task, from its beginning: its messages and its decisions."""
    asked.needs("read")
    accepted = await asked.memory().get(STORE, task_key(task_id))
    if accepted is None:
        raise unknown_task(asked.project)
    # Its messages come after its record: what the project has forgotten before is none of it.
    return await _stream(asked, Feed(("tasks", "decisions"), task_id), _seq(last_event_id) or accepted.seq)


@router.get("/decisions/stream", responses=_STREAM, response_class=StreamingResponse)  # type: ignore[arg-type]
async def decisions(asked: Asking, last_event_id: LastEventId = None) -> StreamingResponse:
    """The decisions of a project from now on, or since the last event that was seen."""
    asked.needs("read")
    feed, after = Feed(("decisions",)), _seq(last_event_id)
    return await _stream(asked, feed, await _end(asked, feed) if after is None else after)


def event(item: Item) -> str:
    """A message of the log as an event: a CloudEvent in structured mode."""
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
    return f"id: {item.seq}\ndata: {data}\n\n"


async def _stream(asked: Asked, feed: Feed, after: int) -> StreamingResponse:
    """Refuses before the stream begins, while it can still be said with a status."""
    first = await asked.look(feed.after(after))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_frames(asked, feed, after, first), media_type="text/event-stream", headers=headers)


async def _frames(asked: Asked, feed: Feed, after: int, first: Found) -> AsyncIterator[str]:
    """The stream, until the reader goes, may read no more, or the router stops."""
    settings, clock = asked.desk.settings, asyncio.get_running_loop()
    yield ": open\n\n"
    quiet_since = clock.time()
    found: Found | None = first
    with asked.desk.hub.listening(asked.project, feed.task_id) as listener:
        while True:
            if found and found.gap:
                yield f"event: gap\ndata: {json.dumps({'after': after})}\n\n"
            for item in found.items if found else ():
                if item.body["type"] not in _UNSENT:
                    yield event(item)
                    quiet_since = clock.time()
                after = item.seq
            if found and found.next_cursor:
                after = found.next_cursor
            if found is None or not found.items:
                await listener.wait(settings.poll_s)
            if listener.closed:
                return
            if clock.time() - quiet_since >= settings.heartbeat_s:
                yield ": still here\n\n"
                quiet_since = clock.time()
            listener.clear()
            try:
                found = await listener.unless_closed(asked.look(feed.after(after)))
            except Transient as away:
                if listener.closed:
                    return
                log.info("stream.waits", project=asked.project, reason=str(away))
                found = None
            except Denied as denied:
                log.info("stream.ended", project=asked.project, rule=denied.rule)
                return


async def _end(asked: Asked, feed: Feed) -> int:
    """The place where the log ends."""
    newest = await asked.look(List(store="decisions", limit=1))
    # The message comes after its record in the same commit.
    at = newest.items[0].seq if newest.items else 0
    while True:
        found = await asked.look(feed.after(at))
        if not found.items:
            return found.next_cursor or at
        at = found.items[-1].seq


def _seq(last_event_id: str | None) -> int | None:
    if not last_event_id:
        return None
    if not last_event_id.isdecimal() or len(last_event_id) > 18:
        raise Permanent("invalid", (Problem(field="Last-Event-ID", problem="is no id of an event"),))
    return int(last_event_id)
