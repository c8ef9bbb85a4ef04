"""Fit of the likeness model: the order of candidates, and the probability that the best one is the same failure.

The order is a listwise logistic regression over the candidates of each report that has a correct one. The probability
is a logistic regression over the best candidate of every report. Both are ridge regressions by Newton's method. The
probability is monotone: a feature with a weight of the wrong sign is left out, and the others are fitted again. Further
sets fit the probability alone. Its ridge is small enough that held-out probabilities need no second curve: a larger one
keeps them near the mean.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from counterpoint.bench.evaluation_metrics import auroc, ece
from counterpoint.developer.evidence.likeness import AGAINST, FEATURES, LikenessModel, Resemblance

Array = npt.NDArray[np.float64]

ORDERED_BY = ("coverage", "cosine", "system", "lexical", "error_lexical")
JUDGED_BY = (
    "lexical", "error_lexical", "error_cosine", "error_missing", "ruled_out", "replaced", "added", "repeated",
)  # fmt: skip
"""Features that separate the same fault from a near miss in every set. The meaning of the report and the system mislead
in some."""
FOLDS = 10
RIDGE_ORDER, RIDGE_PROBABILITY = 1.0, 5.0
_ROUNDS = 60


@dataclass(frozen=True)
class IncidentCandidates:
    """Candidates of a report. `correct` is the index of the correct one, None if there is none. All reports of one
    `fault` are in one fold."""

    fault: str
    candidates: tuple[Resemblance, ...]
    correct: int | None
    known: bool = True

    @property
    def features(self) -> Array:
        """Features, (candidates, features)."""
        return np.array([[float(getattr(each, name)) for name in FEATURES] for each in self.candidates])


def fit_likeness(
    reports: Sequence[IncidentCandidates], fitted_on: str, *further: Sequence[IncidentCandidates]
) -> LikenessModel:
    """Fit a model to reports, and to those of further sets."""
    ordered_by = [FEATURES.index(name) for name in ORDERED_BY]
    lists = [(report.features[:, ordered_by], report.correct) for report in reports if report.correct is not None]
    order = _listwise([(features, right) for features, right in lists if right is not None])
    best, truths = [], []
    for report in chain(reports, *further):
        if not report.candidates:
            continue
        first = int(np.argmax(report.features[:, ordered_by] @ order))
        best.append(report.features[first])
        truths.append(first == report.correct)
    intercept, weights = _monotone(np.array(best), np.array(truths, float))
    return LikenessModel(
        rank={name: round(float(value), 4) for name, value in zip(ORDERED_BY, order, strict=True)},
        intercept=round(float(intercept), 4),
        weights={name: round(float(value), 4) for name, value in zip(FEATURES, weights, strict=True)},
        fitted_on=fitted_on,
    )


def cross_validate(reports: Sequence[IncidentCandidates], *further: Sequence[IncidentCandidates]) -> str:
    """Return the figures on held-out reports as text. Further sets are in the training data of every fold."""
    faults = sorted({report.fault for report in reports})
    np.random.default_rng(7).shuffle(faults)
    fold = {fault: n % FOLDS for n, fault in enumerate(faults)}
    recalled, outcomes, offers = [], [], []
    for n in range(FOLDS):
        model = fit_likeness([report for report in reports if fold[report.fault] != n], "", *further)
        for report in (report for report in reports if fold[report.fault] == n):
            if not report.candidates:
                recalled.append((report, False))
                continue
            at = max(range(len(report.candidates)), key=lambda each: model.order(report.candidates[each]))
            right = at == report.correct
            likelihood = model.probability(report.candidates[at])
            offers.append((likelihood, right))
            if report.known:
                recalled.append((report, right))
            if right or not report.known:
                outcomes.append((likelihood, right))
    known = [right for _, right in recalled]
    claimed = sum(value >= 0.7 for value, right in outcomes if right) / max(1, len(known))
    wrongly = sum(value >= 0.7 for value, right in outcomes if not right) / max(
        1, sum(not right for _, right in outcomes)
    )
    area = auroc([value for value, _ in outcomes], [right for _, right in outcomes])
    return (
        f"{FOLDS} folds by fault: recall@1 {sum(known) / max(1, len(known)):.3f}, AUROC {area or 0:.3f}, "
        f"claimed {claimed:.3f}, wrongly claimed {wrongly:.3f}, calibration error {ece(offers) or 0:.3f}"
    )


def _monotone(features: Array, truths: Array) -> tuple[float, Array]:
    used = [FEATURES.index(name) for name in JUDGED_BY]
    sign = np.array([-1 if name in AGAINST else 0 if name == "no_error" else 1 for name in FEATURES])
    features = features * np.where(sign < 0, -1, 1)
    while True:
        intercept, weights = _logistic(features[:, used], truths)
        wrong_sign = [index for index, n in enumerate(used) if weights[index] < 0 and sign[n]]
        if not wrong_sign:
            every = np.zeros(features.shape[1])
            every[used] = weights
            return intercept, every * np.where(sign < 0, -1, 1)
        del used[min(wrong_sign, key=lambda index: weights[index] * features[:, used[index]].std())]


def _listwise(lists: Sequence[tuple[Array, int]]) -> Array:
    scale = _scale(np.concatenate([features for features, _ in lists]))
    scaled = [(features / scale, right) for features, right in lists]

    def loss_of(point: Array) -> tuple[float, Array, Array]:
        loss, gradient = RIDGE_ORDER * float(point @ point), -2 * RIDGE_ORDER * point
        curvature = 2 * RIDGE_ORDER * np.eye(len(point))
        for features, right in scaled:
            score = features @ point
            share = np.exp(score - score.max())
            loss -= float(score[right] - score.max() - np.log(share.sum()))
            share /= share.sum()
            mean = share @ features
            gradient = gradient + features[right] - mean
            curvature += (features * share[:, None]).T @ features - np.outer(mean, mean)
        return loss, gradient, curvature

    result: Array = _newton(loss_of, len(scale)) / scale
    return result


def _logistic(features: Array, truths: Array) -> tuple[float, Array]:
    """Return the intercept and the weights."""
    scale, columns = _scale(features), features.shape[1]
    design = np.c_[features / scale, np.ones(len(features))]
    ridge = RIDGE_PROBABILITY * np.r_[np.ones(columns), 1e-9]

    def loss_of(point: Array) -> tuple[float, Array, Array]:
        score = design @ point
        probable = 1 / (1 + np.exp(-score))
        loss = float(np.logaddexp(0, score).sum() - truths @ score + (ridge * point) @ point / 2)
        gradient = design.T @ (truths - probable) - ridge * point
        return loss, gradient, (design * (probable * (1 - probable))[:, None]).T @ design + np.diag(ridge)

    minimum = _newton(loss_of, design.shape[1])
    return float(minimum[columns]), minimum[:columns] / scale


def _newton(loss_of: Callable[[Array], tuple[float, Array, Array]], size: int) -> Array:
    """Minimise a convex loss. A step that does not lower it is halved."""
    point: Array = np.zeros(size)
    loss, gradient, curvature = loss_of(point)
    for _ in range(_ROUNDS):
        step = np.linalg.solve(curvature, gradient)
        while (after := loss_of(point + step))[0] > loss and float(np.abs(step).max()) > 1e-10:
            step = step / 2
        point, gain = point + step, loss - after[0]
        loss, gradient, curvature = after
        if gain < 1e-9:
            break
    return point


def _scale(features: Array) -> Array:
    deviation: Array = features.std(axis=0)
    return np.where(deviation > 1e-9, deviation, 1.0)
