"""Fusion is bounded, monotone and stable (row C2)."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from counterpoint.memory.retrieval.fuse import fuse

_score = st.floats(-1, 100).map(lambda score: round(score, 4))
_weight = st.floats(0, 1)
legs = st.dictionaries(st.text(max_size=3), st.tuples(_score, _score), min_size=1, max_size=20)


def split(both: dict[str, tuple[float, float]]) -> tuple[dict[str, float], dict[str, float]]:
    return {key: pair[0] for key, pair in both.items()}, {key: pair[1] for key, pair in both.items()}


@given(legs, _weight)
def test_every_candidate_has_one_score_between_nought_and_one_and_the_order_is_theirs(
    both: dict[str, tuple[float, float]], weight: float
) -> None:
    fused = fuse(*split(both), weight)
    assert sorted(key for key, _ in fused) == sorted(both)
    assert all(0 <= score <= 1 for _, score in fused)
    assert [score for _, score in fused] == sorted((score for _, score in fused), reverse=True)


@given(legs, _weight)
def test_a_candidate_better_in_both_legs_is_never_below(both: dict[str, tuple[float, float]], weight: float) -> None:
    fused = dict(fuse(*split(both), weight))
    for one, (words, meaning) in both.items():
        for other, (other_words, other_meaning) in both.items():
            if words >= other_words and meaning >= other_meaning:
                assert fused[one] >= fused[other]


@given(legs)
def test_weight_nought_and_one_are_the_orders_of_the_legs_alone(both: dict[str, tuple[float, float]]) -> None:
    lexical, dense = split(both)
    assert [key for key, _ in fuse(lexical, dense, 0)] == sorted(both, key=lambda key: (-lexical[key], key))
    assert [key for key, _ in fuse(lexical, dense, 1)] == sorted(both, key=lambda key: (-dense[key], key))


@given(legs, _weight)
def test_the_order_of_arrival_does_not_matter_and_equals_are_ordered_by_key(
    both: dict[str, tuple[float, float]], weight: float
) -> None:
    backwards = dict(reversed(both.items()))
    fused = fuse(*split(both), weight)
    assert fuse(*split(backwards), weight) == fused
    for (key, score), (next_key, next_score) in pairwise(fused):
        assert score > next_score or key < next_key


def test_both_legs_count_by_their_weight() -> None:
    lexical, dense = {"a": 10.0, "b": 5.0, "c": 0.0}, {"a": 0.2, "b": 0.8, "c": 0.4}
    assert fuse(lexical, dense, 0.5)[0][0] == "b"
    assert fuse(lexical, dense, 0.25) == [("a", 0.75), ("b", 0.625), ("c", 0.25 * (0.4 - 0.2) / (0.8 - 0.2))]


def test_a_leg_that_found_nothing_adds_nothing() -> None:
    assert fuse({"a": 0.0, "b": 0.0}, {"a": 0.1, "b": 0.3}, 0.5) == [("b", 0.5), ("a", 0.0)]
    assert fuse({}, {}, 0.5) == []
