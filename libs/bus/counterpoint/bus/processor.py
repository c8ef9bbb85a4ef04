"""Processing of one delivery: decode it, run its handler with memory, commit, or dead-letter the message."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import structlog
from nats.aio.msg import Msg
from pydantic import ValidationError

from counterpoint.bus.codec import DeliveryInfo, Inbound, decode, envelope
from counterpoint.bus.connection import Connection
from counterpoint.bus.dead_letter import dead_letter
from counterpoint.bus.delivery import DELAYS_S, Disposition, MoveToDeadLetters, Retry, decide
from counterpoint.bus.readiness import Readiness
from counterpoint.bus.settings import BusSettings
from counterpoint.bus.step_log import log_effects
from counterpoint.client import Memory
from counterpoint.proto.errors import Away, Conflict, CounterpointError, Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.memory import Commit, Origin, Outgoing
from counterpoint.proto.messages import Message, utc_now
from counterpoint.proto.validation import parse

log = structlog.get_logger()

M = TypeVar("M", bound=Message)
Handler = Callable[[M, Memory], Awaitable[Commit]]
RejectionHook = Callable[[Inbound, Permanent], Sequence[Outgoing]]
"""From a refused inbound message and its error to the messages sent along with the dead letter."""

_DEAD_LETTER_RUN = -1
"""The run number of the commit that dead-letters a message: no run of the handler, so it has read nothing."""
_RUNS = 5
"""Runs of a handler over one delivery, counted apart for conflicts and for outages of memory."""


class DeliveryProcessor:
    """Runs the handlers of one service. `handlers` are by message type."""

    def __init__(
        self, name: str, settings: BusSettings, connection: Connection, readiness: Readiness, stopping: asyncio.Event
    ) -> None:
        self.handlers: dict[str, Handler[Any]] = {}
        self.on_rejected: RejectionHook | None = None
        self._name = name
        self._settings = settings
        self._connection = connection
        self._readiness = readiness
        self._stopping = stopping

    async def process(self, raw: Msg) -> Disposition | None:
        """Process a delivery; return its disposition if it failed, None if its commit was applied."""
        meta = raw.metadata
        info = DeliveryInfo(
            stream=meta.stream,
            sequence=meta.sequence.stream,
            delivered=meta.num_delivered,
            stored_at=meta.timestamp,
        )
        inbound = envelope(raw.subject, raw.headers or {}, **info)
        try:
            inbound = decode(raw.subject, raw.headers or {}, raw.data, **info)
            await self.handle(inbound)
            return None
        except Exception as error:
            disposition = decide(error, meta.num_delivered)
            if isinstance(error, CounterpointError):
                log.info("delivery.refused", message_id=inbound.id, reason=str(error), delivered=meta.num_delivered)
            else:
                log.error("handler.failed", message_id=inbound.id, delivered=meta.num_delivered, exc_info=error)
        if isinstance(disposition, MoveToDeadLetters):
            try:
                await self._bury(raw, inbound, disposition)
            except Exception as error:
                log.error("dead_letter.failed", message_id=inbound.id, exc_info=error)
                return Retry(DELAYS_S[-1])
        return disposition

    async def handle(self, inbound: Inbound) -> None:
        """Run the handler of a message and commit its result.

        A conflict, or the end of the task, runs it again on fresh reads; an outage of memory, when memory is back.
        Raises what the handler or the commit raises.
        """
        handler = self.handlers.get(inbound.type)
        if handler is None:
            problem = Problem(field="ce-type", problem=f"this service does not handle {inbound.type}")
            raise Permanent(ErrorCode.UNKNOWN_TYPE, (problem,))
        message = _parsed(inbound)
        run = conflicts = outages = 0
        while True:
            memory = self.memory(_origin(inbound, run), inbound)
            run += 1
            try:
                commit = await handler(message, memory)
                if (_has_effect(commit) or memory.stepped) and not memory.finished:
                    await memory.step(commit)
                return
            except (Conflict, Denied) as error:
                conflicts += 1
                overtaken = isinstance(error, Conflict) or error.rule == ErrorCode.ENDED
                if not overtaken or conflicts >= _RUNS:
                    raise
            except Away as away:
                outages += 1
                if outages >= _RUNS:
                    raise
                await self._await_memory(away)

    def memory(self, origin: Origin, inbound: Inbound | None = None) -> Memory:
        """Return the memory client for an origin; with `inbound`, at the time of that message."""
        return Memory(
            self._connection.request,
            self._name,
            origin,
            inbound.time if inbound else utc_now(),
            inbound=(inbound.source, inbound.event_id, inbound.body) if inbound else None,
            query_timeout_s=self._settings.rpc_timeout_s * 5,
            commit_timeout_s=self._settings.rpc_timeout_s,
            applied=log_effects,
        )

    async def _bury(self, raw: Msg, inbound: Inbound, disposition: MoveToDeadLetters) -> None:
        error = Permanent(disposition.code, disposition.problems)
        messages = tuple(self.on_rejected(inbound, error)) if self.on_rejected else ()
        commit = Commit(
            step="dead", messages=messages, dead_letter=dead_letter(raw.subject, raw.headers or {}, raw.data, error)
        )
        outages = 0
        while True:
            try:
                await self.memory(_origin(inbound, _DEAD_LETTER_RUN), inbound).step(commit)
                log.warning("message.dead", message_id=inbound.id, code=error.code, subject=raw.subject)
                return
            except Away as away:
                outages += 1
                if outages >= _RUNS:
                    raise
                await self._await_memory(away)

    async def _await_memory(self, away: Away) -> None:
        """Wait until memory answers again. Raises `away` when the service stops first."""
        log.info("delivery.waits", reason=str(away))
        self._readiness.lost_memory()
        waits = [asyncio.create_task(event.wait()) for event in (self._readiness.memory, self._stopping)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._stopping.is_set():
            raise away


def _parsed(inbound: Inbound) -> Message:
    if not inbound.trusted:
        return parse(inbound.type, inbound.body)
    try:
        return Message.register[inbound.type].model_validate(inbound.body)
    except ValidationError as error:
        problems = tuple(Problem(field=".".join(map(str, e["loc"])), problem=e["msg"]) for e in error.errors()[:20])
        raise Permanent(ErrorCode.INVALID, problems) from error


def _origin(inbound: Inbound, run: int) -> Origin:
    return Origin(
        message_id=inbound.id,
        fence=inbound.fence,
        run=run,
        project=inbound.project,
        task_id=inbound.task_id,
        capability=inbound.capability,
        traceparent=inbound.traceparent,
    )


def _has_effect(commit: Commit) -> bool:
    return bool(commit.writes or commit.messages or commit.cancel_timers or commit.dead_letter)
