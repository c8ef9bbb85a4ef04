"""Pipelined publishing to streams: each message has a future for the stream's acknowledgement."""

import asyncio
import itertools
import json
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import Header, PubAck
from nats.js.errors import APIError, NoStreamResponseError

_NO_RESPONDERS = "503"


class StreamPublisher:
    """Publishes with one inbox for all acknowledgements.

    `JetStreamContext.publish_async` of nats-py raises a stream's refusal in its callback instead of failing the future.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = client.new_inbox()
        self._numbers = itertools.count(1)
        self._pending: dict[str, asyncio.Future[PubAck]] = {}

    async def open(self) -> None:
        """Subscribe to the acknowledgements."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._acknowledged)

    async def publish(self, stream: str, subject: str, body: bytes, headers: dict[str, str]) -> asyncio.Future[PubAck]:
        """Send a message and return the future of its acknowledgement, which fails when the stream refuses it.

        Raises what the client raises when the message cannot be sent.
        """
        reply = f"{self._inbox}.{next(self._numbers)}"
        future = self._pending[reply] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda _: self._pending.pop(reply, None))
        try:
            await self._client.publish(subject, body, reply=reply, headers=headers | {Header.EXPECTED_STREAM: stream})
        except BaseException:
            future.cancel()
            raise
        return future

    async def _acknowledged(self, message: Msg) -> None:
        future = self._pending.get(message.subject)
        if future is None or future.done():
            return
        if (message.headers or {}).get(Header.STATUS) == _NO_RESPONDERS:
            future.set_exception(NoStreamResponseError())
            return
        answer: dict[str, Any] = json.loads(message.data)
        if "error" not in answer:
            future.set_result(PubAck.from_response(answer))
            return
        try:
            APIError.from_error(answer["error"])
        except APIError as refusal:
            future.set_exception(refusal)
