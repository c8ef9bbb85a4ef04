"""Knowledge: detection of ingests, and comparison of confidence (docs/workflow.md)."""

from collections.abc import Iterable
from datetime import datetime

from counterpoint.proto.decisions import Confidence
from counterpoint.proto.memory import Item, RecordsChanged

_RANK = {"low": 0, "medium": 1, "high": 2}


INGESTED = ("documents", "attempts")
"""Stores of the last writes of an ingest: documents, and past incidents as attempts."""


def ends_ingest(message: RecordsChanged) -> bool:
    """Whether a commit ends an ingest."""
    return message.service == "memory" and any(ref.store in INGESTED for ref in message.writes)


def ingested_since(newest: Iterable[Item], since: datetime) -> bool:
    """Whether memory ingested one of these items after `since`; attempts of tasks have other authors."""
    return any(item.author == "memory" and item.at > since for item in newest)


def has_risen(before: Confidence | None, after: Confidence | None) -> bool:
    """Whether the band rose. A stop without a confidence counts as low; so does an unknown band."""
    return _rank(after) > _rank(before)


def describe_confidence(confidence: Confidence | None) -> str:
    """Return score and band as text."""
    return f"{confidence.score:.2f} ({confidence.band})" if confidence else "none given"


def _rank(confidence: Confidence | None) -> int:
    return _RANK.get(confidence.band, 0) if confidence else 0
