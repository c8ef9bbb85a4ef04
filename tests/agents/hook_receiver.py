"""A receiver of webhooks: a real HTTP server on a free port, which answers as it is told to."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class HookRequest:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


@dataclass(frozen=True)
class Reply:
    """An answer; `hangs` for one that never comes."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    hangs: bool = False


@dataclass
class HookReceiver:
    """Requests received, oldest first. `replies` are used up in order; then `reply` answers."""

    url: str = ""
    received: list[HookRequest] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    reply: Reply = Reply()
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, count: int, timeout_s: float = 30) -> list[HookRequest]:
        """Wait for so many requests and return them."""
        async with asyncio.timeout(timeout_s), self.changed:
            await self.changed.wait_for(lambda: len(self.received) >= count)
        return self.received

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        content = await reader.readexactly(int(headers.get("content-length", 0)))
        async with self.changed:
            self.received.append(HookRequest(head[0].split()[1], headers, content))
            self.changed.notify_all()
        reply = self.replies.pop(0) if self.replies else self.reply
        if reply.hangs:
            await self.released.wait()
            return False
        body = b"" if reply.body is None else json.dumps(reply.body).encode()
        lines = [f"HTTP/1.1 {reply.status} X", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in reply.headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()
        return True


@asynccontextmanager
async def hook_receiver() -> AsyncIterator[HookReceiver]:
    """A receiver, until the end of the block."""
    receiver = HookReceiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    receiver.url = f"http://{host}:{port}"
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.close()
