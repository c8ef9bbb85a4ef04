"""Pages: fetched by HTTP within limits of size and time."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies

import httpx

from counterpoint.cli.ingest.files import FILE_LIMIT_BYTES, SkippedPath, SourceFile, document
from counterpoint.cli.ingest.url_list import is_page, without_credentials
from counterpoint.proto.addresses import may_connect

FETCH_LIMIT_S = 30.0
"""Timeout of a page, including redirects."""
REDIRECTS = 5
_TYPES = {"text/html": "html", "application/xhtml+xml": "html", "application/pdf": "pdf", "text/markdown": "markdown"}
_HEADERS = {"User-Agent": "counterpoint", "Accept-Encoding": "gzip"}
_PACKED = ("", "identity", "gzip")
"""Accepted content encodings. Others, and nested ones, may expand beyond the memory."""


def fetch(address: str) -> SourceFile | SkippedPath:
    """Fetch a page as a document, or return the reason to skip it."""
    source = without_credentials(address.partition("#")[0])
    try:
        content, media_type, charset = asyncio.run(_within_time(address))
    except (_NotFetched, httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return SkippedPath(Path(source), str(error) or type(error).__name__, failed=True, source=source)
    if charset and not content.startswith(b"\xef\xbb\xbf") and media_type.startswith("text/"):
        try:
            content = content.decode(charset).encode()
        except (LookupError, UnicodeError):
            return SkippedPath(Path(source), f"not in its declared encoding, {charset}", failed=True, source=source)
    kind = _TYPES.get(media_type)
    return document(Path(source), source, content, type=kind, binary=kind == "pdf")


class _NotFetched(Exception):
    """The page cannot be fetched."""


_Page = tuple[bytes, str, str | None]
"""Content, media type and declared encoding."""


async def _within_time(address: str) -> _Page:
    try:
        async with (
            asyncio.timeout(FETCH_LIMIT_S),
            httpx.AsyncClient(timeout=FETCH_LIMIT_S, headers=_HEADERS, follow_redirects=False) as client,
        ):
            return await _page(client, address)
    except (TimeoutError, httpx.TimeoutException) as late:
        raise _NotFetched(f"took longer than {FETCH_LIMIT_S:g} s") from late


async def _page(client: httpx.AsyncClient, address: str) -> _Page:
    public = False
    for step in range(REDIRECTS + 1):
        host = urlsplit(address).hostname
        if not is_page(address) or not host:
            raise _NotFetched(f"redirects to {without_credentials(address)}, which is not an HTTP URL")
        # A public page must not redirect to a host that only this machine can reach.
        addresses = await addresses_of(host)
        if step and public and not is_public(addresses):
            raise _NotFetched(f"redirects from a public address to a private one, {without_credentials(address)}")
        public = public or (step == 0 and is_public(addresses))
        async with aclosing(await _response(client, address, addresses if public else ())) as response:
            if response.has_redirect_location:
                address = urljoin(address, response.headers["location"])
                continue
            return await _content(response)
    raise _NotFetched(f"redirects more than {REDIRECTS} times")


async def _response(client: httpx.AsyncClient, address: str, checked: Sequence[str]) -> httpx.Response:
    """Request a page from one of the checked addresses of its host, which may have others by now; from the host if none
    are given, or where a proxy connects."""
    url = httpx.URL(address)
    if not checked or getproxies():
        return await client.send(client.build_request("GET", url), stream=True)
    host = url.raw_host.decode("ascii")
    for place, each in enumerate(checked, 1):
        request = client.build_request(
            "GET", url.copy_with(host=each), headers={"Host": url.netloc.decode()}, extensions={"sni_hostname": host}
        )
        try:
            return await client.send(request, stream=True)
        except httpx.ConnectError:
            if place == len(checked):
                raise
    raise AssertionError("there is an address")


async def _content(response: httpx.Response) -> _Page:
    if response.status_code != httpx.codes.OK:
        raise _NotFetched(f"returned HTTP {response.status_code} {response.reason_phrase}".strip())
    packed = response.headers.get("content-encoding", "").strip().lower()
    if packed not in _PACKED:
        raise _NotFetched(f"has the unsupported content encoding {packed}")
    content = bytearray()
    async for part in response.aiter_bytes():
        content += part
        if len(content) > FILE_LIMIT_BYTES:
            raise _NotFetched(f"too large: more than {FILE_LIMIT_BYTES // 2**20} MiB")
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return bytes(content), media_type, response.charset_encoding


async def addresses_of(host: str) -> tuple[str, ...]:
    """Return the addresses of a host, those of IPv4 first; none of an unknown host."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(sorted({str(address[0]).partition("%")[0] for *_, address in found}, key=lambda each: ":" in each))


def is_public(addresses: Sequence[str]) -> bool:
    """Return whether there are addresses, and all of them are public."""
    return bool(addresses) and all(may_connect(each, private=False) for each in addresses)
