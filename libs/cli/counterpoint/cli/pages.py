"""Pages by their address: fetched within limits of size and time, over HTTP alone."""

import asyncio
import ipaddress
import socket
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx

from counterpoint.cli.addresses import is_page, plain
from counterpoint.cli.files import FILE_LIMIT_BYTES, Readable, Skipped, document

FETCH_LIMIT_S = 30.0
"""How long a page may take with all that it leads on to."""
REDIRECTS = 5
_TYPES = {"text/html": "html", "application/xhtml+xml": "html", "application/pdf": "pdf", "text/markdown": "markdown"}
_HEADERS = {"User-Agent": "counterpoint", "Accept-Encoding": "gzip"}
_PACKED = ("", "identity", "gzip")
"""What is asked for. Of other packings, and of one in another, a few bytes may be more than there is memory."""


def fetch(address: str) -> Readable | Skipped:
    """What is at an address, as a document of that name, or why it is none."""
    source = plain(address.partition("#")[0])
    try:
        content, media_type, charset = asyncio.run(_within_time(address))
    except (_NotFetched, httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return Skipped(Path(source), str(error) or type(error).__name__, failed=True, source=source)
    if charset and not content.startswith(b"\xef\xbb\xbf") and media_type.startswith("text/"):
        try:
            content = content.decode(charset).encode()
        except (LookupError, UnicodeError):
            return Skipped(Path(source), f"not in the encoding that it says, {charset}", failed=True, source=source)
    kind = _TYPES.get(media_type)
    return document(Path(source), source, content, type=kind, binary=kind == "pdf")


class _NotFetched(Exception):
    """Why there is nothing."""


_Page = tuple[bytes, str, str | None]
"""The content, its media type and its encoding, where it says one."""


async def _within_time(address: str) -> _Page:
    try:
        async with (
            asyncio.timeout(FETCH_LIMIT_S),
            httpx.AsyncClient(timeout=FETCH_LIMIT_S, headers=_HEADERS, follow_redirects=False) as client,
        ):
            return await _page(client, address)
    except (TimeoutError, httpx.TimeoutException) as late:
        raise _NotFetched(f"takes longer than {FETCH_LIMIT_S:g} s") from late


async def _page(client: httpx.AsyncClient, address: str) -> _Page:
    public = False
    for step in range(REDIRECTS + 1):
        host = urlsplit(address).hostname
        if not is_page(address) or not host:
            raise _NotFetched(f"leads to {plain(address)}, which is no address of HTTP")
        # What anybody has put on the web may not have us read what only we can reach.
        if step and public and not await is_public(host):
            raise _NotFetched(f"leads from a public address to a private one, {plain(address)}")
        public = public or (step == 0 and await is_public(host))
        async with client.stream("GET", address) as response:
            if response.has_redirect_location:
                address = urljoin(address, response.headers["location"])
                continue
            return await _content(response)
    raise _NotFetched(f"leads on more than {REDIRECTS} times")


async def _content(response: httpx.Response) -> _Page:
    if response.status_code != httpx.codes.OK:
        raise _NotFetched(f"answers {response.status_code} {response.reason_phrase}".strip())
    packed = response.headers.get("content-encoding", "").strip().lower()
    if packed not in _PACKED:
        raise _NotFetched(f"is packed as {packed}, which nobody asked for")
    content = bytearray()
    async for part in response.aiter_bytes():
        content += part
        if len(content) > FILE_LIMIT_BYTES:
            raise _NotFetched(f"huge: more than {FILE_LIMIT_BYTES // 2**20} MiB")
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return bytes(content), media_type, response.charset_encoding


async def is_public(host: str) -> bool:
    """Whether a host is one of the internet: all of its addresses are. One that nobody knows is none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_global for *_, address in found)
