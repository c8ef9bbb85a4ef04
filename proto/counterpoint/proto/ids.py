"""Ids: UUIDv7 from the clock, or derived from a parent so that a retry makes the same id."""

import hashlib
import secrets
import time
import uuid
from collections.abc import Callable
from functools import lru_cache

_RAND_MASK = (1 << 74) - 1


def _uuid7(ms: int, rand: int) -> str:
    value = (ms & ((1 << 48) - 1)) << 80 | 0x7 << 76 | (rand >> 62 & 0xFFF) << 64 | 0b10 << 62 | rand & ((1 << 62) - 1)
    digits = f"{value:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def new_id(clock_ns: Callable[[], int] = time.time_ns) -> str:
    """Return a new UUIDv7."""
    return _uuid7(clock_ns() // 1_000_000, secrets.randbits(74))


def derived_id(parent: str, *parts: str | int) -> str:
    """Return a UUIDv7-shaped id determined by the arguments, with the parent's time, so that ids sort by time.

    A parent that is not a UUIDv7 contributes time zero.
    """
    digest = hashlib.sha256("\x1f".join([parent, *map(str, parts)]).encode()).digest()
    return _uuid7(_ms_of(parent), int.from_bytes(digest[:10], "big") & _RAND_MASK)


@lru_cache(maxsize=1024)
def _ms_of(parent: str) -> int:
    try:
        known = uuid.UUID(parent)
    except ValueError:
        return 0
    return known.int >> 80 if known.version == 7 else 0


def foreign_id(source: str, event_id: str, time_ms: int) -> str:
    """Return our id of a foreign message, determined by its `ce-source` and `ce-id`, sorted by `time_ms`."""
    digest = hashlib.sha256(f"{source}\x1f{event_id}".encode()).digest()
    return _uuid7(time_ms, int.from_bytes(digest[:10], "big") & _RAND_MASK)


def document_id(source: str) -> str:
    """Return the id of a source's document, the same in every project."""
    return f"doc-{hashlib.sha256(source.encode()).hexdigest()[:32]}"
