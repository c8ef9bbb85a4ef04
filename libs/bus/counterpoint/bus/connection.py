"""A service's connection to the bus: FastStream's broker, with requests, replies and acknowledged publishing added."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote, urlsplit, urlunsplit

import nats.errors
import structlog
from faststream.nats import NatsBroker
from faststream.security import BaseSecurity
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import PubAck

from counterpoint.bus.publisher import StreamPublisher
from counterpoint.bus.settings import BusSettings
from counterpoint.bus.standing_pull import StandingPull, StandingPullContext
from counterpoint.bus.stream_api import StreamApi
from counterpoint.bus.streams import PULL_S
from counterpoint.proto import subjects
from counterpoint.proto.errors import Away, ErrorCode, Permanent, Problem, Transient

log = structlog.get_logger()

Responder = Callable[[str, bytes], Awaitable[bytes]]
"""From the caller's name and the request body to the reply body."""

_RETRY_S = 0.2


class Connection(StreamApi):
    """One login on the bus. It reconnects without limit; if the client gives up nevertheless, the process exits."""

    def __init__(self, name: str, settings: BusSettings) -> None:
        super().__init__(self.request, settings.rpc_timeout_s)
        self.name = name
        self._settings = settings
        login = settings.login()
        self.broker = NatsBroker(
            _with_login(settings.nats_url, login.pop("user", ""), login.pop("password", "")),
            **login,
            name=f"counterpoint-{name}",
            security=BaseSecurity(ssl_context=settings.tls()),
            inbox_prefix=subjects.inbox_prefix(settings.nats_user).encode(),
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.25,  # type: ignore[arg-type]
            ping_interval=5,
            max_outstanding_pings=2,
            closed_cb=self._closed,
            reconnected_cb=self._reconnected,
            error_cb=self._error,
            graceful_timeout=1.0,
            drain_timeout=1,
            apply_types=False,
            logger=None,
        )
        self.on_reconnect: list[Callable[[], None]] = []
        self._responders: list[Subscription] = []
        self._replies: set[asyncio.Task[None]] = set()
        self._requests: dict[str, set[asyncio.Timeout]] = {}
        self._client: Client | None = None
        self._publisher: StreamPublisher | None = None
        self._pulls: list[StandingPull] = []
        self._closing = False

    async def open(self) -> None:
        """Connect; wait for the server without limit."""
        self._client = await self.broker.connect()
        self._publisher = StreamPublisher(self._client)
        await self._publisher.open()

    def use_standing_pulls(self, capacity: Callable[[], int]) -> None:
        """Have the broker's subscribers pull by standing requests, for at most `capacity()` messages each."""
        self.broker.config.broker_config.connection_state.connect(
            self.client, StandingPullContext(self.client, capacity)
        )

    async def close(self) -> None:
        """Stop taking messages, finish the replies under way, disconnect."""
        self._closing = True
        for pull in self._pulls:
            await pull.unsubscribe()
        for responder in self._responders:
            await responder.unsubscribe()
        if self._replies:
            await asyncio.wait(self._replies, timeout=self._settings.drain_s)
        try:
            await self.broker.stop()
        except (nats.errors.ConnectionReconnectingError, nats.errors.ConnectionClosedError):
            await self.client.close()

    @property
    def client(self) -> Client:
        """The connected client. Raises `Away` before `open`."""
        if self._client is None:
            raise Away("the bus is not connected")
        return self._client

    @property
    def connected(self) -> bool:
        """Whether the server is reachable now."""
        return self._client is not None and self._client.is_connected

    @property
    def connection_number(self) -> int | None:
        """The number of reconnects before the present connection to the server; None while disconnected."""
        return int(self._client.stats["reconnects"]) if self._client is not None and self.connected else None

    async def request(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        """Send a request and return its reply. Raises `Away` on a timeout, `Permanent` when the body is too large.

        When a request finds no responder, pending requests to the same service fail at once: their responder is gone.
        """
        if not self.connected:
            raise Away("the bus is unavailable")
        pending = self._requests.setdefault(subject.partition(".")[0], set())
        try:
            async with asyncio.timeout(None) as timeout:
                pending.add(timeout)
                try:
                    reply = await self.client.request(subject, body, timeout=timeout_s)
                finally:
                    pending.discard(timeout)
        except nats.errors.MaxPayloadError as error:
            problem = Problem(field="body", problem="exceeds the message size limit of the bus")
            raise Permanent(ErrorCode.TOO_LARGE, (problem,)) from error
        except (nats.errors.Error, TimeoutError, OSError) as error:
            if isinstance(error, nats.errors.NoRespondersError):
                now = asyncio.get_running_loop().time()
                for other in pending:
                    other.reschedule(now)
                pending.clear()
            raise Away(f"no reply on {subject}: {type(error).__name__}") from error
        return reply.data

    async def respond(self, subject: str, respond: Responder) -> None:
        """Reply to requests, each in its own task; the caller is the second token of the subject.

        Only the caller's account imports its subjects, and for requests from another account the server makes the reply
        subject itself, so that no client can forge it. A request with another reply subject is ignored.
        """

        async def reply(message: Msg) -> None:
            caller = message.subject.split(".")[1]
            if not message.reply.startswith(subjects.ANSWER_PREFIX):
                log.warning("request.foreign_reply", caller=caller)
                return
            await self.client.publish(message.reply, await respond(caller, message.data))

        async def received(message: Msg) -> None:
            task = asyncio.create_task(reply(message))
            self._replies.add(task)
            task.add_done_callback(self._replies.discard)
            task.add_done_callback(_report)

        self._responders.append(await self.client.subscribe(subject, cb=received))

    async def watch(self, subject: str, callback: Callable[[str, Mapping[str, str]], None]) -> Subscription:
        """Call `callback` with subject and headers of each message on a core subject, at most once each, until the
        returned subscription is ended."""

        async def received(message: Msg) -> None:
            callback(message.subject, message.headers or {})

        return await self.client.subscribe(subject, cb=received)

    async def publish(self, subject: str, body: bytes, headers: dict[str, str]) -> asyncio.Future[PubAck]:
        """Send a message to its stream and return the future of the acknowledgement.

        The future is cancelled after `rpc_timeout_s` without one; the stream may still have the message, so send it
        again under the same id. The future fails when the stream refuses the message. Raises `Away` while disconnected.
        """
        if not self.connected or self._publisher is None:
            raise Away("the bus is unavailable")
        try:
            stored = await self._publisher.publish(subjects.stream_of(subject), subject, body, headers)
        except (nats.errors.Error, OSError) as error:
            raise Away(f"not published: {type(error).__name__}") from error
        timeout = asyncio.get_running_loop().call_later(self._settings.rpc_timeout_s, stored.cancel)
        stored.add_done_callback(lambda _: timeout.cancel())
        return stored

    async def announce(self, subject: str, body: bytes, headers: dict[str, str]) -> None:
        """Send a message to the current subscribers, at most once. Raises `Away` while disconnected."""
        if not self.connected:
            raise Away("the bus is unavailable")
        try:
            await self.client.publish(subject, body, headers=headers)
        except (nats.errors.Error, OSError) as error:
            raise Away(f"not published: {type(error).__name__}") from error

    async def consume(self, stream: str, durable: str, handle: Callable[[bytes], Awaitable[None]]) -> None:
        """Call `handle` with each message of a consumer, one at a time, until closed; acknowledge when it returns.

        `Transient` is retried without limit; other errors propagate.
        """
        pull = StandingPull(self.client, stream, durable, lambda: 1)
        await pull.open()
        self._pulls.append(pull)
        while not self._closing:
            try:
                for message in await pull.fetch(1, PULL_S):
                    await _retry_transient(handle, message.data)
                    await message.ack()
            except (nats.errors.Error, TimeoutError):
                await asyncio.sleep(_RETRY_S)

    async def _reconnected(self) -> None:
        log.info("bus.reconnected")
        for callback in self.on_reconnect:
            callback()

    async def _closed(self) -> None:
        if not self._closing:
            log.critical("bus.closed")
            os._exit(70)

    async def _error(self, error: Exception) -> None:
        log.warning("bus.error", error=type(error).__name__, detail=str(error)[:200])


async def _retry_transient(handle: Callable[[bytes], Awaitable[None]], data: bytes) -> None:
    while True:
        try:
            return await handle(data)
        except Transient as error:
            log.warning("bus.retrying", reason=str(error))
            await asyncio.sleep(_RETRY_S)


def _report(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("request.failed", exc_info=error)


def _with_login(url: str, user: str, password: str) -> str:
    """Return the URL with this login, or without one: FastStream takes a login only in the URL."""
    parts = urlsplit(url)
    login = f"{quote(user)}:{quote(password)}@" if user else ""
    return urlunsplit(parts._replace(netloc=f"{login}{parts.netloc.rpartition('@')[2]}"))
