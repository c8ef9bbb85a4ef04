"""Announcements of commits whose records no service acts on: live messages, which are neither logged nor repeated."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import structlog

from counterpoint.bus.codec import headers
from counterpoint.bus.connection import Connection
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.proto import subjects
from counterpoint.proto.errors import Away

log = structlog.get_logger()

_QUEUE_LIMIT = 10_000


class Announcements:
    """Publishes them in the order of the commits; drops what the bus does not take."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._queue: asyncio.Queue[CommitPlan] = asyncio.Queue(_QUEUE_LIMIT)

    def applied(self, steps: Sequence[CommitPlan]) -> None:
        """Take the announcements of applied steps."""
        for step in steps:
            if step.announcement is not None and not self._queue.full():
                self._queue.put_nowait(step)

    async def run(self) -> None:
        """Publish for ever."""
        while True:
            step = await self._queue.get()
            row = step.announcement
            assert row is not None
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
                log.info("announcement.dropped", commit=step.commit_id, reason=str(away))
