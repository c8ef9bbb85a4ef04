"""Calls to other systems by HTTP: each name is resolved once, checked, and the checked address is connected to.

Redirects are not followed, proxies of the environment are not used, and a response is read up to a limit.
"""

import asyncio
import functools
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import httpcore

from counterpoint.proto.messages import utc_now

ANSWER_BYTES = 64 * 1024
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_PUBLIC_IPV6 = ipaddress.IPv6Network("2000::/3")
_PROTOCOLS = ipaddress.IPv4Network("192.0.0.0/24")
"""Addresses for protocols, by which a cloud serves its metadata too."""
_METADATA = (
    ipaddress.IPv6Network("fd00:ec2::/32"),
    ipaddress.IPv6Network("fd20:ce::254/128"),
    ipaddress.IPv6Network("fd00:42::42/128"),
    ipaddress.IPv4Network("100.100.100.200/32"),
    ipaddress.IPv4Network("168.63.129.16/32"),
)
"""Addresses at which clouds serve credentials to their machines: Amazon, Google, Scaleway, Alibaba, Azure. Those of the
others are link-local or in `_PROTOCOLS`."""
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


def may_connect(address: str, private: bool) -> bool:
    """Whether an IP address may be called. A private one only where it is allowed, a link-local one never, nor one
    at which a cloud serves credentials.

    An IPv6 address that leads to an IPv4 one is judged by that.
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        ip = _ipv4_in(ip) or ip
    if (
        ip.is_link_local
        or ip.is_multicast
        or ip.is_unspecified
        or any(ip in network for network in (_PROTOCOLS, *_METADATA))
    ):
        return False
    is_public = ip.is_global and (ip.version == 4 or ip in _PUBLIC_IPV6)
    return is_public or (private and (ip.is_private or ip.is_loopback))


def _ipv4_in(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address in a mapped, 6to4 or NAT64 address."""
    if ip in _NAT64:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour


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
