"""Readings: the numbered texts that a model is shown, and the ones that its statements may rest on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from counterpoint.developer.evidence.attempts import NO_OUTCOME, EarlierAttempt, truncate
from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.excerpts.relevance import Hit, HitFeatures
from counterpoint.proto.memory import Item

Kind = Literal["document", "attempt", "task", "lineage", "run", "provider", "action", "review", "plan", "session"]

READING_CHARS = 2_000
"""Maximum length of one reading in a prompt, except the task and actions, which are bounded otherwise."""
DOCUMENTS, ATTEMPTS = 8, 6
"""Maximum numbers of passages and earlier attempts that the first prompt shows."""
_WHOLE = frozenset({"task", "action"})
_NO_FEATURES = HitFeatures(cosine=0.0, overlap=0.0)


@dataclass(frozen=True)
class Reading:
    """A text that a model is shown.

    `hit` is the text as a passage, so that it is cited and checked like one. `about` is shown beside it and supports
    nothing.
    """

    kind: Kind
    hit: Hit
    attempt: EarlierAttempt | None = None
    about: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        """The item and its version."""
        return self.hit.item.store, self.hit.item.id, self.hit.item.version

    @property
    def trusted(self) -> bool:
        """Whether a trusted person or system vouches for it."""
        return self.attempt.trusted if self.attempt else self.hit.trusted

    def shown(self, number: int) -> str:
        """Return the reading as a prompt shows it."""
        trust = "" if self.trusted else ", untrusted"
        context = "".join(f", {each}" for each in (self.hit.context, self.about) if each)
        text = self.hit.text if self.kind in _WHOLE else truncate(self.hit.text, READING_CHARS)
        return f"[{number}] ({self.kind} {self.hit.source}{context}{trust})\n{text}"


def may_support(reading: Reading, kinds: frozenset[Kind]) -> bool:
    """Return whether a statement may rest on a reading: one of these kinds that is trusted.

    This is the gate against planted instructions. Everything else that a model reads only says where to look.
    """
    return reading.kind in kinds and reading.trusted


def first_readings(evidence: Evidence, task: Reading) -> tuple[Reading, ...]:
    """Return the readings of the first prompt: the task, the best passages and the most similar attempts."""
    hits = (document_reading(hit) for hit in evidence.answers[:DOCUMENTS])
    attempts = (
        attempt_reading(one) for one in evidence.attempts if one.in_task or one.attempt.outcome not in NO_OUTCOME
    )
    return with_readings((task,), (*hits, *tuple(attempts)[:ATTEMPTS]))


def with_readings(known: Sequence[Reading], more: Iterable[Reading]) -> tuple[Reading, ...]:
    """Return the readings with further ones, each item once."""
    by_key = {reading.key: reading for reading in known}
    for reading in more:
        by_key.setdefault(reading.key, reading)
    return tuple(by_key.values())


def document_reading(hit: Hit) -> Reading:
    """Return a passage of a document."""
    return Reading("document", hit)


def attempt_reading(one: EarlierAttempt, place: str = "") -> Reading:
    """Return the act of an earlier attempt; its failure, its outcome and where it was made are about it."""
    attempt = one.attempt
    failure = " ".join(truncate(attempt.error_message or attempt.description, 300).split())
    outcome = f"{attempt.outcome} on {one.day}, {attempt.evidence} by {attempt.by}"
    parts = [
        "in this task" if one.in_task else place,
        outcome,
        f"note: {attempt.note}" if attempt.note else "",
        failure,
    ]
    hit = _hit(one.item, f"{one.item.store}/{one.item.id}#tried", attempt.tried)
    return Reading("attempt", hit, one, "; ".join(part for part in parts if part))


def record_reading(kind: Kind, item: Item, text: str) -> Reading:
    """Return a text about a record, which supports nothing."""
    return Reading(kind, _hit(item, f"{item.store}/{item.id}", text))


def _hit(item: Item, source: str, text: str) -> Hit:
    return Hit(item, source, text, "", 0, False, 0.0, _NO_FEATURES, frozenset())
