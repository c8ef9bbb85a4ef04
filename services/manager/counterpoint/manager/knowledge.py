"""Knowledge: when it has changed, and whether a task is better off for it (row A3)."""

from collections.abc import Iterable
from datetime import datetime

from counterpoint.proto.decisions import Confidence
from counterpoint.proto.memory import Item, RecordsChanged

_RANK = {"low": 0, "medium": 1, "high": 2}


INGESTED = ("documents", "attempts")
"""What an ingest leaves as its last: the own record of a document, and past incidents as attempts."""


def has_changed(message: RecordsChanged) -> bool:
    """Whether a commit was the end of an ingest."""
    return message.service == "memory" and any(ref.store in INGESTED for ref in message.writes)


def came_in(newest: Iterable[Item], since: datetime) -> bool:
    """Whether one of these was ingested after `since`; attempts of tasks are written by others than memory."""
    return any(item.author == "memory" and item.at > since for item in newest)


def rose(before: Confidence | None, after: Confidence | None) -> bool:
    """Whether the band rose. A stop without a confidence counts as low; so does an unknown band."""
    return _rank(after) > _rank(before)


def described(confidence: Confidence | None) -> str:
    """Score and band, for a reasoning."""
    return f"{confidence.score:.2f} ({confidence.band})" if confidence else "none given"


def _rank(confidence: Confidence | None) -> int:
    return _RANK.get(confidence.band, 0) if confidence else 0
