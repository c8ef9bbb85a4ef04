"""A service's connection to the bus: FastStream's broker below, and what it does not have: requests and replies."""

import asyncio
import base64
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import nats.errors
import structlog
from faststream.nats import NatsBroker
from faststream.security import BaseSecurity
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.errors import APIError

from counterpoint.bus.pull import Pull, Pulls
from counterpoint.bus.settings import BusSettings
from counterpoint.bus.streams import PULL_S
from counterpoint.proto import subjects
from counterpoint.proto.errors import Away, Permanent, Problem, Transient

log = structlog.get_logger()

Respond = Callable[[str, bytes], Awaitable[bytes]]
"""From the caller's name and the request to the reply."""

_AGAIN_S = 0.2


class Connection:
    """One login on the bus. It reconnects for ever; when the client gives up all the same, the process ends."""

    def __init__(self, name: str, settings: BusSettings) -> None:
        self.name = name
        self._settings = settings
        self.broker = NatsBroker(
            _with_login(settings.nats_url, settings.nats_user, settings.nats_password.get_secret_value()),
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
        self._client: Client | None = None
        self._jetstream: JetStreamContext | None = None
        self._pulls: list[Pull] = []
        self._closing = False

    async def open(self) -> None:
        """Connect; waits for the server for ever."""
        self._client = await self.broker.connect()
        self._jetstream = _Publisher(
            self._client, timeout=self._settings.rpc_timeout_s, publish_async_max_pending=20_000
        )

    def stand(self, room: Callable[[], int]) -> None:
        """Have the pulls of the broker's subscribers stand, for as many messages as there is `room` for."""
        self.broker.config.broker_config.connection_state.connect(self.client, Pulls(self.client, room))

    async def close(self) -> None:
        """Take no more, answer the requests under way, disconnect."""
        self._closing = True
        for pulled in self._pulls:
            await pulled.unsubscribe()
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
        """Whether the server is reachable right now."""
        return self._client is not None and self._client.is_connected

    @property
    def life(self) -> int | None:
        """Which connection to the server this is, counted; None while there is none."""
        return int(self._client.stats["reconnects"]) if self._client is not None and self.connected else None

    @property
    def jetstream(self) -> JetStreamContext:
        """JetStream on this connection. Raises `Away` before `open`."""
        if self._jetstream is None:
            raise Away("the bus is not connected")
        return self._jetstream

    async def request(self, subject: str, body: bytes, timeout_s: float) -> bytes:
        """One request and its reply. Raises `Away` when nobody answers in time, `Permanent` when it is too large."""
        if not self.connected:
            raise Away("the bus is away")
        try:
            reply = await self.client.request(subject, body, timeout=timeout_s)
        except nats.errors.MaxPayloadError as error:
            raise Permanent("too_large", (Problem(field="body", problem="is more than the bus carries"),)) from error
        except (nats.errors.Error, TimeoutError, OSError) as error:
            raise Away(f"no answer on {subject}: {type(error).__name__}") from error
        return reply.data

    async def respond(self, subject: str, answer: Respond) -> None:
        """Answer requests, each in a task of its own; the caller is the subject's token.

        Only the account of that caller imports its subjects, and the server makes the reply subject of what comes from
        there, which no client can name. So the answer goes back to that account, and another reply is none of ours.
        """

        async def reply(message: Msg) -> None:
            caller = message.subject.split(".")[1]
            if not message.reply.startswith(subjects.ANSWER_PREFIX):
                log.warning("request.foreign_reply", caller=caller)
                return
            await self.client.publish(message.reply, await answer(caller, message.data))

        async def received(message: Msg) -> None:
            task = asyncio.create_task(reply(message))
            self._replies.add(task)
            task.add_done_callback(self._replies.discard)
            task.add_done_callback(_report)

        self._responders.append(await self.client.subscribe(subject, cb=received))

    async def watch(self, subject: str, seen: Callable[[str, Mapping[str, str]], None]) -> None:
        """Call `seen` with subject and headers of what passes by on a core subject, at most once each."""

        async def received(message: Msg) -> None:
            seen(message.subject, message.headers or {})

        await self.client.subscribe(subject, cb=received)

    async def publish(self, subject: str, body: bytes, headers: dict[str, str]) -> "asyncio.Future[Any]":
        """Send to a stream; the future is done when the stream has it, and cancelled when it does not say so in time.

        It may have it all the same, or get it later: send again under the same id. The future fails when the stream
        refuses it. Raises `Away` while disconnected.
        """
        if not self.connected:
            raise Away("the bus is away")
        try:
            stored = await self.jetstream.publish_async(
                subject, body, headers=headers, stream=subjects.stream_of(subject)
            )
        except (nats.errors.Error, OSError) as error:
            raise Away(f"not published: {type(error).__name__}") from error
        patience = asyncio.get_running_loop().call_later(self._settings.rpc_timeout_s, stored.cancel)
        stored.add_done_callback(lambda _: patience.cancel())
        return stored

    async def stream_life(self, stream: str) -> "StreamLife":
        """Since when a stream exists and how far back it reaches. Raises `Away`."""
        answer = await self._ask(f"STREAM.INFO.{stream}")
        if answer is None:
            raise Away(f"there is no stream {stream}")
        state = answer["state"]
        kept_since = None
        if state["first_seq"] > 1:
            kept_since = _moment(state["first_ts"] if state["messages"] else answer["ts"])
        created = _moment(answer["created"])
        return StreamLife(
            created=created,
            kept_since=kept_since,
            last_seq=state["last_seq"],
            last_at=max(created, _moment(state["last_ts"])),
        )

    async def backlog(self, stream: str, durable: str) -> int | None:
        """How many messages wait for this consumer or its acks; None when the server has no such. Raises `Away`."""
        answer = await self._ask(f"CONSUMER.INFO.{stream}.{durable}")
        return None if answer is None else answer["num_pending"] + answer["num_ack_pending"]

    async def stored(self, stream: str, sequence: int) -> "Stored | None":
        """The message a stream holds at a sequence, or None. Raises `Away`."""
        answer = await self._ask(f"STREAM.MSG.GET.{stream}", {"seq": sequence})
        if answer is None:
            return None
        message = answer["message"]
        lines = base64.b64decode(message.get("hdrs", "")).decode(errors="replace").split("\r\n")[1:]
        headers = dict(line.split(": ", 1) for line in lines if ": " in line)
        at = _moment(message["time"])
        return Stored(message["subject"], headers, base64.b64decode(message.get("data", "")), at)

    async def drop(self, stream: str, sequence: int) -> None:
        """Take a message out of a stream. Raises `Away`, also when it is not there."""
        await self._ask(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence})

    async def each(self, stream: str, durable: str, handle: Callable[[bytes], Awaitable[None]]) -> None:
        """Hand the messages of a consumer to `handle` one by one, until closed; what it finishes is acknowledged.

        When it raises `Transient` it is tried again, for ever. Raises what else it raises.
        """
        pull = Pull(self.client, stream, durable, lambda: 1)
        await pull.open()
        self._pulls.append(pull)
        while not self._closing:
            try:
                for message in await pull.fetch(1, PULL_S):
                    await _insistently(handle, message.data)
                    await message.ack()
            except (nats.errors.Error, TimeoutError):
                await asyncio.sleep(_AGAIN_S)

    async def _ask(self, api: str, question: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """JetStream's answer; None when it knows no such thing. Raises `Away`."""
        raw = json.dumps(question).encode() if question else b""
        answer: dict[str, Any] = json.loads(await self.request(f"$JS.API.{api}", raw, self._settings.rpc_timeout_s))
        match answer.get("error"):
            case None:
                return answer
            case {"code": 404}:
                return None
            case error:
                raise Away(f"{api}: {error.get('description')}")

    async def _reconnected(self) -> None:
        log.info("bus.reconnected")
        for back in self.on_reconnect:
            back()

    async def _closed(self) -> None:
        if not self._closing:
            log.critical("bus.closed")
            os._exit(70)

    async def _error(self, error: Exception) -> None:
        log.warning("bus.error", error=type(error).__name__, detail=str(error)[:200])


class _Publisher(JetStreamContext):
    """JetStream that tells of a refusal where its base class raises it while nobody listens."""

    async def _handle_async_reply(self, msg: Msg) -> None:
        try:
            await super()._handle_async_reply(msg)
        except APIError as refused:
            waiting = (future for token, future in self._publish_async_futures.items() if msg.subject.endswith(token))
            for future in waiting:
                future.set_exception(refused)
                return


@dataclass(frozen=True, slots=True)
class StreamLife:
    """When a stream was made, since when it holds messages if it has dropped any, and its last message."""

    created: datetime
    kept_since: datetime | None
    last_seq: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as a stream holds it, and when it came."""

    subject: str
    headers: dict[str, str]
    data: bytes
    at: datetime


async def _insistently(handle: Callable[[bytes], Awaitable[None]], data: bytes) -> None:
    while True:
        try:
            return await handle(data)
        except Transient as away:
            log.warning("bus.again", reason=str(away))
            await asyncio.sleep(_AGAIN_S)


def _moment(text: str) -> datetime:
    """A server time, which has nanoseconds."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))


def _report(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("request.failed", exc_info=error)


def _with_login(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{quote(user)}:{quote(password)}@{parts.netloc.rpartition('@')[2]}"))
