"""Pulls that stand: one request for as many messages as there is room for, each handed on as it comes.

The fetch of nats-py asks for every message anew, or holds the first back until the last has come or time is up.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext

from counterpoint.proto import subjects

_OVER = frozenset({"404", "408"})
"""No more messages come of this request: there were none, or its time is up. Whatever else is said passes by itself."""
_GRACE_S = 0.5
_AWAY_S = 0.2
"""How often to look whether the server is back: what is asked while it is away would all be asked once it is."""


class Pulls(JetStreamContext):
    """JetStream for FastStream's subscribers, whose pulls stand. `room` says how many messages may be taken now."""

    def __init__(self, client: Client, room: Callable[[], int]) -> None:
        super().__init__(client)
        self._client = client
        self._room = room

    async def pull_subscribe(  # type: ignore[override]
        self, subject: str, *, stream: str, durable: str, **_: Any
    ) -> "Pull":
        """Bind to a consumer that is there.

        What others send may be empty, and an empty answer from another account is the last one that the server passes
        on: all that followed in the same request would be lost. So messages of theirs are asked for one by one.
        """
        pull = Pull(self._client, stream, durable, _one if stream == subjects.INTAKE else self._room)
        await pull.open()
        return pull


def _one() -> int:
    return 1


class Pull:
    """One consumer's messages. At most one request stands, and at most as many messages as it asked for are here."""

    def __init__(self, client: Client, stream: str, durable: str, room: Callable[[], int]) -> None:
        self._client = client
        self._api = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"
        self.inbox = client.new_inbox()
        self._room = room
        self._subscription: Subscription | None = None
        self._messages: list[Msg] = []
        self._there = asyncio.Event()
        self._asked = 0
        self._requests = 0
        self._until = 0.0

    async def open(self) -> None:
        """Listen for what is pulled."""
        self._subscription = await self._client.subscribe(f"{self.inbox}.*", cb=self._received)

    async def fetch(self, batch: int, timeout: float) -> list[Msg]:
        """What has come, at least one message. Raises `nats.errors.TimeoutError` when none has in so many seconds."""
        if not self._messages:
            now = asyncio.get_running_loop().time()
            if not self._client.is_connected:
                self._asked, self._until = 0, now + _AWAY_S
            elif self._asked < 1 or now >= self._until:
                await self._ask(max(1, min(batch, self._room())), timeout)
            self._there.clear()
            try:
                async with asyncio.timeout_at(self._until):
                    await self._there.wait()
            except TimeoutError:
                self._asked = 0
        taken, self._messages = self._messages, []
        if not taken:
            raise nats.errors.TimeoutError
        return taken

    async def unsubscribe(self) -> None:
        """Take no more; what has come and was not handed on goes back, where there is still a server to take it."""
        assert self._subscription is not None
        await self._subscription.unsubscribe()
        if self._client.is_connected:
            for message in self._messages:
                await message.nak()

    async def _ask(self, batch: int, timeout: float) -> None:
        self._asked, self._requests = batch, self._requests + 1
        self._until = asyncio.get_running_loop().time() + timeout + _GRACE_S
        request = json.dumps({"batch": batch, "expires": int(timeout * 1e9)}).encode()
        await self._client.publish(self._api, request, reply=f"{self.inbox}.{self._requests}")

    async def _received(self, message: Msg) -> None:
        status = (message.headers or {}).get("Status") if not message.reply else None
        if status is None:
            self._asked = max(0, self._asked - 1)
            self._messages.append(message)
        elif status in _OVER and message.subject == f"{self.inbox}.{self._requests}":
            self._asked = 0
        else:
            return
        self._there.set()
