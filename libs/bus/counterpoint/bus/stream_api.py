"""The JetStream API requests that memory uses, each limited to one stream or consumer by the bus's permissions."""

import base64
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from counterpoint.proto.errors import Away

Request = Callable[[str, bytes, float], Awaitable[bytes]]
"""Subject, body and timeout in seconds to the reply; raises `Away`."""


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """Creation time of a stream, the time since when it holds messages if it has dropped any, and its last message."""

    created: datetime
    kept_since: datetime | None
    last_seq: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as a stream holds it, with the time at which it was stored."""

    subject: str
    headers: dict[str, str]
    data: bytes
    at: datetime


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """Messages that wait for a consumer, messages that it has not acknowledged, and its open requests for more."""

    waiting: int
    unacknowledged: int
    pulls: int


class StreamApi:
    """Typed requests to JetStream."""

    def __init__(self, request: Request, timeout_s: float) -> None:
        self._request = request
        self._timeout_s = timeout_s

    async def stream_info(self, stream: str) -> StreamInfo:
        """Return the age and extent of a stream. Raises `Away`, also when there is no such stream."""
        answer = await self._ask(f"STREAM.INFO.{stream}")
        if answer is None:
            raise Away(f"stream {stream} does not exist")
        state = answer["state"]
        kept_since = None
        if state["first_seq"] > 1:
            kept_since = server_time(state["first_ts"] if state["messages"] else answer["ts"])
        created = server_time(answer["created"])
        return StreamInfo(
            created=created,
            kept_since=kept_since,
            last_seq=state["last_seq"],
            last_at=max(created, server_time(state["last_ts"])),
        )

    async def backlog(self, stream: str, durable: str) -> int | None:
        """Return the number of messages pending or unacknowledged for a consumer; None if there is no such consumer.

        Raises `Away`.
        """
        state = await self.consumer_state(stream, durable)
        return None if state is None else state.waiting + state.unacknowledged

    async def consumer_state(self, stream: str, durable: str) -> ConsumerState | None:
        """Return the state of a consumer; None if there is no such consumer. Raises `Away`."""
        answer = await self._ask(f"CONSUMER.INFO.{stream}.{durable}")
        if answer is None:
            return None
        return ConsumerState(answer["num_pending"], answer["num_ack_pending"], answer["num_waiting"])

    async def stored_message(self, stream: str, sequence: int) -> StoredMessage | None:
        """Return the message that a stream holds at a sequence, or None. Raises `Away`."""
        answer = await self._ask(f"STREAM.MSG.GET.{stream}", {"seq": sequence})
        if answer is None:
            return None
        message = answer["message"]
        lines = base64.b64decode(message.get("hdrs", "")).decode(errors="replace").split("\r\n")[1:]
        headers = dict(line.split(": ", 1) for line in lines if ": " in line)
        at = server_time(message["time"])
        return StoredMessage(message["subject"], headers, base64.b64decode(message.get("data", "")), at)

    async def delete_message(self, stream: str, sequence: int) -> None:
        """Delete a message from a stream. Raises `Away`, also when the server refuses."""
        await self._ask(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence})

    async def _ask(self, api: str, question: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """Return JetStream's answer; None for code 404. Raises `Away`."""
        raw = json.dumps(question).encode() if question else b""
        answer: dict[str, Any] = json.loads(await self._request(f"$JS.API.{api}", raw, self._timeout_s))
        match answer.get("error"):
            case None:
                return answer
            case {"code": 404}:
                return None
            case error:
                raise Away(f"{api}: {error.get('description')}")


def server_time(text: str) -> datetime:
    """Parse a time of the server, cutting nanoseconds to microseconds."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))
