"""NATS in its own words: a login that says what the server refuses, with no client library between."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

_SID = count(1)


class Plain:
    """One login. What is delivered to it is kept in `received`, subjects only."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.received: list[str] = []

    async def may_publish(self, subject: str, payload: bytes = b"no json", reply: str = "") -> bool:
        """Publish, and whether the server let it through."""
        return await self._may(f"PUB {subject} {reply} {len(payload)}".encode() + b"\r\n" + payload + b"\r\n")

    async def may_subscribe(self, subject: str, queue: str = "") -> bool:
        """Subscribe, and whether the server let it; unsubscribed again at once."""
        sid = next(_SID)
        return await self._may(f"SUB {subject} {queue} {sid}\r\n".encode(), f"UNSUB {sid}\r\n".encode())

    async def listen(self, subject: str) -> None:
        """Subscribe and stay so."""
        assert await self._may(f"SUB {subject} {next(_SID)}\r\n".encode())

    async def _may(self, asked: bytes, undo: bytes = b"") -> bool:
        self._writer.write(asked + undo + b"PING\r\n")
        async with asyncio.timeout(10):
            refused = False
            while (line := await self._reader.readline()) != b"PONG\r\n":
                assert line, "the server closed the connection"
                word, _, rest = line.strip().partition(b" ")
                match word:
                    case b"-ERR":
                        assert b"Permissions Violation" in rest, line
                        refused = True
                    case b"MSG" | b"HMSG":
                        self.received.append(rest.split()[0].decode())
                        await self._reader.readexactly(int(rest.split()[-1]) + 2)
                    case b"PING":
                        self._writer.write(b"PONG\r\n")
                    case _:
                        assert word in (b"+OK", b"INFO"), line
        return not refused


@asynccontextmanager
async def login(port: int, user: str, password: str) -> AsyncIterator[Plain]:
    """A connection as `user`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        assert (await reader.readline()).startswith(b"INFO ")
        options = {"verbose": False, "pedantic": True, "user": user, "pass": password, "headers": True}
        writer.write(f"CONNECT {json.dumps(options)}\r\nPING\r\n".encode())
        assert await reader.readline() == b"PONG\r\n"
        yield Plain(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()
