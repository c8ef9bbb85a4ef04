"""A service: it pulls its own messages, hands each to its handler with memory, and takes the commit."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any, TypeVar, assert_never

import nats.errors
import structlog
from faststream import AckPolicy
from faststream.nats import JStream, NatsMessage, PullSub
from nats.aio.msg import Msg
from pydantic import ValidationError

from counterpoint.bus.codec import Delivered, Inbound, decode, envelope
from counterpoint.bus.connection import Connection
from counterpoint.bus.delivery import DELAYS_S, Bury, Drop, Leave, Retry, decide
from counterpoint.bus.effects import log_effects
from counterpoint.bus.health import health_app, http_server, serve
from counterpoint.bus.heartbeat import Heartbeat
from counterpoint.bus.letters import letter
from counterpoint.bus.logs import configure
from counterpoint.bus.presence import Presence
from counterpoint.bus.settings import BusSettings
from counterpoint.bus.streams import PULL_S, ConsumerSpec, consumer_specs
from counterpoint.bus.telemetry import DELIVERIES
from counterpoint.bus.turns import Turns
from counterpoint.guard.policy import policy
from counterpoint.proto import subjects
from counterpoint.proto.errors import Away, Conflict, CounterpointError, Denied, Permanent, Problem
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit, Origin, Outgoing
from counterpoint.proto.messages import Message, utc_now
from counterpoint.proto.validation import parse
from counterpoint.recall import Memory

log = structlog.get_logger()

M = TypeVar("M", bound=Message)
Handler = Callable[[M, Memory], Awaitable[Commit]]
Rejected = Callable[[Inbound, Permanent], Sequence[Outgoing]]

_BURIAL = -1
"""The run in which a message is buried: no run of the handler, so it has read nothing."""
_RUNS = 5
"""Of a handler over one delivery: after so many conflicts, or times that memory came back and went again."""


class Service:
    """One service process. `on` registers handlers; `also` what else it runs; `run` lives until SIGTERM.

    `consumers` are those of the policy unless given; the server must have been provisioned with the same.
    """

    def __init__(self, name: str, settings: BusSettings, consumers: Sequence[ConsumerSpec] | None = None) -> None:
        self.name = name
        self.settings = settings
        self.connection = Connection(name, settings)
        specs = consumer_specs(policy()) if consumers is None else consumers
        self._consumers = tuple(spec for spec in specs if spec.durable == name)
        self._handlers: dict[str, Handler[Any]] = {}
        self._rejected: Rejected | None = None
        self._turns: dict[str, Turns] = {}
        self._also: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._reasons: list[Callable[[], str | None]] = []
        self._presence = Presence(name, self.connection, self._consumers, settings.rpc_timeout_s)
        self._stopping = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._deliveries: set[asyncio.Task[None]] = set()
        self._queued: dict[asyncio.Task[None], Msg] = {}

    def on(self, message_type: type[M]) -> Callable[[Handler[M]], Handler[M]]:
        """Register the handler of a message type; the policy must hand that type to this service."""
        if message_type.TYPE not in policy().consumed(self.name):
            raise ValueError(f"the policy does not hand {message_type.TYPE} to {self.name}")

        def register(handler: Handler[M]) -> Handler[M]:
            self._handlers[message_type.TYPE] = handler
            return handler

        return register

    def in_turn(self, message_type: type[Message], turns: Turns) -> None:
        """Handle what comes of a type by the intake in turns of the projects. Those that wait take no worker."""
        self._turns[message_type.TYPE] = turns

    def on_rejected(self, announce: Rejected) -> None:
        """What to send besides the dead letter when an inbound message is refused for good."""
        self._rejected = announce

    def also(
        self, work: Callable[[], Coroutine[Any, Any, None]], ready: Callable[[], str | None] | None = None
    ) -> None:
        """Run `work` beside the handlers; when it ends, the service ends. `ready` says what it still waits for."""
        self._also.append(work)
        if ready is not None:
            self._reasons.append(ready)

    def memory(self, project: str, principal: str | None, message_id: str | None = None) -> Memory:
        """Memory for work that no message started: on behalf of a principal, in one project."""
        origin = Origin(message_id=message_id or new_id(), fence=1, project=project, principal=principal)
        return self._bound(origin)

    def on_behalf(self, origin: Origin) -> Memory:
        """Memory for work that came another way than by a message, with the capability that `origin` holds."""
        return self._bound(origin)

    def waiting_for(self) -> tuple[str, ...]:
        """What stands between this service and readiness."""
        return (*self._presence.missing(), *(reason for check in self._reasons if (reason := check())))

    async def run(self) -> None:
        """Be the process: log, and live until SIGTERM or SIGINT."""
        configure(self.name, self.settings.log_level)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        await self.live()

    def stop(self) -> None:
        """Have `live` return: nothing else is taken, what is under way has `drain_s` to finish."""
        self._stopping.set()
        self._room.set()

    async def live(self) -> None:
        """Connect, consume, serve health, until `stop`. Raises what any part of it raises."""
        application = health_app(self.waiting_for, self.settings.shown())
        health, _ = http_server(application, self.settings.health_host, self.settings.health_port)
        stopping = asyncio.create_task(self._stopping.wait(), name="stop")
        parts = [
            asyncio.create_task(serve(health), name="health"),
            asyncio.create_task(self._work(), name="work"),
        ]
        try:
            await asyncio.wait([stopping, *parts], return_when=asyncio.FIRST_COMPLETED)
            for part in parts:
                if part.done():
                    log.critical("service.failed", part=part.get_name(), exc_info=part.exception())
                    part.result()
        finally:
            self.stop()
            await self._drain()
            await self.connection.close()
            health.should_exit = True
            for part in parts:
                part.cancel()
            await asyncio.gather(stopping, *parts, return_exceptions=True)
            log.info("service.stopped")

    async def _work(self) -> None:
        await self.connection.open()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._presence.probe(), name="probe")
            if self._handlers:
                await self._subscribe()
            for work in self._also:
                group.create_task(_endless(work), name=work.__qualname__)
            log.info("service.started")

    async def _subscribe(self) -> None:
        """Bind to the consumers, when the provisioner has made them."""
        await self._presence.consumers.wait()
        self.connection.stand(lambda: self.settings.workers - len(self._deliveries))
        for spec in self._consumers:
            subscriber = self.connection.broker.subscriber(
                spec.filters[0],
                durable=spec.durable,
                stream=JStream(spec.stream, declare=False),
                pull_sub=PullSub(batch_size=self.settings.workers, timeout=PULL_S),
                inbox_prefix=f"{subjects.inbox_prefix(self.settings.nats_user)}.".encode(),
                ack_policy=AckPolicy.MANUAL,
                decoder=_whole,
            )
            subscriber(self._consume)
        await self.connection.broker.start()

    async def _drain(self) -> None:
        subscribers = self.connection.broker.subscribers
        await asyncio.gather(*(subscriber.stop() for subscriber in subscribers))
        for delivery, raw in list(self._queued.items()):
            delivery.cancel()
            if self.connection.connected:
                await raw.nak()
        if self._deliveries:
            _, late = await asyncio.wait(self._deliveries, timeout=self.settings.drain_s)
            for delivery in late:
                log.warning("delivery.cut")
                delivery.cancel()

    async def _consume(self, message: NatsMessage) -> None:
        """Take one delivery; returns when there is room for the next ones."""
        raw = message.raw_message
        turns = self._turns.get(subjects.bare_type(raw.subject) or "")
        delivery = asyncio.create_task(self._deliver(raw, turns))
        if turns is None:
            self._begun(delivery)
        else:
            self._queued[delivery] = raw
            delivery.add_done_callback(lambda ended: self._queued.pop(ended, None))
        await self._room.wait()

    @asynccontextmanager
    async def _turn(self, raw: Msg, turns: Turns) -> AsyncIterator[None]:
        """Let a delivery begin when it is its project's turn."""
        async with turns.turn(subjects.project_of(raw.subject)):
            delivery = asyncio.current_task()
            assert delivery is not None
            self._queued.pop(delivery, None)
            self._begun(delivery)
            yield

    def _begun(self, delivery: asyncio.Task[None]) -> None:
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._delivered)
        if len(self._deliveries) >= self.settings.workers:
            self._room.clear()

    def _delivered(self, delivery: asyncio.Task[None]) -> None:
        self._deliveries.discard(delivery)
        if len(self._deliveries) < self.settings.workers:
            self._room.set()
        if not delivery.cancelled() and (error := delivery.exception()) is not None:
            log.error("delivery.failed", exc_info=error)

    async def _deliver(self, raw: Msg, turns: Turns | None) -> None:
        """One delivery, from decoding to the ack. The only place that acknowledges.

        What came over a connection that is gone is left for its next delivery: a bus that lost its streams counts anew,
        and an ack by number would be one of another message.
        """
        outcome, life = "left", self.connection.life

        def current() -> bool:
            return life is not None and life == self.connection.life

        ack_wait_s = next(spec.ack_wait_s for spec in self._consumers if spec.stream == raw.metadata.stream)
        heartbeat = Heartbeat(raw, ack_wait_s, current)
        try:
            async with self._turn(raw, turns) if turns else nullcontext():
                verdict = await self._verdict(raw) if current() else Leave()
            if not current():
                verdict = Leave()
            match verdict:
                case None | Drop() | Bury():
                    await raw.ack_sync(timeout=self.settings.rpc_timeout_s)
                case Retry(delay_s):
                    await raw.nak(delay=delay_s)
                case Leave():
                    pass
                case _:
                    assert_never(verdict)
            outcome = type(verdict).__name__.lower() if verdict else "done"
        except (nats.errors.Error, TimeoutError, OSError) as away:
            log.warning("delivery.unacknowledged", reason=type(away).__name__)
        finally:
            heartbeat.stop()
            DELIVERIES.labels(self.name, outcome).inc()

    async def _verdict(self, raw: Msg) -> Retry | Bury | Drop | Leave | None:
        """Handle a delivery; what is left to do with it, None when it was done."""
        meta = raw.metadata
        place = Delivered(
            stream=meta.stream,
            sequence=meta.sequence.stream,
            delivered=meta.num_delivered,
            stored_at=meta.timestamp,
        )
        known = envelope(raw.subject, raw.headers or {}, **place)
        try:
            known = decode(raw.subject, raw.headers or {}, raw.data, **place)
            await self._handle(known)
            return None
        except Exception as error:
            verdict = decide(error, meta.num_delivered)
            if isinstance(error, CounterpointError):
                log.info("delivery.refused", message_id=known.id, reason=str(error), delivered=meta.num_delivered)
            else:
                log.error("handler.failed", message_id=known.id, delivered=meta.num_delivered, exc_info=error)
        if isinstance(verdict, Bury):
            try:
                await self._bury(raw, known, verdict)
            except Exception as error:
                log.error("burial.failed", message_id=known.id, exc_info=error)
                return Retry(DELAYS_S[-1])
        return verdict

    async def _handle(self, inbound: Inbound) -> None:
        handler = self._handlers.get(inbound.type)
        if handler is None:
            raise Permanent("unknown_type", (Problem(field="ce-type", problem=f"{inbound.type} is not handled here"),))
        message = _parsed(inbound)
        run = conflicts = absences = 0
        while True:
            memory = self._bound(_origin(inbound, run), inbound)
            run += 1
            try:
                commit = await handler(message, memory)
                if (_has_effect(commit) or memory.stepped) and not memory.finished:
                    await memory.step(commit)
                return
            except (Conflict, Denied) as refused:
                conflicts += 1
                overtaken = isinstance(refused, Conflict) or refused.rule == "ended"
                if not overtaken or conflicts >= _RUNS:
                    raise
            except Away as away:
                absences += 1
                if absences >= _RUNS:
                    raise
                await self._answering(away)

    async def _bury(self, raw: Msg, known: Inbound, verdict: Bury) -> None:
        error = Permanent(verdict.code, verdict.problems)
        announced = tuple(self._rejected(known, error)) if self._rejected else ()
        commit = Commit(
            step="dead", messages=announced, dead_letter=letter(raw.subject, raw.headers or {}, raw.data, error)
        )
        absences = 0
        while True:
            try:
                await self._bound(_origin(known, _BURIAL), known).step(commit)
                log.warning("message.dead", message_id=known.id, code=error.code, subject=raw.subject)
                return
            except Away as away:
                absences += 1
                if absences >= _RUNS:
                    raise
                await self._answering(away)

    def _bound(self, origin: Origin, inbound: Inbound | None = None) -> Memory:
        return Memory(
            self.connection.request,
            self.name,
            origin,
            inbound.time if inbound else utc_now(),
            inbound=(inbound.source, inbound.event_id, inbound.body) if inbound else None,
            query_timeout_s=self.settings.rpc_timeout_s * 5,
            commit_timeout_s=self.settings.rpc_timeout_s,
            applied=log_effects,
        )

    async def _answering(self, away: Away) -> None:
        """Wait until memory answers again. Raises `away` when the service stops before."""
        log.info("delivery.waits", reason=str(away))
        self._presence.memory.clear()
        waits = [asyncio.create_task(event.wait()) for event in (self._presence.memory, self._stopping)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._stopping.is_set():
            raise away


async def _endless(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    await work()
    raise CounterpointError(f"{work.__qualname__} has ended")


async def _whole(message: NatsMessage) -> NatsMessage:
    return message


def _parsed(inbound: Inbound) -> Message:
    if not inbound.trusted:
        return parse(inbound.type, inbound.body)
    try:
        return Message.register[inbound.type].model_validate(inbound.body)
    except ValidationError as error:
        problems = tuple(Problem(field=".".join(map(str, e["loc"])), problem=e["msg"]) for e in error.errors()[:20])
        raise Permanent("invalid", problems) from error


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
