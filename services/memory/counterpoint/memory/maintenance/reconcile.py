"""Reconciliation: messages that the bus has lost become pending again."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from counterpoint.bus.connection import Connection
from counterpoint.bus.stream_api import StreamInfo
from counterpoint.memory.commit.relay import Relay
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.projects import all_projects
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto import subjects
from counterpoint.proto.errors import Transient

log = structlog.get_logger()

_CLOCKS = timedelta(seconds=2)
"""Tolerance for the difference between the clocks of the bus and the database; the duplicate window covers the rest."""
_SETTLED = timedelta(seconds=10)
"""Delay after which everything sent before a moment is in the log, and known to the relay or pending."""
_RETRY_S = 0.5
_UNREAD = frozenset({subjects.ADVISORIES, subjects.CHECKPOINTS, subjects.DECISIONS, subjects.DEAD})
"""Streams that need no reading by any of our services."""
_RESTORE_S = 600.0
"""Timeout of restoring, in seconds: the first run of a process covers everything sent before its streams were made."""

_SQL = load_statements(__package__)


@dataclass(slots=True)
class _Comparison:
    """Differences between the log and the streams. By stream: `lost`, the times before and after which what was sent
    is no longer in it; `checked`, the time before which everything will have been looked at; `behind`, its last
    sequence where that is lower than was known; `cuts`, the cuts of the relay that are covered."""

    lost: dict[str, tuple[datetime | None, datetime | None]] = field(default_factory=dict)
    checked: dict[str, datetime] = field(default_factory=dict)
    behind: dict[str, int] = field(default_factory=dict)
    cuts: dict[str, int] = field(default_factory=dict)


class Reconciler:
    """Compares the log with the streams. A message of the last `retention` that is neither in its stream nor handled
    by its consumers becomes pending again; what is no longer in the intake was taken by its consumer."""

    def __init__(self, database: Database, connection: Connection, relay: Relay, retention: timedelta) -> None:
        self._database = database
        self._connection = connection
        self._relay = relay
        self._retention = retention
        self._checked: dict[str, datetime] = {}
        """By stream, the time before which everything sent has been looked at: nothing new of it can be lost."""

    async def learn(self) -> None:
        """Wait until every stream is there, and tell the relay of it: publishing needs to know no more."""
        for stream in subjects.STREAMS:
            while True:
                try:
                    info = await self._connection.stream_info(stream)
                except Transient as error:
                    log.warning("reconcile.waiting", reason=str(error))
                    await asyncio.sleep(_RETRY_S)
                    continue
                self._relay.incarnation(stream, info.created, info.last_seq)
                break

    async def reconcile(self) -> int:
        """Compare once; return the number of messages that became pending. Raises `Transient`."""
        found = await self._compare()
        restored = await self._restore(found)
        self._checked = found.checked
        for stream, cut in found.cuts.items():
            if self._relay.cuts.get(stream) == cut:
                del self._relay.cuts[stream]
        if restored:
            log.warning("reconcile.restored", messages=restored)
        return restored

    async def _compare(self) -> _Comparison:
        async with self._database.connection() as connection:
            reached = {row["name"]: row for row in await connection.fetch(_SQL["streams"])}
        found = _Comparison()
        for stream in subjects.STREAMS:
            info = await self._connection.stream_info(stream)
            self._relay.incarnation(stream, info.created, info.last_seq)
            kept_since = info.created if stream == subjects.INTAKE else info.kept_since or info.created
            before = max(info.created + _CLOCKS, kept_since)
            after = await self._end_lost(stream, info, reached.get(stream), found)
            if after is not None:
                log.warning("stream.end_lost", stream=stream, last_seq=found.cuts.get(stream, info.last_seq))
            if stream in _UNREAD:
                continue
            checked = self._checked.get(stream) == before
            found.lost[stream] = (None if checked else before, after)
            if checked or (self._relay.cleared and datetime.now(UTC) > before + _SETTLED):
                found.checked[stream] = before
        return found

    async def _end_lost(self, stream: str, info: StreamInfo, known: Any, found: _Comparison) -> datetime | None:
        """Return the time after which the stream lost what was sent; None if its end is complete."""
        if known is None or known["life"] != int(info.created.timestamp()):
            return None
        after = None
        if known["last_seq"] > info.last_seq:
            after = info.last_at - _CLOCKS
            found.behind[stream] = info.last_seq
        if (cut := self._relay.cuts.get(stream)) is not None:
            kept = await self._connection.stored_message(stream, cut) if cut else None
            after = (kept.at if kept else info.created) - _CLOCKS
            found.cuts[stream] = cut
        return after

    async def _restore(self, found: _Comparison) -> int:
        restored = 0
        horizon = datetime.now(UTC) - self._retention
        async with self._database.connection() as connection:
            for project in await all_projects(connection):
                for stream, (sent_before, sent_after) in found.lost.items():
                    if sent_before is None and sent_after is None:
                        continue
                    arguments = (project, stream.lower(), sent_before, sent_after, horizon)
                    restored += await connection.fetchval(_SQL["restore_lost"], *arguments, timeout=_RESTORE_S)
            for stream, last_seq in found.behind.items():
                await connection.execute(_SQL["set_last_seq"], stream, last_seq)
        return restored
