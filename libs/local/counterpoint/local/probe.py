"""Readiness probes of local ports."""

import asyncio
from collections.abc import Callable

from counterpoint.local.listen_addresses import LOCALHOST


async def ask(
    port: int, request: bytes, enough: Callable[[bytes], bool], timeout_s: float = 2.0, host: str = LOCALHOST
) -> bytes:
    """Send `request` to `host`:`port` and return the reply up to `enough` or the end of the stream.

    Empty when nothing listens or replies in time: not ready.
    """
    received = b""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(request)
                await writer.drain()
                while not enough(received) and (part := await reader.read(65536)):
                    received += part
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""
    return received


async def http_ok(port: int, path: str, host: str = LOCALHOST) -> bool:
    """Whether an HTTP server on `host`:`port` replies to GET `path` with 200."""
    named = f"[{host}]" if ":" in host else host
    request = f"GET {path} HTTP/1.1\r\nHost: {named}:{port}\r\nConnection: close\r\n\r\n".encode()
    answer = await ask(port, request, lambda received: b"\r\n" in received, host=host)
    return answer.split(b" ")[1:2] == [b"200"]
