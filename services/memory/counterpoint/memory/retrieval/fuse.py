"""Fusion of two legs by score (row C2)."""

from collections.abc import Mapping
from typing import Any, TypeVar

Key = TypeVar("Key", bound=tuple[Any, ...] | str)


def fuse(lexical: Mapping[Key, float], dense: Mapping[Key, float], vector_weight: float) -> list[tuple[Key, float]]:
    """Candidates with their fused score in [0, 1], best first, equal ones by key.

    Both legs have scored every candidate. Each leg is brought to [0, 1] by its minimum and maximum, then `dense` counts
    `vector_weight` and `lexical` the rest: 0 is the order of `lexical` alone, 1 that of `dense`. A better score in
    either leg never lowers a candidate's place.
    """
    words, meaning = _min_max(lexical), _min_max(dense)
    fused = {key: (1 - vector_weight) * words[key] + vector_weight * meaning[key] for key in words}
    return sorted(fused.items(), key=lambda item: (-item[1], item[0]))


def _min_max(scores: Mapping[Key, float]) -> dict[Key, float]:
    """Scores from 0 for the worst to 1 for the best; equal ones say nothing and are 1, or 0 where nothing was found."""
    low, high = min(scores.values(), default=0.0), max(scores.values(), default=0.0)
    if low == high:
        return dict.fromkeys(scores, 1.0 if high > 0 else 0.0)
    return {key: (score - low) / (high - low) for key, score in scores.items()}
