"""`bench triage` judges answers by the texts they hold, and confidence by how often it was right."""

from dataclasses import replace
from pathlib import Path

import pytest

from counterpoint.bench.evaluation_metrics import ece, reliability
from counterpoint.bench.evaluation_sets import UnreadableSet
from counterpoint.bench.likelihood_fit import (
    FAILURE_FEATURES,
    QUESTION_FEATURES,
    JudgedCase,
    fit_likelihood,
    fit_terms,
    probability,
    shares,
)
from counterpoint.bench.triage import ExpectedAnswer, TriageCase, TriageOutcome, Verdict, read_cases, summary, verdict
from counterpoint.developer.excerpts.likelihood import LikelihoodTerms
from counterpoint.developer.policies.procedures import CODE_LIKELIHOOD_MIN

WANTED = ExpectedAnswer(source="docs/a.md", must=("Stop the writer.", "Start it again."), must_not=("Drop the slot",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("> 1. Stop the\n> writer.\n\n2. start it again. [1]", "right"),
        ("Stop the writer. [1]", "partly"),
        ("Look at the log. [1]", "wrong"),
        ("Stop the writer. Start it again. Drop the slot. [1]", "wrong"),
        ("Stop the writer. Start it again." + " " * 1_500, "wrong"),
        (None, "refused"),
    ],
)
def test_verdict_follows_the_texts_an_answer_holds(text: str | None, expected: str) -> None:
    assert verdict(WANTED, text) == expected


def test_answer_where_a_refusal_was_expected_is_wrong() -> None:
    assert verdict("refuse", "It is 30 days. [1]") == "wrong"
    assert verdict("refuse", None) == "refused"


def test_summary_counts_right_among_answerable_and_refused_among_the_others() -> None:
    def outcome(expect: object, text: str | None, confidence: float | None = None) -> TriageOutcome:
        case = TriageCase.model_validate(
            {"id": "c", "text": "?", "kind": "question", "expect": expect, "type": "value"}
        )
        return TriageOutcome(case, text, confidence, "It is 15.", ("It is 15.",))

    wanted = {"source": "docs/a.md", "must": ["It is 15."], "must_not": []}
    outcomes = [outcome(wanted, "It is 15. [1]", 0.9), outcome(wanted, None), outcome("refuse", "It is 15.", 0.3),
                outcome("refuse", None)]  # fmt: skip
    found = summary(outcomes)
    assert (found["right"], found["missed"], found["refused"], found["wrong"]) == (0.5, 0.5, 0.5, 0.25)
    assert found["baseline"] == {"first_section": 1.0, "one_of_five_sections": 1.0}
    assert found["ece"] == pytest.approx(0.2)
    assert found["by_type"]["value"]["cases"] == 4


def test_calibration_error_is_zero_where_confidence_is_the_share_right() -> None:
    assert ece([(0.75, True)] * 3 + [(0.75, False)]) == 0.0
    assert ece([]) is None


def test_certainty_falls_into_the_last_bin_and_empty_bins_are_left_out() -> None:
    bins = reliability([(1.0, True), (0.95, False), (0.31, True)])
    assert [(each.start, each.count, each.mean, each.right) for each in bins] == [
        (0.3, 1, 0.31, 1.0),
        (0.9, 2, 0.975, 0.5),
    ]


def _cases(right: int, wrong: int, strangers: int, failure: bool = False) -> list[JudgedCase]:
    sign = "overlap" if failure else "ahead"

    def one(answerable: bool, verdict: Verdict, value: float) -> JudgedCase:
        features = dict.fromkeys({*QUESTION_FEATURES, *FAILURE_FEATURES}, 0.0) | {sign: value}
        return JudgedCase(answerable, verdict, features, failure=failure)

    return [
        *(one(True, "right", 2.0 + 0.1 * n) for n in range(right)),
        *(one(True, "wrong", 0.1 * n) for n in range(wrong)),
        *(one(False, "wrong", -0.1 * n) for n in range(strangers)),
    ]


def test_fit_tells_right_answers_from_wrong_ones_of_a_set_it_was_not_fitted_on() -> None:
    sets = {
        "one": _cases(20, 5, 8) + _cases(12, 3, 9, failure=True),
        "other": _cases(15, 4, 10) + _cases(14, 2, 8, failure=True),
        "third": _cases(18, 5, 9),
    }
    model, measured = fit_likelihood(sets)
    assert model.questions.weights["ahead"] > 0
    assert model.failures.weights["overlap"] > 0
    assert [(each["kind"], each["set"]) for each in measured] == [
        *(("questions", name) for name in sets), ("failures", "one"), ("failures", "other"),
    ]  # fmt: skip
    assert all(each["right"] > 0.75 and each["refused"] >= 0.8 and each["auroc"] == 1 for each in measured)


def test_fit_needs_failures_of_two_sets() -> None:
    with pytest.raises(ValueError, match="questions and failures are needed"):
        fit_likelihood({"one": _cases(9, 3, 3) + _cases(9, 3, 3, failure=True), "other": _cases(9, 3, 3)})


def test_a_case_without_the_thing_asked_for_is_refused() -> None:
    sets = [_cases(20, 5, 8), _cases(15, 4, 10)]
    terms = fit_terms(sets, QUESTION_FEATURES)
    lacking = [replace(case, lacking=True) for case in sets[0]]
    right, refused, wrong = shares(lacking, [probability(case, terms) for case in lacking], 0.3)
    assert (right, refused, wrong) == (0, 1, 0)


def test_fit_leaves_out_what_a_rule_decides() -> None:
    sets = [_cases(20, 5, 8, failure=True), _cases(15, 4, 10, failure=True)]
    decided = [replace(case, verdict="wrong", named=True) for case in sets[0]]
    assert fit_terms([*sets, decided], FAILURE_FEATURES) == fit_terms(sets, FAILURE_FEATURES)


def test_failure_that_its_excerpt_names_is_answered_at_any_likelihood() -> None:
    unlikely = LikelihoodTerms(threshold=0.5, intercept=-9.0, weights={})
    case, *_ = _cases(1, 0, 0, failure=True)
    assert probability(case, unlikely) < 0.01
    assert probability(replace(case, named=True), unlikely) == CODE_LIKELIHOOD_MIN


def test_folder_without_documents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSet):
        read_cases(tmp_path)
