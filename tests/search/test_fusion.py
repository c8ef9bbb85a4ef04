"""Fusion is bounded, monotone and stable."""

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.memory.search import fusion
from counterpoint.memory.search.fusion import BY_TYPE, UNKNOWN, Features, Weights, adaptive, best, fixed


class Signs(NamedTuple):
    """Features of one candidate."""

    lexical: float
    dense: float
    named: bool = False
    chars: int = 0
    exact: float = 0.0
    alike: float = 0.0


class Fused(NamedTuple):
    """Score of one candidate and its parts."""

    score: float
    words: float
    meaning: float
    named: float
    fullness: float
    exact: float


def fuse(candidates: Mapping[str, Signs], weights: Weights) -> list[tuple[str, Fused]]:
    """Return candidates with their scores, best first."""
    fused = fusion.fuse(Features(*np.array(list(candidates.values()), np.float64).T), weights)
    keys = list(candidates)
    return [(keys[n], Fused(*(float(part[n]) for part in fused))) for n in best(fused.score, keys, len(keys))]


_score = st.floats(-1, 100).map(lambda score: round(score, 4))
signs = st.builds(
    Signs,
    lexical=_score,
    dense=_score,
    named=st.booleans(),
    chars=st.integers(0, 1000),
    alike=st.floats(-1, 1),
    exact=st.sampled_from((0.0, 0.25, 1.0, 1.5)),
)
candidates = st.dictionaries(st.text(max_size=3), signs, min_size=1, max_size=20)
weights = st.builds(
    lambda parts, feedback, exact: Weights(*(part / sum(parts) for part in parts), feedback=feedback, exact=exact),
    st.tuples(*[st.floats(0.01, 1)] * 4),
    st.floats(0, 2),
    st.floats(0, 1),
)


@given(candidates, weights)
def test_every_candidate_has_one_score_between_nought_and_one_which_its_parts_add_up_to(
    given_: dict[str, Signs], weighed: Weights
) -> None:
    fused = fuse(given_, weighed)
    assert sorted(key for key, _ in fused) == sorted(given_)
    scores = [each.score for _, each in fused]
    assert all(0 <= score <= 1 + 1e-9 for score in scores)
    assert scores == sorted(scores, reverse=True)
    for _, each in fused:
        assert each.score == pytest.approx(each.words + each.meaning + each.named + each.fullness + each.exact)


@given(candidates, weights, st.sampled_from(["lexical", "dense", "named", "chars", "alike", "exact"]), st.data())
def test_more_of_any_sign_never_lowers_a_place(
    given_: dict[str, Signs], weighed: Weights, sign: str, data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(sorted(given_)))
    more = {key: True} if sign == "named" else {key: getattr(given_[key], sign) + 1}
    before = [each for each, _ in fuse(given_, weighed)]
    after = [each for each, _ in fuse({**given_, key: given_[key]._replace(**{sign: more[key]})}, weighed)]
    above = set(before[: before.index(key)])
    assert not set(after[: after.index(key)]) - above


@given(candidates)
def test_weight_nought_and_one_are_the_orders_of_the_legs_alone(given_: dict[str, Signs]) -> None:
    given_ = {key: each._replace(alike=0) for key, each in given_.items()}
    by_words = sorted(given_, key=lambda key: (-given_[key].lexical, key))
    by_meaning = sorted(given_, key=lambda key: (-given_[key].dense, key))
    assert [key for key, _ in fuse(given_, fixed(0))] == by_words
    assert [key for key, _ in fuse(given_, fixed(1))] == by_meaning


@given(candidates, weights)
def test_the_order_of_arrival_does_not_matter_and_equals_are_ordered_by_key(
    given_: dict[str, Signs], weighed: Weights
) -> None:
    fused = fuse(given_, weighed)
    assert fuse(dict(reversed(given_.items())), weighed) == fused
    for (key, each), (next_key, next_) in pairwise(fused):
        assert each.score > next_.score or key < next_key


def test_both_legs_count_by_their_weight() -> None:
    given_ = {"a": Signs(10, 0.2), "b": Signs(5, 0.8), "c": Signs(0, 0.4)}
    assert fuse(given_, fixed(0.5))[0][0] == "b"
    scores = {key: each.score for key, each in fuse(given_, fixed(0.25))}
    assert scores == pytest.approx({"a": 0.75, "b": 0.625, "c": 0.25 * (0.4 - 0.2) / (0.8 - 0.2)})


def test_a_leg_that_found_nothing_adds_nothing() -> None:
    found = fuse({"a": Signs(0, 0.1), "b": Signs(0, 0.3)}, fixed(0.5))
    assert [(key, each.score) for key, each in found] == [("b", 0.5), ("a", 0.0)]


def test_likeness_to_the_best_counts_with_meaning_as_far_as_it_is_asked_for() -> None:
    given_ = {"a": Signs(0, 0.5, alike=0.1), "b": Signs(0, 0.4, alike=0.9)}
    assert fuse(given_, fixed(1))[0][0] == "a"
    assert fuse(given_, Weights(0, 1, feedback=1))[0][0] == "b"


def test_each_type_has_weights_that_add_up_to_one_and_a_mixture_has_their_mean() -> None:
    for each in (*BY_TYPE.values(), UNKNOWN, adaptive(["python", "markdown", "", "conversation"])):
        assert each.words + each.meaning + each.named + each.fullness == pytest.approx(1)
    assert adaptive([]) == UNKNOWN
    assert adaptive(["python"]) == BY_TYPE["python"]
    assert adaptive(["a type of tomorrow"]) == UNKNOWN
    mixed = adaptive(["python", "markdown"])
    assert mixed.meaning == pytest.approx((BY_TYPE["python"].meaning + BY_TYPE["markdown"].meaning) / 2)
