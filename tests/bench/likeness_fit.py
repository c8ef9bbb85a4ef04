"""Fitting the model of likeness: which of the candidates is the same failure, and how probable the best of them is.

The order is a listwise logistic regression over the candidates of each report that has a right one; the probability a
logistic regression over the best candidate of every report. Both are ridge regressions by Newton's method. More
likeness may never lower the probability: a feature with a weight of the wrong sign is left out and the rest is fitted
again. Further sets teach the weights of the probability alone: how often the best candidate is right differs between
sets, so each has an intercept of its own, and that of the first is kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from bench.ranking import auroc

from counterpoint.developer.likeness import AGAINST, FEATURES, LikenessModel, Resemblance

Array = npt.NDArray[np.float64]

ORDERED_BY = ("coverage", "cosine", "system", "lexical", "error_lexical")
JUDGED_BY = ("lexical", "error_lexical", "no_error", "error_missing", "ruled_out")
"""The features that tell the same fault from a near miss in every set; meaning and system mislead in some."""
FOLDS = 10
RIDGE_ORDER, RIDGE_PROBABILITY = 1.0, 30.0
_ROUNDS = 60


@dataclass(frozen=True)
class Report:
    """A report and its candidates: `right` is the place of the right one, None where there is none; reports of one
    `fault` are never in two folds."""

    fault: str
    candidates: tuple[Resemblance, ...]
    right: int | None
    known: bool = True

    @property
    def features(self) -> Array:
        """The features of the candidates, (candidates, features)."""
        return np.array([[float(getattr(each, name)) for name in FEATURES] for each in self.candidates])


def fit(reports: Sequence[Report], fitted_on: str, *further: Sequence[Report]) -> LikenessModel:
    """The model of some reports, and of those of further sets."""
    ordered_by = [FEATURES.index(name) for name in ORDERED_BY]
    lists = [(report.features[:, ordered_by], report.right) for report in reports if report.right is not None]
    order = _listwise([(features, right) for features, right in lists if right is not None])
    best, truths, sets = [], [], []
    for number, one_set in enumerate((reports, *further)):
        for report in one_set:
            if not report.candidates:
                continue
            first = int(np.argmax(report.features[:, ordered_by] @ order))
            best.append(report.features[first])
            truths.append(first == report.right)
            sets.append(number)
    intercept, weights = _monotone(np.array(best), np.array(truths, float), np.array(sets))
    return LikenessModel(
        rank={name: round(float(value), 4) for name, value in zip(ORDERED_BY, order, strict=True)},
        intercept=round(float(intercept), 4),
        weights={name: round(float(value), 4) for name, value in zip(FEATURES, weights, strict=True)},
        fitted_on=fitted_on,
    )


def cross_validated(reports: Sequence[Report], *further: Sequence[Report]) -> str:
    """The figures on reports that the model of each fold has not seen, in words; further sets are seen by all."""
    faults = sorted({report.fault for report in reports})
    np.random.default_rng(7).shuffle(faults)
    fold = {fault: n % FOLDS for n, fault in enumerate(faults)}
    firsts, judged = [], []
    for n in range(FOLDS):
        model = fit([report for report in reports if fold[report.fault] != n], "", *further)
        for report in (report for report in reports if fold[report.fault] == n):
            if not report.candidates:
                firsts.append((report, False))
                continue
            at = max(range(len(report.candidates)), key=lambda each: model.order(report.candidates[each]))
            right = at == report.right
            if report.known:
                firsts.append((report, right))
            if right or not report.known:
                judged.append((model.at(report.candidates[at]), right))
    seconds = [right for _, right in firsts]
    claimed = sum(value >= 0.7 for value, right in judged if right) / max(1, len(seconds))
    wrongly = sum(value >= 0.7 for value, right in judged if not right) / max(1, sum(not right for _, right in judged))
    area = auroc([value for value, _ in judged], [right for _, right in judged])
    return (
        f"{FOLDS} folds by fault: recall@1 {sum(seconds) / max(1, len(seconds)):.3f}, AUROC {area or 0:.3f}, "
        f"claimed {claimed:.3f}, wrongly claimed {wrongly:.3f}"
    )


def _monotone(features: Array, truths: Array, sets: Array) -> tuple[float, Array]:
    used = [FEATURES.index(name) for name in JUDGED_BY]
    sign = np.array([-1 if name in AGAINST else 0 if name == "no_error" else 1 for name in FEATURES])
    features = features * np.where(sign < 0, -1, 1)
    while True:
        intercept, weights = _logistic(features[:, used], truths, sets)
        falling = [place for place, n in enumerate(used) if weights[place] < 0 and sign[n]]
        if not falling:
            every = np.zeros(features.shape[1])
            every[used] = weights
            return intercept, every * np.where(sign < 0, -1, 1)
        del used[min(falling, key=lambda place: weights[place] * features[:, used[place]].std())]


def _listwise(lists: Sequence[tuple[Array, int]]) -> Array:
    scale = _scale(np.concatenate([features for features, _ in lists]))
    scaled = [(features / scale, right) for features, right in lists]

    def of(found: Array) -> tuple[float, Array, Array]:
        loss, slope = RIDGE_ORDER * float(found @ found), -2 * RIDGE_ORDER * found
        curvature = 2 * RIDGE_ORDER * np.eye(len(found))
        for features, right in scaled:
            score = features @ found
            share = np.exp(score - score.max())
            loss -= float(score[right] - score.max() - np.log(share.sum()))
            share /= share.sum()
            mean = share @ features
            slope = slope + features[right] - mean
            curvature += (features * share[:, None]).T @ features - np.outer(mean, mean)
        return loss, slope, curvature

    result: Array = _newton(of, len(scale)) / scale
    return result


def _logistic(features: Array, truths: Array, sets: Array) -> tuple[float, Array]:
    """The intercept of set 0 and the weights."""
    scale, columns = _scale(features), features.shape[1]
    design = np.c_[features / scale, sets[:, None] == np.unique(sets)]
    ridge = RIDGE_PROBABILITY * np.r_[np.ones(columns), np.full(design.shape[1] - columns, 1e-9)]

    def of(found: Array) -> tuple[float, Array, Array]:
        score = design @ found
        probable = 1 / (1 + np.exp(-score))
        loss = float(np.logaddexp(0, score).sum() - truths @ score + (ridge * found) @ found / 2)
        slope = design.T @ (truths - probable) - ridge * found
        return loss, slope, (design * (probable * (1 - probable))[:, None]).T @ design + np.diag(ridge)

    found = _newton(of, design.shape[1])
    return float(found[columns]), found[:columns] / scale


def _newton(of: Callable[[Array], tuple[float, Array, Array]], size: int) -> Array:
    """The minimum of a convex loss; a step that does not lower it is halved."""
    found: Array = np.zeros(size)
    loss, slope, curvature = of(found)
    for _ in range(_ROUNDS):
        step = np.linalg.solve(curvature, slope)
        while (after := of(found + step))[0] > loss and float(np.abs(step).max()) > 1e-10:
            step = step / 2
        found, gain = found + step, loss - after[0]
        loss, slope, curvature = after
        if gain < 1e-9:
            break
    return found


def _scale(features: Array) -> Array:
    deviation: Array = features.std(axis=0)
    return np.where(deviation > 1e-9, deviation, 1.0)
