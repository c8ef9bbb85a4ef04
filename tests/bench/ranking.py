"""Quality of rankings and of probabilities: discounted gain, recall, separation by a score, and calibration."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BINS = 10


@dataclass(frozen=True)
class Bin:
    """A range of probabilities from `start`: how many, their mean, and the share of them that came true."""

    start: float
    count: int
    mean: float
    right: float


def ndcg(ranked: Sequence[str], relevant: Mapping[str, float], k: int) -> float:
    """The discounted gain of the first `k`, as a share of that of the best order there is."""
    gained = sum(relevant.get(id, 0) / math.log2(place + 2) for place, id in enumerate(ranked[:k]))
    ideal = sum(worth / math.log2(n + 2) for n, worth in enumerate(sorted(relevant.values(), reverse=True)[:k]))
    return gained / ideal


def recall(ranked: Sequence[str], relevant: Mapping[str, float], k: int) -> float:
    """The share of what is relevant that is among the first `k`."""
    return len(set(ranked[:k]) & set(relevant)) / len(relevant)


def auroc(scores: Sequence[float], truths: Sequence[bool]) -> float | None:
    """How likely what is relevant has a higher score than what is not; None where there is only one kind."""
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


def reliability(judged: Sequence[tuple[float, bool]]) -> tuple[Bin, ...]:
    """`BINS` equal ranges of probabilities with whether each came true, without those that are empty."""
    bins: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for value, right in judged:
        bins[min(int(value * BINS), BINS - 1)].append((value, right))
    return tuple(
        Bin(
            start=n / BINS,
            count=len(each),
            mean=round(sum(value for value, _ in each) / len(each), 4),
            right=round(sum(right for _, right in each) / len(each), 4),
        )
        for n, each in sorted(bins.items())
    )


def ece(judged: Sequence[tuple[float, bool]]) -> float | None:
    """Expected calibration error: the mean distance of probability and share right over the bins, by their size."""
    if not judged:
        return None
    return round(sum(each.count * abs(each.mean - each.right) for each in reliability(judged)) / len(judged), 4)
