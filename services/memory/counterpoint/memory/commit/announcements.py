"""Announcements of commits whose records no service acts on: live messages, neither logged nor repeated."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import structlog

from counterpoint.bus.codec import headers
from counterpoint.bus.connection import Connection
from counterpoint.memory.record.plan import CommitPlan, PlannedMessage
from counterpoint.proto import subjects
from counterpoint.proto.errors import Away

log = structlog.get_logger()

_QUEUE_LIMIT = 10_000


class Announcements:
    """Publishes announcements in the order of the commits; drops those that the bus does not take."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._queue: asyncio.Queue[tuple[CommitPlan, PlannedMessage]] = asyncio.Queue(_QUEUE_LIMIT)

    def applied(self, steps: Sequence[CommitPlan]) -> None:
        """Queue the announcements of applied steps."""
        for step in steps:
            if step.announcement is None:
                continue
            try:
                self._queue.put_nowait((step, step.announcement))
            except asyncio.QueueFull:
                log.warning("announcement.dropped", commit_id=step.commit_id, reason="the queue is full")

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            step, row = await self._queue.get()
            await asyncio.sleep(0)  # The reply to the commit goes first.
            described = headers(
                message_id=row.id,
                message_type=row.type,
                source=step.consumer,
                time=datetime.now(UTC),
                task_id=row.task_id,
                cause=step.message_id,
                task_version=None,
                traceparent=step.traceparent,
            )
            try:
                await self._connection.announce(subjects.live(row.subject), row.body.encode(), described)
            except Away as away:
                log.info("announcement.dropped", commit_id=step.commit_id, reason=str(away))
