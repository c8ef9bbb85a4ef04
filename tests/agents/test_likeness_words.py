"""Words of two error messages that count for or against their likeness."""

import dataclasses

import pytest
from agents.known_attempts import NOW, QUERY, tried
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.developer.evidence.alignment import align, word_weight
from counterpoint.developer.evidence.attempts import resemblance
from counterpoint.developer.evidence.failure import failure_of_attempt, failure_of_task
from counterpoint.developer.evidence.likeness import (
    AGAINST,
    FEATURES,
    Circumstances,
    Resemblance,
    likeness_model,
    reasons,
)
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.tasks import SubmitTask

WORDS_OF_ERRORS = ("open", "archive", "route", "quota", "owner", "exceed")


def test_words_count_alike_in_a_small_memory_and_in_a_large_one() -> None:
    before = failure_of_attempt(Attempt.model_validate(tried("Mount it.").body))
    small = resemblance(before, NOW, {"lexical": 8.4, "rarest": 4.2}, {"lexical": 4.2, "rarest": 4.2})
    large = resemblance(before, NOW, {"lexical": 16.8, "rarest": 8.4}, {"lexical": 8.4, "rarest": 8.4})
    assert small == large
    assert small.lexical > small.error_lexical > 0


def test_a_missing_part_of_an_error_and_a_ruled_out_cause_count_against() -> None:
    earlier = failure_of_attempt(
        Attempt.model_validate({**tried("Mount it.", digest="x").body, "error_message": "cannot open /mnt/a: no route"})
    )

    def pair(error: str | None, description: str = QUERY) -> Resemblance:
        task = SubmitTask(kind="troubleshoot", description=description, error_message=error)
        return resemblance(earlier, failure_of_task(task), {}, {})

    same, less = pair("cannot open /mnt/b: no route"), pair("cannot open the socket")
    assert 0 == same.error_missing < less.error_missing
    assert pair(None).error_missing == 0, "no error lacks nothing"
    plain = pair("cannot open /mnt/b: no route", "The export stops.")
    conceded = pair("cannot open /mnt/b: no route", "The export stops although the share is mounted.")
    assert (plain.ruled_out, conceded.ruled_out) == (0.0, 1.0)
    assert likeness_model().probability(conceded) < likeness_model().probability(plain)
    assert "against: this report rules a cause out" in reasons(conceded, Circumstances())
    assert "against: this report rules a cause out" not in reasons(plain, Circumstances())


@pytest.mark.parametrize(
    ("error", "replaced", "added"),
    [
        ("Cannot open archive: no route", False, False),
        ("Export failed in step seven: cannot open archive: no route (gave up)", False, True),
        ("cannot open archive", False, False),
        ("cannot open archive: mode", True, False),
        ("disk quota exceeded", True, False),
        (None, False, False),
    ],
)
def test_a_message_that_adds_words_counts_for_and_other_words_in_its_place_against(
    error: str | None, replaced: bool, added: bool
) -> None:
    pair = _of_archive(error, QUERY)
    assert (pair.replaced > 0, pair.added > 0) == (replaced, added)
    alike = dataclasses.replace(pair, replaced=0.0, added=0.0)
    more, less = likeness_model().probability(pair), likeness_model().probability(alike)
    assert (more > less, more < less) == (added, replaced)
    said = reasons(pair, Circumstances())
    assert any("in other words" in reason for reason in said) == (0.4 <= pair.replaced < 1)


def test_words_that_a_report_repeats_from_its_error_count_once() -> None:
    error = "cannot open archive: no route"
    own, repeating = _of_archive(error, "Nightly export stops."), _of_archive(error, "No route, cannot open archive.")
    assert 0 == own.repeated < repeating.repeated
    assert likeness_model().probability(repeating) < likeness_model().probability(own)
    assert _of_archive(None, "No route, cannot open archive.").repeated == 0, "nothing is counted twice"
    assert _of_archive("disk quota exceeded", "The disk quota is exceeded.").repeated == 0, "not in the earlier error"


def _of_archive(error: str | None, description: str) -> Resemblance:
    before = {**tried("Mount it.", digest="x").body, "error_message": "cannot open archive: no route"}
    task = SubmitTask(kind="troubleshoot", description=description, error_message=error)
    return resemblance(failure_of_attempt(Attempt.model_validate(before)), failure_of_task(task), {}, {})


def test_the_same_words_in_another_order_add_nothing() -> None:
    one, other = ("checksum", "meters", "clicks"), ("clicks", "checksum", "meters")
    assert align(one, other).added == 0
    assert align(one, (*one, "quota")).added == pytest.approx(word_weight("quota"))


@given(st.lists(st.sampled_from(WORDS_OF_ERRORS), max_size=8), st.lists(st.sampled_from(WORDS_OF_ERRORS), max_size=8))
def test_no_word_of_a_message_is_kept_replaced_or_added_twice(earlier: list[str], now: list[str]) -> None:
    found = align(tuple(earlier), tuple(now))
    if earlier and now:
        assert found.kept + found.replaced <= sum(map(word_weight, earlier)) + 1e-9
        assert found.kept + found.replaced + found.added <= sum(map(word_weight, now)) + 1e-9
    assert 0 <= found.replaced_share <= 1
    if earlier == now:
        assert (found.replaced, found.added) == (0, 0)


@given(
    st.builds(Resemblance, **{name: st.floats(0, 1) for name in FEATURES}), st.sampled_from(FEATURES), st.floats(0, 3)
)
def test_more_likeness_never_lowers_the_likelihood(pair: Resemblance, name: str, more: float) -> None:
    if name != "no_error":
        raised = dataclasses.replace(pair, **{name: getattr(pair, name) + more})
        lower, upper = (raised, pair) if name in AGAINST else (pair, raised)
        assert likeness_model().probability(upper) >= likeness_model().probability(lower)
