"""The answers of a read set, as text and as they are stored."""

import zlib
from collections.abc import Mapping
from typing import Any

from counterpoint.memory.record.packed_text import Shared, pack, unpack

_ZLIB = b"\x78"
"""First byte of answers that an earlier release deflated."""


def packed(text: str | None) -> bytes | None:
    """Return answers as they are stored."""
    return None if text is None else pack(text, Shared.ANSWERS)


def answers_text(row: Mapping[str, Any]) -> str | None:
    """Return the answers of a row of read sets, which has them in `packed` or, of an earlier release, in `answers`.

    What cannot be unpacked is an empty text, which no leaf attests.
    """
    if row["packed"] is None:
        return None if row["answers"] is None else str(row["answers"])
    if row["answers"] is not None:
        return ""
    try:
        return _inflated(row["packed"]) if row["packed"].startswith(_ZLIB) else unpack(row["packed"])
    except (zlib.error, ValueError):
        return ""


def _inflated(deflated: bytes) -> str:
    stream = zlib.decompressobj()
    text = stream.decompress(deflated).decode()
    return text if stream.eof and not stream.unused_data else ""
