"""Reconciliation: what the bus has lost goes back to pending, and what memory no longer needs is forgotten."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import structlog

from counterpoint.bus.connection import Connection
from counterpoint.memory.commit.relay import Relay
from counterpoint.memory.record.database import Database
from counterpoint.proto import subjects
from counterpoint.proto.errors import Transient

log = structlog.get_logger()

_NEVER = datetime.max.replace(tzinfo=UTC)
_CLOCKS = timedelta(seconds=2)
"""Tolerance for the difference between the clocks of the bus and the database; the duplicate window covers the rest."""
_SETTLED = timedelta(seconds=10)
"""Delay after which everything sent before a moment is in the log, and known to the relay or pending."""
_AGAIN_S = 0.5
_UNREAD = frozenset({subjects.ADVISORIES, subjects.CHECKPOINTS, subjects.DECISIONS, subjects.DEAD})
"""Streams that no service of ours has to have read."""
_RESTORE = "SELECT restore_lost($1, $2, $3, $4, $5)"
_RESTORE_S = 600.0
"""The first round of a process looks at all that was sent before its streams were made."""

_FORGET = (
    """
    WITH gone AS (DELETE FROM messages WHERE at < $1 AND coalesce(due_at, at) < $1 RETURNING seq),
    upto AS (SELECT max(seq) AS seq FROM gone)
    UPDATE projects SET forgotten_seq = upto.seq FROM upto
    WHERE project = current_setting('counterpoint.project') AND upto.seq > forgotten_seq
    """,
    """
    DELETE FROM inbox WHERE at < $1 AND NOT (
        outcome = 'cancelled' AND EXISTS (SELECT FROM messages m WHERE m.id = inbox.message_id::uuid))
    """,
    """
    WITH gone AS (DELETE FROM blobs WHERE NOT complete AND at < $1 RETURNING project, sha256)
    DELETE FROM blob_parts p USING gone WHERE (p.project, p.sha256) = (gone.project, gone.sha256)
    """,
)
"""Deletions of expired rows. A cancellation is kept as long as its timer. Incomplete uploads were never scanned."""


class Reconciler:
    """Compares the log with the streams, at start and every `every_s`."""

    def __init__(
        self,
        database: Database,
        connection: Connection,
        relay: Relay,
        age: Callable[[], Awaitable[None]],
        settle: Callable[[], Awaitable[None]],
        *,
        every_s: float,
        retention_s: float,
    ) -> None:
        self._database = database
        self._connection = connection
        self._relay = relay
        self._age = age
        self._settle = settle
        self._every_s = every_s
        self._retention = timedelta(seconds=retention_s)
        self._forgot_at = datetime.min.replace(tzinfo=UTC)
        self._now = asyncio.Event()
        self._checked: dict[str, datetime] = {}
        """By stream, before when all that was sent has been looked at; there is nothing new in it to lose."""

    def soon(self) -> None:
        """Do not wait for the next round: the bus has come back."""
        self._now.set()

    async def run(self) -> None:
        """Reconcile for ever."""
        while True:
            self._now.clear()
            pause_s = self._every_s
            try:
                await self.once()
                await self._settle()
                await self.forget()
            except Transient as away:
                log.warning("reconcile.waiting", reason=str(away))
                pause_s = min(self._every_s, _AGAIN_S)
            try:
                await asyncio.wait_for(self._now.wait(), pause_s)
            except TimeoutError:
                continue

    async def learn(self) -> None:
        """Wait until every stream is there, and tell the relay of it: publishing needs to know no more."""
        for stream in subjects.STREAMS:
            while True:
                try:
                    life = await self._connection.stream_info(stream)
                except Transient as away:
                    log.warning("reconcile.waiting", reason=str(away))
                    await asyncio.sleep(_AGAIN_S)
                    continue
                self._relay.incarnation(stream, life.created, life.last_seq)
                break

    async def once(self) -> int:
        """One round; returns how many messages were put back.

        What is no longer in the intake was taken by its consumer.
        """
        async with self._database.connection() as connection:
            reached = {row["name"]: row for row in await connection.fetch("SELECT name, life, last_seq FROM streams")}
        lost: dict[str, tuple[datetime | None, datetime | None]] = {}
        found: dict[str, datetime] = {}
        behind: dict[str, int] = {}
        cuts: dict[str, int] = {}
        for stream in subjects.STREAMS:
            life = await self._connection.stream_info(stream)
            self._relay.incarnation(stream, life.created, life.last_seq)
            kept_since = life.created if stream == subjects.INTAKE else life.kept_since or life.created
            before = max(life.created + _CLOCKS, kept_since)
            after = _NEVER
            known = reached.get(stream)
            if known and known["life"] == int(life.created.timestamp()):
                if known["last_seq"] > life.last_seq:
                    after = life.last_at - _CLOCKS
                    behind[stream] = life.last_seq
                if (cut := self._relay.cuts.get(stream)) is not None:
                    kept = await self._connection.stored_message(stream, cut) if cut else None
                    after = (kept.at if kept else life.created) - _CLOCKS
                    cuts[stream] = cut
            if after < _NEVER:
                log.warning("stream.end_lost", stream=stream, last_seq=cuts.get(stream, life.last_seq))
            if stream in _UNREAD:
                continue
            checked = self._checked.get(stream) == before
            lost[stream] = (None if checked else before, after if after < _NEVER else None)
            if checked or (self._relay.cleared and datetime.now(UTC) > before + _SETTLED):
                found[stream] = before
        restored = 0
        horizon = datetime.now(UTC) - self._retention
        async with self._database.connection() as connection:
            projects = [
                row["project"] for row in await connection.fetch("SELECT project FROM projects ORDER BY project")
            ]
            for project in projects:
                for stream, (sent_before, sent_after) in lost.items():
                    if sent_before is None and sent_after is None:
                        continue
                    arguments = (project, stream.lower(), sent_before, sent_after, horizon)
                    restored += await connection.fetchval(_RESTORE, *arguments, timeout=_RESTORE_S)
            for stream, last_seq in behind.items():
                await connection.execute("UPDATE streams SET last_seq = $2 WHERE name = $1", stream, last_seq)
        self._checked = found
        for stream, cut in cuts.items():
            if self._relay.cuts.get(stream) == cut:
                del self._relay.cuts[stream]
        if restored:
            log.warning("reconcile.restored", messages=restored)
        return restored

    async def forget(self) -> None:
        """Delete what is older than the retention, at most once an hour, and note how far the log is gone."""
        if datetime.now(UTC) - self._forgot_at < timedelta(hours=1):
            return
        before = datetime.now(UTC) - self._retention
        async with self._database.connection() as connection:
            projects = [row["project"] for row in await connection.fetch("SELECT project FROM projects")]
        for project in projects:
            async with self._database.writing(project) as connection:
                for statement in _FORGET:
                    await connection.execute(statement, before)
        await self._age()
        self._forgot_at = datetime.now(UTC)
