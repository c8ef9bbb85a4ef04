"""Fusion of the features of each candidate into one score."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from counterpoint.memory.search.candidates import Floats

FULL_CHARS = 100
"""Length at which a text counts as half full, in characters: shorter texts rarely contain an answer, whatever they
match."""


class Features(NamedTuple):
    """Features of candidates, one array each: the scores of both legs, whether the speaker is named in the query, the
    length in characters, the weight of the names, codes and quotes of the query that a candidate contains (1 is the
    weight of a term that one row contains), and the mean cosine to the best candidates where they were compared."""

    lexical: Floats
    dense: Floats
    named: Floats
    chars: Floats
    exact: Floats
    alike: Floats | float = 0.0


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


class FusedScores(NamedTuple):
    """Scores of candidates in [0, 1], and the part of each feature in them, one array each."""

    score: Floats
    words: Floats
    meaning: Floats
    named: Floats
    fullness: Floats
    exact: Floats


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
    number = Counter(types)
    if not number:
        return UNKNOWN
    # One order of summation, independent of the source of the candidates.
    each = Counter[Weights]()
    for name in sorted(number):
        each[BY_TYPE.get(name, UNKNOWN)] += number[name]
    many = number.total()
    return Weights(
        sum(weights.words * n for weights, n in each.items()) / many,
        sum(weights.meaning * n for weights, n in each.items()) / many,
        sum(weights.named * n for weights, n in each.items()) / many,
        sum(weights.fullness * n for weights, n in each.items()) / many,
        min(weights.feedback for weights in each),
    )


def fuse(features: Features, weights: Weights) -> FusedScores:
    """Return the fused scores of candidates, at least one.

    Both legs have scored every candidate, and each is scaled to [0, 1] by its minimum and maximum. More of any feature
    never lowers a candidate's rank.
    """
    holds = float(features.exact.max())
    exact = weights.exact * min(1.0, holds)
    rest = 1 - exact
    words = rest * weights.words * _min_max(features.lexical)
    meaning = rest * weights.meaning * _min_max(features.dense + weights.feedback * features.alike)
    named = rest * weights.named * features.named
    fullness = rest * weights.fullness * features.chars / (features.chars + FULL_CHARS)
    by_form = exact * features.exact / holds if holds else np.zeros_like(words)
    return FusedScores(words + meaning + named + fullness + by_form, words, meaning, named, fullness, by_form)


def best(scores: Floats, keys: Sequence[Any], most: int) -> list[int]:
    """Return the positions of the `most` highest scores, highest first, equal ones by key."""
    few: Sequence[int] = range(len(keys))
    if len(keys) > most > 0:
        few = np.flatnonzero(scores >= np.partition(scores, len(keys) - most)[len(keys) - most]).tolist()
    listed = scores.tolist()
    return sorted(few, key=lambda n: (-listed[n], keys[n]))[:most]


def _min_max(scores: Floats) -> Floats:
    """Return scores from 0 for the worst to 1 for the best; equal ones do not rank and are 1, or 0 if none is above
    0."""
    low, high = scores.min(), scores.max()
    if low == high:
        return np.full_like(scores, 1.0 if high > 0 else 0.0)
    scaled: Floats = (scores - low) / (high - low)
    return scaled
