"""Quality of rankings and of probabilities: nDCG, recall, AUROC and calibration."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BINS = 10


@dataclass(frozen=True)
class CalibrationBin:
    """Bin of probabilities from `start`: count, mean, and the share of true outcomes."""

    start: float
    count: int
    mean: float
    right: float


def ndcg(ranked: Sequence[str], relevant: Mapping[str, float], k: int) -> float:
    """Return the normalised discounted cumulative gain of the first `k`."""
    gained = sum(relevant.get(id, 0) / math.log2(place + 2) for place, id in enumerate(ranked[:k]))
    ideal = sum(worth / math.log2(n + 2) for n, worth in enumerate(sorted(relevant.values(), reverse=True)[:k]))
    return gained / ideal


def recall(ranked: Sequence[str], relevant: Mapping[str, float], k: int) -> float:
    """Return the share of the relevant items among the first `k`."""
    return len(set(ranked[:k]) & set(relevant)) / len(relevant)


def auroc(scores: Sequence[float], truths: Sequence[bool]) -> float | None:
    """Return the area under the ROC curve; None with one class only."""
    positives = sum(truths)
    if not 0 < positives < len(truths):
        return None
    order = sorted(range(len(scores)), key=lambda n: scores[n])
    ranks = [0.0] * len(scores)
    at = 0
    while at < len(order):
        end = at
        while end < len(order) and scores[order[end]] == scores[order[at]]:
            end += 1
        for n in order[at:end]:
            ranks[n] = (at + end + 1) / 2
        at = end
    of_positives = sum(rank for rank, truth in zip(ranks, truths, strict=True) if truth)
    return (of_positives - positives * (positives + 1) / 2) / (positives * (len(truths) - positives))


def reliability(outcomes: Sequence[tuple[float, bool]]) -> tuple[CalibrationBin, ...]:
    """Return the non-empty ones of `BINS` equal bins. `outcomes` has probabilities with their outcomes."""
    bins: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for value, right in outcomes:
        bins[min(int(value * BINS), BINS - 1)].append((value, right))
    return tuple(
        CalibrationBin(
            start=n / BINS,
            count=len(each),
            mean=round(sum(value for value, _ in each) / len(each), 4),
            right=round(sum(right for _, right in each) / len(each), 4),
        )
        for n, each in sorted(bins.items())
    )


def ece(outcomes: Sequence[tuple[float, bool]]) -> float | None:
    """Return the expected calibration error: the mean distance of probability and outcome over the bins, by their
    size."""
    if not outcomes:
        return None
    return round(sum(each.count * abs(each.mean - each.right) for each in reliability(outcomes)) / len(outcomes), 4)
