"""The answers of a read set, as text and as they are stored."""

import zlib
from collections.abc import Mapping
from typing import Any


def packed(text: str | None) -> bytes | None:
    """Return answers as they are stored: deflated."""
    return None if text is None else zlib.compress(text.encode())


def answers_text(row: Mapping[str, Any]) -> str | None:
    """Return the answers of a row of read sets, which has them in `packed` or, of an earlier release, in `answers`.

    What cannot be inflated is an empty text, which no leaf attests.
    """
    if row["packed"] is None:
        return None if row["answers"] is None else str(row["answers"])
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(row["packed"]).decode()
    except (zlib.error, ValueError):
        return ""
    return text if stream.eof and not stream.unused_data and row["answers"] is None else ""
