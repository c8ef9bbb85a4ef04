"""Cases of `counterpoint bench recognition`, their outcomes, and the figures over them."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from counterpoint.bench.evaluation_metrics import auroc, ece, reliability
from counterpoint.bench.evaluation_sets import UnreadableSet
from counterpoint.developer.evidence.likeness import RECOGNISED
from counterpoint.developer.language.words import content_words
from counterpoint.memory.search.bm25 import idf
from counterpoint.proto.messages import Shape

SOURCE = "recognition"
MAX_TITLE_CHARS, MAX_SYSTEM_CHARS = 300, 64


class RecognitionCase(Shape):
    """Report of a failure. Reports of one fault have the same `pair`."""

    id: str
    pair: str | None = None
    role: str
    system: str = ""
    title: str
    description: str = ""
    error_message: str = ""
    failed_attempts: tuple[str, ...] = ()
    fix: str = ""
    difficulty: str | None = None

    @property
    def learned(self) -> bool:
        """True if the case is reported as a past incident before the tasks."""
        return self.role == "first" or (self.role == "single" and bool(self.fix))

    @property
    def text(self) -> str:
        """All its text."""
        return "\n".join(part for part in (self.title, self.description, self.error_message) if part)

    def submission(self) -> dict[str, Any]:
        """Return the body of a task that reports the failure."""
        body: dict[str, Any] = {
            "kind": "troubleshoot",
            "title": self.title[:MAX_TITLE_CHARS],
            "description": self.description or self.title,
            "error_message": self.error_message or None,
            "systems": [self.system[:MAX_SYSTEM_CHARS]] if self.system else [],
        }
        return {name: value for name, value in body.items() if value}

    def incidents(self) -> list[dict[str, Any]]:
        """Return its attempts as past incidents, the failed ones first."""
        attempts = [
            *((each, "failed") for each in self.failed_attempts),
            *([(self.fix, "succeeded")] if self.fix else []),
        ]
        began = datetime(2026, 1, 5, tzinfo=UTC)
        return [
            {
                "source": SOURCE,
                "id": f"{self.id}-{n}",
                "title": self.title[:MAX_TITLE_CHARS],
                "description": self.description or self.title,
                **({"error_message": self.error_message} if self.error_message else {}),
                "systems": [self.system] if self.system else [],
                "tried": text,
                "outcome": outcome,
                "when": (began + timedelta(minutes=n)).isoformat(),
                "by": "on-call",
            }
            for n, (text, outcome) in enumerate(attempts)
        ]


@dataclass(frozen=True)
class RecognitionOutcome:
    """Result of the task of a case.

    `similar`: the cases of the similar attempts, in order. `proposed`: the case of the attempt that the proposal comes
    from, with its `likelihood`. `by_words`: all cases by BM25 over the same texts. `right`: the correct cases.
    """

    case: RecognitionCase
    similar: tuple[str, ...]
    proposed: str | None
    likelihood: float
    by_words: tuple[str, ...]
    right: frozenset[str]

    @property
    def is_right(self) -> bool:
        """True if the proposal is the fix of the same fault."""
        return self.proposed is not None and self.proposed in self.right

    def is_recalled(self, first: int) -> bool:
        """Return True if a correct case is among the first similar ones."""
        return bool(self.right & set(self.similar[:first]))


def read_cases(folder: Path) -> tuple[RecognitionCase, ...]:
    """Read the cases of a folder. Raises `UnreadableSet`."""
    try:
        lines = (folder / "cases.jsonl").read_text().splitlines()
        return tuple(RecognitionCase.model_validate_json(line) for line in lines if line.strip())
    except (OSError, ValidationError) as error:
        raise UnreadableSet(f"{folder}/cases.jsonl: {error}") from error


def summary(outcomes: Sequence[RecognitionOutcome]) -> dict[str, Any]:
    """Return the shares over all second reports and by difficulty, and the AUROC and calibration of the likelihood."""
    seconds = [outcome for outcome in outcomes if outcome.case.role == "second"]
    others = [outcome for outcome in outcomes if outcome.case.role != "second"]
    by_difficulty: dict[str, list[RecognitionOutcome]] = defaultdict(list)
    for outcome in seconds:
        by_difficulty[outcome.case.difficulty or "other"].append(outcome)
    scored = [(outcome.likelihood, True) for outcome in seconds if outcome.is_right]
    scored += [(outcome.likelihood, False) for outcome in others]
    area = auroc([value for value, _ in scored], [right for _, right in scored])
    offers = [(outcome.likelihood, outcome.is_right) for outcome in outcomes if outcome.proposed is not None]
    kinds = {"near_misses": [outcome for outcome in others if outcome.case.role.startswith("near_miss_of:")]}
    kinds["strangers"] = [outcome for outcome in others if outcome not in kinds["near_misses"]]
    return {
        **_shares(seconds),
        "by_difficulty": {name: _shares(each) for name, each in sorted(by_difficulty.items())},
        "wrongly_claimed": _share([_claims(outcome) for outcome in others]),
        "wrongly_claimed_by_kind": {
            name: _share([_claims(outcome) for outcome in each]) for name, each in kinds.items()
        },
        "auroc": None if area is None else round(area, 4),
        "ece": ece(offers),
        "reliability": [
            {"from": each.start, "proposals": each.count, "likelihood": each.mean, "right": each.right}
            for each in reliability(offers)
        ],
        "seconds": len(seconds),
        "near_misses": len(kinds["near_misses"]),
        "strangers": len(kinds["strangers"]),
    }


def _shares(seconds: Sequence[RecognitionOutcome]) -> dict[str, Any]:
    return {
        "cases": len(seconds),
        "recall@1": _share([outcome.is_recalled(1) for outcome in seconds]),
        "recall@3": _share([outcome.is_recalled(3) for outcome in seconds]),
        "proposed": _share([outcome.is_right for outcome in seconds]),
        "claimed": _share([outcome.is_right and outcome.likelihood >= RECOGNISED for outcome in seconds]),
        "bm25_recall@1": _share([bool(outcome.right & set(outcome.by_words[:1])) for outcome in seconds]),
        "bm25_recall@3": _share([bool(outcome.right & set(outcome.by_words[:3])) for outcome in seconds]),
    }


def _claims(outcome: RecognitionOutcome) -> bool:
    return outcome.proposed is not None and outcome.likelihood >= RECOGNISED


def _share(by_difficulty: Sequence[bool]) -> float | None:
    return round(sum(by_difficulty) / len(by_difficulty), 4) if by_difficulty else None


class Searchable(Protocol):
    """A text with an id."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def text(self) -> str:
        """Its text."""


class Bm25Baseline:
    """BM25 over texts, such as those of the learned cases."""

    def __init__(self, learned: Sequence[Searchable]) -> None:
        self._ids = [case.id for case in learned]
        self._bags = [Counter(_terms(case.text)) for case in learned]
        self._lengths = [max(1, sum(bag.values())) for bag in self._bags]
        self._mean = sum(self._lengths) / max(1, len(self._lengths))
        self._document_frequency = Counter(term for bag in self._bags for term in bag)

    def ranked(self, text: str) -> tuple[str, ...]:
        """Return the cases, best first."""
        scores = [self._score(n, _terms(text)) for n in range(len(self._bags))]
        return tuple(self._ids[n] for n in sorted(range(len(scores)), key=lambda n: (-scores[n], n)))

    def _score(self, n: int, terms: Sequence[str]) -> float:
        bag, length = self._bags[n], self._lengths[n] / self._mean
        return math.fsum(
            idf(len(self._bags), self._document_frequency[term]) * bag[term] * 2.2 / (bag[term] + 0.3 + 0.9 * length)
            for term in terms
            if term in bag
        )


def _terms(text: str) -> list[str]:
    return [stem for word in text.split() for stem in sorted(content_words(word))]
