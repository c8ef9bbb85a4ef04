"""Pages by their address: fetched within limits of size and time, over HTTP alone."""

import time
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx

from counterpoint.cli.addresses import is_page, plain
from counterpoint.cli.files import FILE_LIMIT_BYTES, Readable, Skipped, document

FETCH_LIMIT_S = 30.0
REDIRECTS = 5
_TYPES = {"text/html": "html", "application/xhtml+xml": "html", "application/pdf": "pdf", "text/markdown": "markdown"}


def fetch(client: httpx.Client, address: str) -> Readable | Skipped:
    """What is at an address, as a document of that name, or why it is none."""
    source = plain(address.partition("#")[0])
    try:
        content, media_type, charset = _content(client, address)
    except _NotFetched as error:
        return Skipped(Path(source), str(error), failed=True, source=source)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
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


def _content(client: httpx.Client, address: str) -> tuple[bytes, str, str | None]:
    """The content, its media type and its encoding, where it says one."""
    until = time.monotonic() + FETCH_LIMIT_S
    for _ in range(REDIRECTS + 1):
        if not is_page(address) or not urlsplit(address).hostname:
            raise _NotFetched(f"leads to {plain(address)}, which is no address of HTTP")
        with client.stream("GET", address, follow_redirects=False) as response:
            if response.has_redirect_location:
                address = urljoin(address, response.headers["location"])
                continue
            if response.status_code != httpx.codes.OK:
                raise _NotFetched(f"answers {response.status_code} {response.reason_phrase}".strip())
            content = bytearray()
            for part in response.iter_bytes():
                content += part
                if len(content) > FILE_LIMIT_BYTES:
                    raise _NotFetched(f"huge: more than {FILE_LIMIT_BYTES // 2**20} MiB")
                if time.monotonic() > until:
                    raise _NotFetched(f"takes longer than {FETCH_LIMIT_S:g} s")
            media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            return bytes(content), media_type, response.charset_encoding
    raise _NotFetched(f"leads on more than {REDIRECTS} times")
