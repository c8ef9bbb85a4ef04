"""Addresses of pages, and lists of them."""

import re
from collections.abc import Sequence
from pathlib import Path

from counterpoint.cli.errors import Misused

_CREDENTIALS = re.compile(r"^([^:/?#]+://)[^/?#]*@")


def is_page(name: str) -> bool:
    """Whether it is an address that is fetched."""
    return name.lower().startswith(("http://", "https://"))


def plain(address: str) -> str:
    """The address without the name and password in it."""
    return _CREDENTIALS.sub(r"\1", address)


def addresses(path: Path) -> Sequence[str]:
    """The addresses in a file, one a line; empty lines and those that begin with `#` are none.

    Raises `Misused` for a file that cannot be read, and for a line that is no address.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise Misused(f"{path}: {error}") from error
    for number, line in enumerate(lines, 1):
        if line and not line.startswith("#") and not is_page(line):
            raise Misused(f"{path}: line {number} is no address that begins with http:// or https://")
    return [line for line in lines if line and not line.startswith("#")]
