"""Fusion of the features of each candidate into one score."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

Key = TypeVar("Key", bound=tuple[Any, ...] | str | int)

FULL_CHARS = 100
"""Length at which a text counts as half full, in characters: shorter texts rarely contain an answer, whatever they
match."""


class CandidateFeatures(NamedTuple):
    """Features of a candidate: the scores of both legs, whether its speaker is named in the query, its length in
    characters, its mean cosine to the best candidates where it was compared with them, and the weight of the
    names, codes and quotes of the query that it contains (1 is the weight of a term that one row contains)."""

    lexical: float
    dense: float
    named: bool = False
    chars: int = 0
    alike: float = 0.0
    exact: float = 0.0


@dataclass(frozen=True)
class Weights:
    """Weights of the features; all but `feedback` add up to 1. `feedback` weighs the similarity to the best
    candidates beside the candidate's own dense score, before that is scaled to [0, 1]. `exact` is the share of
    names, codes and quotes if a row contains one that no other has; it decreases with the number of rows that
    contain them."""

    words: float
    meaning: float
    named: float = 0.0
    fullness: float = 0.0
    feedback: float = 0.0
    exact: float = 0.5


class FusedScore(NamedTuple):
    """A candidate's score in [0, 1], and the part of each feature in it."""

    score: float
    words: float
    meaning: float
    named: float
    fullness: float
    exact: float


UNKNOWN = Weights(0.5, 0.5)
_PROSE = Weights(0.4, 0.6, feedback=1.0)
_CODE = Weights(0.05, 0.95)
# Chosen on the development sets named in docs/retrieval.md: conversation by a listwise logistic fit (one conversation
# left out at a time), prose and code from a grid of five.
LANGUAGES = ("python", "javascript", "typescript")
BY_TYPE = {
    "conversation": Weights(0.34, 0.24, named=0.17, fullness=0.25),
    **dict.fromkeys(LANGUAGES, _CODE),
    "markdown": _PROSE, "restructuredtext": _PROSE, "text": _PROSE, "html": _PROSE, "pdf": _PROSE, "notebook": _PROSE,
}  # fmt: skip


def fixed(vector_weight: float) -> Weights:
    """Return weights of the legs alone: 0 is the order of the lexical leg, 1 that of the dense one."""
    return Weights(1 - vector_weight, vector_weight, exact=0)


def adaptive(types: Iterable[str]) -> Weights:
    """Return the mean of the weights for each candidate's type, with the least of their feedback, which harms where it
    does not fit; an unknown type weighs both legs alike."""
    # One order of summation, independent of the source of the candidates.
    each = Counter(BY_TYPE.get(type, UNKNOWN) for type in sorted(types))
    if not each:
        return UNKNOWN
    many = each.total()
    return Weights(
        sum(weights.words * n for weights, n in each.items()) / many,
        sum(weights.meaning * n for weights, n in each.items()) / many,
        sum(weights.named * n for weights, n in each.items()) / many,
        sum(weights.fullness * n for weights, n in each.items()) / many,
        min(weights.feedback for weights in each),
    )


def fuse(candidates: Mapping[Key, CandidateFeatures], weights: Weights) -> list[tuple[Key, FusedScore]]:
    """Return candidates with their fused score, best first, equal ones by key.

    Both legs have scored every candidate, and each is scaled to [0, 1] by its minimum and maximum. More of any feature
    never lowers a candidate's rank.
    """
    words = _min_max({key: signs.lexical for key, signs in candidates.items()})
    meaning = _min_max({key: signs.dense + weights.feedback * signs.alike for key, signs in candidates.items()})
    holds = max((signs.exact for signs in candidates.values()), default=0.0)
    exact = weights.exact * min(1.0, holds)
    rest = 1 - exact
    fused = {}
    for key, signs in candidates.items():
        parts = (
            rest * weights.words * words[key],
            rest * weights.meaning * meaning[key],
            rest * weights.named * signs.named,
            rest * weights.fullness * signs.chars / (signs.chars + FULL_CHARS),
            exact * signs.exact / holds if holds else 0.0,
        )
        fused[key] = FusedScore(sum(parts), *parts)
    return sorted(fused.items(), key=lambda item: (-item[1].score, item[0]))


def _min_max(scores: Mapping[Key, float]) -> dict[Key, float]:
    """Return scores from 0 for the worst to 1 for the best; equal ones do not rank and are 1, or 0 if none is above
    0."""
    low, high = min(scores.values(), default=0.0), max(scores.values(), default=0.0)
    if low == high:
        return dict.fromkeys(scores, 1.0 if high > 0 else 0.0)
    return {key: (score - low) / (high - low) for key, score in scores.items()}
