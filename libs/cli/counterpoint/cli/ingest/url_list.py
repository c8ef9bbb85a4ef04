"""URLs of pages, and lists of them."""

import re
from collections.abc import Sequence
from pathlib import Path

from counterpoint.cli.errors import UsageError

_CREDENTIALS = re.compile(r"^([^:/?#]+://)[^/?#]*@")


def is_page(name: str) -> bool:
    """Return whether a name is the URL of a page."""
    return name.lower().startswith(("http://", "https://"))


def without_credentials(address: str) -> str:
    """Return a URL without user name and password."""
    return _CREDENTIALS.sub(r"\1", address)


def read_urls(path: Path) -> Sequence[str]:
    """Return the URLs in a file, one a line. Empty lines and lines with `#` are skipped.

    Raises `UsageError` for an unreadable file or an invalid line.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error
    for number, line in enumerate(lines, 1):
        if line and not line.startswith("#") and not is_page(line):
            raise UsageError(f"{path}: line {number} is not a URL that starts with http:// or https://")
    return [line for line in lines if line and not line.startswith("#")]
