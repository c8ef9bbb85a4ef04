"""Knowledge: when it has changed, and whether a task is better off for it (row A3)."""

from counterpoint.proto.decisions import Confidence
from counterpoint.proto.memory import RecordsChanged

_RANK = {"low": 0, "medium": 1, "high": 2}


def has_changed(message: RecordsChanged) -> bool:
    """Whether a commit was the end of an ingest: a document's own record is written last."""
    return message.service == "memory" and any(ref.store == "documents" for ref in message.writes)


def rose(before: Confidence | None, after: Confidence | None) -> bool:
    """Whether the band rose. A stop without a confidence counts as low; so does an unknown band."""
    return _rank(after) > _rank(before)


def described(confidence: Confidence | None) -> str:
    """Score and band, for a reasoning."""
    return f"{confidence.score:.2f} ({confidence.band})" if confidence else "none given"


def _rank(confidence: Confidence | None) -> int:
    return _RANK.get(confidence.band, 0) if confidence else 0
