"""A service: it pulls its messages, runs their handlers with memory, and acknowledges what was committed."""

import asyncio
import gc
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext
from datetime import datetime
from typing import Any, assert_never

import nats.errors
import structlog
from faststream import AckPolicy
from faststream.nats import JStream, NatsMessage, PullSub
from nats.aio.msg import Msg

from counterpoint.bus.connection import Connection
from counterpoint.bus.delivery import Drop, LeaveUnacknowledged, MoveToDeadLetters, Retry
from counterpoint.bus.fair_limiter import FairLimiter
from counterpoint.bus.first_connection import refusal_in
from counterpoint.bus.health import health_app, http_server, serve
from counterpoint.bus.heartbeat import Heartbeat
from counterpoint.bus.logs import configure
from counterpoint.bus.processor import DeliveryProcessor, Handler, M, RejectionHook
from counterpoint.bus.readiness import Readiness
from counterpoint.bus.settings import BusSettings
from counterpoint.bus.streams import PULL_S, ConsumerSpec, consumer_specs
from counterpoint.bus.telemetry import DELIVERIES
from counterpoint.bus.turns import Urgency
from counterpoint.client import Memory
from counterpoint.guard.policy import policy
from counterpoint.proto import subjects
from counterpoint.proto.errors import CounterpointError
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Origin
from counterpoint.proto.messages import Message

log = structlog.get_logger()

_GC_OBJECTS = 10_000
"""New objects between two runs of the garbage collector. With Python's 700 it runs dozens of times a task, mostly over
objects that live on."""

UrgencyOf = Callable[[bytes, datetime], Urgency]
"""From the body of a message and its time in the stream to its urgency. Any body is possible."""


class Service:
    """One service process. `on` registers handlers, `add_task` background tasks; `run` returns after SIGTERM.

    `consumers` default to those of the policy; the server must have been provisioned with the same.
    """

    def __init__(self, name: str, settings: BusSettings, consumers: Sequence[ConsumerSpec] | None = None) -> None:
        self.name = name
        self.settings = settings
        self.connection = Connection(name, settings)
        specs = consumer_specs(policy()) if consumers is None else consumers
        self._consumers = tuple(spec for spec in specs if spec.durable == name)
        self._limiters: dict[str, tuple[FairLimiter, UrgencyOf]] = {}
        self._background: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._reasons: list[Callable[[], str | None]] = []
        self._finishing: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._readiness = Readiness(name, self.connection, self._consumers, settings.rpc_timeout_s)
        self._stopping = asyncio.Event()
        self._processor = DeliveryProcessor(name, settings, self.connection, self._readiness, self._stopping)
        self._capacity = asyncio.Event()
        self._capacity.set()
        self._deliveries: set[asyncio.Task[None]] = set()
        self._queued: dict[asyncio.Task[None], Msg] = {}
        self._under_way: set[tuple[int | None, str, int, datetime]] = set()

    def on(self, message_type: type[M]) -> Callable[[Handler[M]], Handler[M]]:
        """Register the handler of a message type that the policy routes to this service."""
        if message_type.TYPE not in policy().consumed(self.name):
            raise ValueError(f"the policy does not route {message_type.TYPE} to {self.name}")

        def register(handler: Handler[M]) -> Handler[M]:
            self._processor.handlers[message_type.TYPE] = handler
            return handler

        return register

    def limit_intake(self, message_type: type[Message], limiter: FairLimiter, urgency_of: UrgencyOf) -> None:
        """Handle bare messages of a type in the limiter's slots, those of a project by their turns. Queued messages
        occupy no worker."""
        self._limiters[message_type.TYPE] = limiter, urgency_of

    def on_rejected(self, hook: RejectionHook) -> None:
        """Register the messages sent along with the dead letter of a refused inbound message."""
        self._processor.on_rejected = hook

    def add_task(
        self, work: Callable[[], Coroutine[Any, Any, None]], ready: Callable[[], str | None] | None = None
    ) -> None:
        """Run `work` beside the handlers; its end stops the service. `ready` returns what it waits for, or None."""
        self._background.append(work)
        if ready is not None:
            self._reasons.append(ready)

    def on_stop(self, finish: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Await `finish` when the service stops, beside its deliveries, as long as memory can be reached."""
        self._finishing.append(finish)

    def memory(self, project: str, principal: str | None, message_id: str | None = None) -> Memory:
        """Return a memory client for work without an inbound message, on behalf of a principal in one project."""
        return self.memory_for(Origin(message_id=message_id or new_id(), fence=1, project=project, principal=principal))

    def memory_for(self, origin: Origin) -> Memory:
        """Return a memory client for an origin and the capability in it."""
        return self._processor.memory(origin)

    def unready_reasons(self) -> tuple[str, ...]:
        """Return the names of the dependencies that are not available; empty when the service is ready."""
        return (*self._readiness.missing(), *(reason for check in self._reasons if (reason := check())))

    async def run(self) -> None:
        """Configure logging, then serve until SIGTERM or SIGINT."""
        configure(self.name, self.settings.log_level)
        gc.set_threshold(_GC_OBJECTS)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        try:
            await self.live()
        finally:
            # The process ends: its last collections would look through every imported module, for .25 s.
            gc.freeze()

    def stop(self) -> None:
        """Make `live` return: no more messages are taken, deliveries under way have `drain_s` seconds to finish."""
        self._stopping.set()
        self._capacity.set()

    async def live(self) -> None:
        """Connect, consume and serve health until `stop`. Raises what any task of it raises, a `RefusedByServer` by
        itself."""
        application = health_app(self.unready_reasons, self.settings.masked())
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
                    if refusal := refusal_in(part.exception()):
                        raise refusal from None
                    log.critical("service.failed", part=part.get_name(), exc_info=part.exception())
                    part.result()
        finally:
            self.stop()
            await asyncio.gather(self._drain(), *(finish() for finish in self._finishing))
            await self.connection.close()
            health.should_exit = True
            for part in parts:
                part.cancel()
            await asyncio.gather(stopping, *parts, return_exceptions=True)
            log.info("service.stopped")

    async def _work(self) -> None:
        await self.connection.open()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._readiness.probe(), name="probe")
            if self._processor.handlers:
                await self._subscribe()
            for work in self._background:
                group.create_task(self._until_stopped(work), name=work.__qualname__)
            log.info("service.started")

    async def _until_stopped(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await work()
        if not self._stopping.is_set():
            raise CounterpointError(f"{work.__qualname__} ended unexpectedly")

    async def _subscribe(self) -> None:
        """Bind to the consumers once they are provisioned."""
        await self._readiness.consumers.wait()
        self.connection.use_standing_pulls(lambda: self.settings.workers - len(self._deliveries))
        for spec in self._consumers:
            subscriber = self.connection.broker.subscriber(
                spec.filters[0],
                durable=spec.durable,
                stream=JStream(spec.stream, declare=False),
                pull_sub=PullSub(batch_size=self.settings.workers, timeout=PULL_S),
                inbox_prefix=f"{subjects.inbox_prefix(self.settings.nats_user)}.".encode(),
                ack_policy=AckPolicy.MANUAL,
                decoder=_undecoded,
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
                log.warning("delivery.cancelled")
                delivery.cancel()

    async def _consume(self, message: NatsMessage) -> None:
        """Start a delivery; return when there is capacity for the next one.

        A message comes again while it is under way if its heartbeats were late, as on a machine without processor time.
        To begin it anew would discard what was done, each time again: the newest delivery alone may commit.
        """
        raw = message.raw_message
        meta = raw.metadata
        # A stream that is created again begins its sequence anew.
        key = (self.connection.connection_number, meta.stream, meta.sequence.stream, meta.timestamp)
        if key in self._under_way:
            DELIVERIES.labels(self.name, "repeated").inc()
            return
        limited = self._limiters.get(subjects.bare_type(raw.subject) or "")
        delivery = asyncio.create_task(self._deliver(raw, limited))
        self._under_way.add(key)
        delivery.add_done_callback(lambda _: self._under_way.discard(key))
        if limited is None:
            self._begun(delivery)
        else:
            self._queued[delivery] = raw
            delivery.add_done_callback(lambda ended: self._queued.pop(ended, None))
        await self._capacity.wait()

    @asynccontextmanager
    async def _slot(self, raw: Msg, limiter: FairLimiter, urgency_of: UrgencyOf) -> AsyncIterator[None]:
        """Hold a slot of the message's project."""
        urgency = urgency_of(raw.data, raw.metadata.timestamp)
        async with limiter.slot(subjects.project_of(raw.subject), urgency=urgency):
            delivery = asyncio.current_task()
            assert delivery is not None
            self._queued.pop(delivery, None)
            self._begun(delivery)
            yield

    def _begun(self, delivery: asyncio.Task[None]) -> None:
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._ended)
        if len(self._deliveries) >= self.settings.workers:
            self._capacity.clear()

    def _ended(self, delivery: asyncio.Task[None]) -> None:
        self._deliveries.discard(delivery)
        if len(self._deliveries) < self.settings.workers:
            self._capacity.set()
        if not delivery.cancelled() and (error := delivery.exception()) is not None:
            log.error("delivery.failed", exc_info=error)

    async def _deliver(self, raw: Msg, limited: tuple[FairLimiter, UrgencyOf] | None) -> None:
        """Process one delivery and acknowledge it: no other place acknowledges.

        A delivery of a lost connection is left for redelivery: a server that lost its streams restarts the sequence, so
        an acknowledgement by number could confirm another message.
        """
        outcome, number = "left", self.connection.connection_number

        def current() -> bool:
            return number is not None and number == self.connection.connection_number

        ack_wait_s = next(spec.ack_wait_s for spec in self._consumers if spec.stream == raw.metadata.stream)
        heartbeat = Heartbeat(raw, ack_wait_s, current)
        try:
            async with self._slot(raw, *limited) if limited else nullcontext():
                disposition = await self._processor.process(raw) if current() else LeaveUnacknowledged()
            if not current():
                disposition = LeaveUnacknowledged()
            match disposition:
                case None | Drop() | MoveToDeadLetters():
                    await raw.ack()
                case Retry(delay_s):
                    await raw.nak(delay=delay_s)
                case LeaveUnacknowledged():
                    pass
                case _:
                    assert_never(disposition)
            outcome = type(disposition).__name__.lower() if disposition else "done"
        except (nats.errors.Error, TimeoutError, OSError) as away:
            log.warning("delivery.unacknowledged", reason=type(away).__name__)
        finally:
            heartbeat.stop()
            DELIVERIES.labels(self.name, outcome).inc()


async def _undecoded(message: NatsMessage) -> NatsMessage:
    return message
