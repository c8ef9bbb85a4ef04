"""Standing pull requests: one request for as many messages as there is capacity for, each delivered on arrival.

The fetch of nats-py sends a request per message, or holds the first message back until the batch or its time is full.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext

from counterpoint.proto import subjects

_END_STATUSES = frozenset({"404", "408"})
"""Status codes that end a pull request: no messages, and request timeout. Other conditions are temporary."""
_GRACE_S = 0.5
_DRAIN_S = 1.0
"""Time to receive what the server has sent before an unsubscription, below the ack wait."""
_RECONNECT_CHECK_S = 0.2
"""Seconds between checks for the server while disconnected; requests sent meanwhile would queue up in the client."""


class StandingPullContext(JetStreamContext):
    """A JetStream context for FastStream's subscribers. `capacity` returns the number of messages that may be taken."""

    def __init__(self, client: Client, capacity: Callable[[], int]) -> None:
        super().__init__(client)
        self._client = client
        self._capacity = capacity

    async def pull_subscribe(  # type: ignore[override]
        self, subject: str, *, stream: str, durable: str, **_: Any
    ) -> "StandingPull":
        """Bind to an existing consumer.

        Foreign messages may be empty, and the server ends a cross-account reply stream at an empty message, losing the
        rest of the batch. So intake messages are pulled one by one.
        """
        pull = StandingPull(self._client, stream, durable, _one if stream == subjects.INTAKE else self._capacity)
        await pull.open()
        return pull


def _one() -> int:
    return 1


class StandingPull:
    """The messages of one consumer. At most one request is outstanding; its batch bounds the messages held here."""

    def __init__(self, client: Client, stream: str, durable: str, capacity: Callable[[], int]) -> None:
        self._client = client
        self._api = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"
        self.inbox = client.new_inbox()
        self._capacity = capacity
        self._subscription: Subscription | None = None
        self._messages: list[Msg] = []
        self._arrived = asyncio.Event()
        self._outstanding = 0
        self._requests = 0
        self._until = 0.0

    async def open(self) -> None:
        """Subscribe to the inbox of the pull requests."""
        self._subscription = await self._client.subscribe(f"{self.inbox}.*", cb=self._receive)

    async def fetch(self, batch: int, timeout: float) -> list[Msg]:
        """Return the messages that have arrived, at least one. Raises `nats.errors.TimeoutError` after `timeout`."""
        if not self._messages:
            now = asyncio.get_running_loop().time()
            if not self._client.is_connected:
                self._outstanding, self._until = 0, now + _RECONNECT_CHECK_S
            elif self._outstanding < 1 or now >= self._until:
                await self._request(max(1, min(batch, self._capacity())), timeout)
            self._arrived.clear()
            try:
                async with asyncio.timeout_at(self._until):
                    await self._arrived.wait()
            except TimeoutError:
                self._outstanding = 0
        taken, self._messages = self._messages, []
        if not taken:
            raise nats.errors.TimeoutError
        return taken

    async def unsubscribe(self) -> None:
        """Unsubscribe, and return undelivered messages to the server while connected.

        If the server does not confirm in time, it delivers them again after the ack wait.
        """
        assert self._subscription is not None
        if not self._client.is_connected:
            await self._subscription.unsubscribe()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                await self._subscription.drain()  # type: ignore[no-untyped-call]
        for message in self._messages:
            await message.nak()

    async def _request(self, batch: int, timeout: float) -> None:
        self._outstanding, self._requests = batch, self._requests + 1
        self._until = asyncio.get_running_loop().time() + timeout + _GRACE_S
        request = json.dumps({"batch": batch, "expires": int(timeout * 1e9)}).encode()
        await self._client.publish(self._api, request, reply=f"{self.inbox}.{self._requests}")

    async def _receive(self, message: Msg) -> None:
        status = (message.headers or {}).get("Status") if not message.reply else None
        if status is None:
            self._outstanding = max(0, self._outstanding - 1)
            self._messages.append(message)
        elif status in _END_STATUSES and message.subject == f"{self.inbox}.{self._requests}":
            self._outstanding = 0
        else:
            return
        self._arrived.set()
