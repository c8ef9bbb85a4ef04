"""A server of mail that keeps what it takes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from counterpoint.router.notify.receivers import Receiver


@asynccontextmanager
async def mail_server(mails: list[str], farewell: bytes = b"221 bye\r\n") -> AsyncIterator[Receiver]:
    """A receiver of mail whose server keeps what it takes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail\r\n")
        while line := (await reader.readline()).decode().upper():
            if line.startswith("DATA"):
                writer.write(b"354 go\r\n")
                body = await reader.readuntil(b"\r\n.\r\n")
                mails.append(body.decode())
            writer.write(farewell if line.startswith("QUIT") else b"250 ok\r\n")
            if line.startswith("QUIT"):
                break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        fields = {"name": "mail", "kind": "email", "url": url, "to": ["a@example.com"], "sender": "b@example.com"}
        yield Receiver.model_validate({**fields, "private": True})
