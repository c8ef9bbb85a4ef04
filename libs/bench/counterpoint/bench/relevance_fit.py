"""Fit of the curve that grades passages: a logistic regression with equal weight of each set and class."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from counterpoint.developer.excerpts.relevance import Curve, HitFeatures

Array = npt.NDArray[np.float64]

THRESHOLD = 0.6
"""Threshold of the fitted curve for a sufficient best passage."""
SUFFICIENT_SHARE = 0.94
"""Share of questions whose best passage is above the threshold. All have an answer in their set."""
_RIDGE = 1e-3
_ROUNDS = 40


@dataclass(frozen=True)
class GradedPassage:
    """Passage found for a question of a set. `relevant`: it answers the question."""

    set_name: str
    question: str
    features: HitFeatures
    relevant: bool


def fit_curve(passages: Sequence[GradedPassage], fitted_on: str) -> Curve:
    """Fit a curve. Raises `ValueError` if the passages of a set are all relevant or all irrelevant."""
    features = np.array([passage.features.values for passage in passages])
    truths = np.array([passage.relevant for passage in passages], float)
    weights = _weights(passages)
    design = np.c_[features, np.ones(len(features))]
    ridge = _RIDGE * len(truths)
    coefficients = np.zeros(design.shape[1])
    for _ in range(_ROUNDS):
        probable = 1 / (1 + np.exp(-design @ coefficients))
        gradient = design.T @ (weights * (truths - probable)) - ridge * np.r_[coefficients[:-1], 0]
        curvature = (design * (weights * probable * (1 - probable))[:, None]).T @ design
        coefficients += np.linalg.solve(
            curvature + ridge * np.diag(np.r_[np.ones(len(coefficients) - 1), 1e-9]), gradient
        )
    best: dict[tuple[str, str], float] = {}
    for passage, logit in zip(passages, design @ coefficients, strict=True):
        key = (passage.set_name, passage.question)
        best[key] = max(best.get(key, -math.inf), float(logit))
    cut = float(np.quantile(list(best.values()), 1 - SUFFICIENT_SHARE))
    cosine, overlap, coverage, lexical_z, cosine_z = (round(float(each), 4) for each in coefficients[:-1])
    return Curve(
        intercept=round(float(coefficients[-1]) - cut + math.log(THRESHOLD / (1 - THRESHOLD)), 4),
        cosine=cosine,
        overlap=overlap,
        coverage=coverage,
        lexical_z=lexical_z,
        cosine_z=cosine_z,
        threshold=THRESHOLD,
        fitted_on=fitted_on,
    )


def _weights(passages: Sequence[GradedPassage]) -> Array:
    counts: dict[tuple[str, bool], int] = {}
    for passage in passages:
        counts[passage.set_name, passage.relevant] = counts.get((passage.set_name, passage.relevant), 0) + 1
    for set_name, _ in counts:
        if (set_name, True) not in counts or (set_name, False) not in counts:
            raise ValueError(f"the passages of {set_name} are all relevant or all irrelevant: a fit needs both")
    weights = np.array([1 / counts[passage.set_name, passage.relevant] for passage in passages])
    normalised: Array = weights * len(weights) / weights.sum()
    return normalised
