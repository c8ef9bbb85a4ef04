"""Calls to other systems by HTTP: each name is resolved once, checked, and the checked address is connected to.

Redirects are not followed, proxies of the environment are not used, and a response is read up to a limit.
"""

import asyncio
import functools
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import httpcore

from counterpoint.proto.addresses import may_connect
from counterpoint.proto.messages import utc_now

ANSWER_BYTES = 64 * 1024
_tls_context = functools.cache(httpcore.default_ssl_context)
"""The certificates take 30 ms of the processor to load."""


class BlockedAddress(Exception):
    """The address is not one that may be called."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request to another system. `headers` and `url` may hold credentials, so it has no text form."""

    url: str = field(repr=False)
    content: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    method: str = "POST"


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: its status, headers in lower case, and the beginning of its body."""

    status: int
    headers: Mapping[str, str]
    content: bytes = b""

    @property
    def retry_after_s(self) -> float | None:
        """The delay that the receiver asks for, by seconds or by date."""
        value = self.headers.get("retry-after", "").strip()
        if value.isdecimal() and len(value) < 10:
            return float(value)
        try:
            at = parsedate_to_datetime(value)
        except ValueError:
            return None
        return max((at - utc_now()).total_seconds(), 0.0) if at.tzinfo else None


async def checked_address(host: str, port: int, private: bool) -> str:
    """Resolve a host and return the address to connect to. Raises `BlockedAddress` if one of them is barred."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError("the host name could not be resolved") from error
    addresses = [str(row[4][0]) for row in found]
    if not addresses or not all(may_connect(address, private) for address in addresses):
        raise BlockedAddress("the host has a private or link-local address")
    return addresses[0]


class _PinnedBackend(httpcore.AsyncNetworkBackend):
    """A network backend that connects to checked addresses only."""

    def __init__(self, private: bool) -> None:
        self._private = private
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Resolve, check and connect. Raises `BlockedAddress`."""
        address = await checked_address(host, port, self._private)
        return await self._backend.connect_tcp(address, port, timeout, local_address, socket_options)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Refuse: receivers have addresses."""
        raise BlockedAddress("the address is a file")

    async def sleep(self, seconds: float) -> None:
        """Wait, for the pool's own retries."""
        await asyncio.sleep(seconds)


async def exchange(call: Call, private: bool, timeout_s: float, limit_bytes: int = ANSWER_BYTES) -> Answer:
    """Send a request within `timeout_s`, on a connection of its own, and return the response up to `limit_bytes`.

    Raises `BlockedAddress`, `TimeoutError`, and the network errors of httpcore.
    """
    headers = {"User-Agent": "counterpoint", "Accept-Encoding": "identity", **call.headers}
    content = bytearray()
    async with (
        asyncio.timeout(timeout_s),
        httpcore.AsyncConnectionPool(ssl_context=_tls_context(), network_backend=_PinnedBackend(private)) as pool,
        pool.stream(call.method, call.url, headers=list(headers.items()), content=call.content) as response,
    ):
        async for part in response.aiter_stream():
            content += part
            if len(content) >= limit_bytes:
                break
    lower = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
    return Answer(response.status, lower, bytes(content[:limit_bytes]))
