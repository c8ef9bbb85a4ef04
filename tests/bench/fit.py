"""Fitting the curve that grades passages: a logistic regression in which each set and each class counts alike."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from counterpoint.developer.relevance import Curve, Signs

ENOUGH = 0.6
"""Where a best passage is enough, by the curve that comes out."""
PASSING = 0.94
"""The share of questions whose best passage is to be enough; all of them have an answer in their set."""
_RIDGE = 1e-3
_ROUNDS = 40


@dataclass(frozen=True)
class Graded:
    """A passage that was found for a question of a set, and whether it answers it."""

    of_set: str
    question: str
    signs: Signs
    true: bool


def fit(passages: Sequence[Graded], made_of: str) -> Curve:
    """The curve. Raises `ValueError` where a set has passages of one kind only."""
    signs = np.array([passage.signs.values for passage in passages])
    truths = np.array([passage.true for passage in passages], float)
    weights = _weights(passages)
    design = np.c_[signs, np.ones(len(signs))]
    ridge = _RIDGE * len(truths)
    found = np.zeros(design.shape[1])
    for _ in range(_ROUNDS):
        probable = 1 / (1 + np.exp(-design @ found))
        slope = design.T @ (weights * (truths - probable)) - ridge * np.r_[found[:-1], 0]
        curvature = (design * (weights * probable * (1 - probable))[:, None]).T @ design
        found += np.linalg.solve(curvature + ridge * np.diag(np.r_[np.ones(len(found) - 1), 1e-9]), slope)
    best: dict[tuple[str, str], float] = {}
    for passage, logit in zip(passages, design @ found, strict=True):
        key = (passage.of_set, passage.question)
        best[key] = max(best.get(key, -math.inf), float(logit))
    cut = float(np.quantile(list(best.values()), 1 - PASSING))
    cosine, overlap, coverage, lexical_z, cosine_z = (round(float(each), 4) for each in found[:-1])
    return Curve(
        intercept=round(float(found[-1]) - cut + math.log(ENOUGH / (1 - ENOUGH)), 4),
        cosine=cosine,
        overlap=overlap,
        coverage=coverage,
        lexical_z=lexical_z,
        cosine_z=cosine_z,
        threshold=ENOUGH,
        fitted_on=made_of,
    )


def _weights(passages: Sequence[Graded]) -> np.ndarray:  # type: ignore[type-arg]
    counts: dict[tuple[str, bool], int] = {}
    for passage in passages:
        counts[passage.of_set, passage.true] = counts.get((passage.of_set, passage.true), 0) + 1
    for of_set, _ in counts:
        if (of_set, True) not in counts or (of_set, False) not in counts:
            raise ValueError(f"all passages found in {of_set} are of one kind: nothing can be fitted")
    weights = np.array([1 / counts[passage.of_set, passage.true] for passage in passages])
    return weights * len(weights) / weights.sum()
