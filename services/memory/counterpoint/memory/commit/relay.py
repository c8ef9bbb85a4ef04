"""The relay: from the log to the bus. Messages of a commit are published from RAM at once; a sweep publishes the rest:
due timers, and messages that a crash or an absent bus left behind."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from prometheus_client import Gauge

from counterpoint.bus.codec import STRUCTURED, headers
from counterpoint.bus.connection import Connection
from counterpoint.guard.capabilities import Keyring, mint
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.commit.committer import LoggedMessage
from counterpoint.memory.provenance.read_sets import OriginCache
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.message_bodies import whole_body
from counterpoint.memory.record.plan import PlannedMessage
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.memory.record.stamps import Provenance
from counterpoint.proto import subjects
from counterpoint.proto.errors import Away, Transient

log = structlog.get_logger()

PENDING = Gauge("counterpoint_pending_messages", "Messages in the log that are not known to be on the bus")
CLEAR_EVERY_S = 0.2
SWEEP_EVERY_S, REST_S = 0.25, 1.0
"""Seconds between two sweeps while messages are pending, and while there is none."""
_SWEEP_LIMIT = 500
_QUEUE_LIMIT = 50_000

_SQL = load_statements(__package__)


class Relay:
    """Publishes the messages of applied steps, each under its own id: at least once, `live` ones at most once."""

    def __init__(
        self,
        database: Database,
        connection: Connection,
        policy: Policy,
        keyring: Keyring,
        origins: OriginCache,
        *,
        sweep_age_s: float,
        capability_life_s: float,
    ) -> None:
        self._database = database
        self._connection = connection
        self._policy = policy
        self._keyring = keyring
        self._origins = origins
        self._sweep_age = timedelta(seconds=sweep_age_s)
        self._capability_life = timedelta(seconds=capability_life_s)
        self._queue: asyncio.Queue[LoggedMessage] = asyncio.Queue(_QUEUE_LIMIT)
        self._live: asyncio.Queue[LoggedMessage] = asyncio.Queue(_QUEUE_LIMIT)
        self._in_flight: set[str] = set()
        self._arrived: list[str] = []
        self._refused: list[str] = []
        self._clearing = False
        self._to_clear, self._to_sweep = asyncio.Event(), asyncio.Event()
        self._pending = 0
        self._reached: dict[str, int] = {}
        self._incarnation: dict[str, int] = {}
        self._highest: dict[str, int] = {}
        self.cuts: dict[str, int] = {}
        """By stream, the last sequence before a lost end, after which the stream reused a sequence for a new
        message."""
        self.on_cut: list[Callable[[], None]] = []

    def sent(self, messages: Sequence[LoggedMessage]) -> None:
        """Take the messages of applied steps; timers, and messages beyond the queue's limit, wait for the sweep."""
        self._to_sweep.set()
        for message in messages:
            if not message.row.live:
                self._origins.remember(message.row.id, message.provenance)
            queue = self._live if message.row.live else self._queue
            if message.row.due_at is None and not queue.full():
                if not message.row.live:
                    self._in_flight.add(message.row.id)
                queue.put_nowait(message)

    @property
    def cleared(self) -> bool:
        """Whether every message known to be on the bus was removed from `pending`."""
        return not self._arrived and not self._clearing

    def incarnation(self, stream: str, created: datetime, last_seq: int) -> None:
        """Take note of a stream's incarnation, identified by its creation; fences of a new one are higher than those of
        the last."""
        life = int(created.timestamp())
        if self._incarnation.get(stream) != life:
            self._incarnation[stream], self._highest[stream] = life, last_seq
            self.cuts.pop(stream, None)
        self._highest[stream] = min(self._highest[stream], last_seq)

    async def run(self) -> None:
        """Publish until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publish())
            group.create_task(self._publish_live())
            group.create_task(self._clear())
            group.create_task(self._sweep())

    async def _publish(self) -> None:
        while True:
            message = await self._queue.get()
            row = message.row
            body, described = row.body.encode(), self._headers(message)
            try:
                stored = await self._connection.publish(row.subject, body, described)
            except Away:
                self._in_flight.discard(row.id)
                continue
            stored.add_done_callback(lambda future, id=row.id: self._acknowledged(id, future))  # type: ignore[misc]

    async def _publish_live(self) -> None:
        """Publish live messages until cancelled: after the work messages and the replies of their commits."""
        while True:
            message = await self._live.get()
            await asyncio.sleep(0)
            with suppress(Away):
                await self._connection.announce(
                    subjects.live(message.row.subject), message.row.body.encode(), self._headers(message)
                )

    def _acknowledged(self, message_id: str, stored: "asyncio.Future[Any]") -> None:
        self._in_flight.discard(message_id)
        if stored.cancelled():
            return
        self._to_clear.set()
        if stored.exception() is not None:
            self._refused.append(message_id)
        else:
            self._arrived.append(message_id)
            stream, seq = stored.result().stream, stored.result().seq
            self._reached[stream] = max(self._reached.get(stream, 0), seq)
            if not stored.result().duplicate:
                self._came(stream, seq)

    def _came(self, stream: str, seq: int) -> None:
        """Detect a lost end: the stream gives a new message a sequence no higher than those before."""
        if seq <= self._highest.get(stream, 0):
            self.cuts[stream] = min(seq - 1, self.cuts.get(stream, seq))
            for tell in self.on_cut:
                tell()
        self._highest[stream] = seq

    def capability(self, row: PlannedMessage, project: str) -> str | None:
        """Return the capability of a message; None for a timer, which gets its own when it is due."""
        return None if row.due_at is not None else self._token(row, project)

    def _token(self, row: PlannedMessage, project: str) -> str | None:
        if len(row.audience) != 1 or self._policy.services[row.audience[0]].grant:
            return None
        bound = None if row.type == "counterpoint.records.changed.v1" else row.task_id
        expires_at = datetime.now(UTC) + self._capability_life
        return mint(
            self._keyring,
            diode.capability(self._policy, row.type, row.audience[0], project, bound, row.id, expires_at),
        )

    def _headers(self, message: LoggedMessage) -> dict[str, str]:
        row = message.row
        made = headers(
            message_id=row.id,
            message_type=row.type,
            source=message.sender,
            time=datetime.now(UTC),
            task_id=row.task_id,
            cause=message.cause,
            task_version=message.task_version,
            publication=self._incarnation.get(subjects.stream_of(row.subject), 1),
            seq=message.seq,
            capability=message.capability,
            traceparent=message.traceparent,
        )
        return {**made, "content-type": STRUCTURED} if row.structured else made

    async def _clear(self) -> None:
        while True:
            await self._to_clear.wait()
            await asyncio.sleep(CLEAR_EVERY_S)
            self._to_clear.clear()
            await self._postpone()
            if not self._arrived:
                continue
            arrived, self._arrived = self._arrived, []
            reached, self._reached = self._reached, {}
            lives = [self._incarnation.get(stream, 0) for stream in reached]
            self._clearing = True
            try:
                async with self._database.connection() as connection:
                    await connection.execute(
                        _SQL["clear_pending"], arrived, list(reached), lives, list(reached.values())
                    )
            except Transient as away:
                self._arrived += arrived
                for stream, seq in reached.items():
                    self._reached[stream] = max(self._reached.get(stream, 0), seq)
                self._to_clear.set()
                log.warning("relay.waiting", reason=str(away))
            finally:
                self._clearing = False

    async def _postpone(self) -> None:
        """Move messages that a stream refused behind the due ones of others."""
        refused, self._refused = self._refused, []
        if not refused:
            return
        log.warning("relay.refused", messages=len(refused))
        try:
            async with self._database.connection() as connection:
                await connection.execute(_SQL["postpone_pending"], refused, self._sweep_age)
        except Transient as away:
            self._refused += refused
            self._to_clear.set()
            log.warning("relay.waiting", reason=str(away))

    async def _sweep(self) -> None:
        while True:
            if not self._pending:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._to_sweep.wait(), REST_S - SWEEP_EVERY_S)
            await asyncio.sleep(SWEEP_EVERY_S)
            self._to_sweep.clear()
            if not self._connection.connected or self._queue.qsize() > _QUEUE_LIMIT // 2:
                continue
            try:
                await self._sweep_once()
            except Transient as away:
                log.warning("relay.waiting", reason=str(away))

    async def _sweep_once(self) -> None:
        async with self._database.connection() as connection:
            due = await connection.fetch("SELECT * FROM take_due($1, $2)", self._sweep_age, _SWEEP_LIMIT)
            counted = await connection.fetchrow(_SQL["count_pending"], self._sweep_age)
        assert counted is not None, "an aggregate has one row"
        self._pending = counted["pending"]
        PENDING.set(counted["due"])
        by_project: dict[str, list[str]] = {}
        arrived = set(self._arrived)
        for row in due:
            message_id = str(row["message_id"])
            if message_id not in self._in_flight and message_id not in arrived:
                by_project.setdefault(row["project"], []).append(message_id)
        for project, ids in by_project.items():
            async with self._database.reading(project) as connection:
                rows = await connection.fetch(_SQL["messages_by_id"], ids)
            for row in sorted(rows, key=lambda row: row["seq"]):
                message = self._from_log(row)
                self._in_flight.add(message.row.id)
                await self._queue.put(message)

    def _from_log(self, row: Any) -> LoggedMessage:
        message = PlannedMessage(
            id=str(row["id"]),
            type=row["type"],
            subject=row["subject"],
            task_id=row["task_id"],
            versioned=row["task_version"] is not None,
            audience=tuple(row["audience"]),
            body=whole_body(row),
            label=row["label"],
            integrity=row["integrity"],
            due_at=row["due_at"],
            timer=None,
            structured=row["structured"],
        )
        return LoggedMessage(
            message,
            row["project"],
            row["sender"],
            row["inbound_id"],
            row["seq"],
            row["task_version"],
            Provenance(row["label"], row["integrity"]),
            self._token(message, row["project"]),
            row["traceparent"],
        )
