"""`bench triage` judges answers by the texts they hold, and confidence by how often it was right."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from counterpoint.bench.evaluation_metrics import ece, reliability
from counterpoint.bench.evaluation_sets import UnreadableSet
from counterpoint.bench.likelihood_fit import (
    FEATURES,
    JudgedCase,
    calibrate,
    fit_failure_terms,
    fit_likelihood,
    fit_weights,
    probabilities,
    shares,
)
from counterpoint.bench.triage import ExpectedAnswer, TriageCase, TriageOutcome, Verdict, read_cases, summary, verdict
from counterpoint.developer.excerpts.likelihood import LikelihoodModel

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


def _cases(right: int, wrong: int, strangers: int) -> list[JudgedCase]:
    def one(answerable: bool, verdict: Verdict, ahead: float) -> JudgedCase:
        return JudgedCase(answerable, verdict, dict.fromkeys(FEATURES, 0.0) | {"ahead": ahead})

    return [
        *(one(True, "right", 2.0 + 0.1 * n) for n in range(right)),
        *(one(True, "wrong", 0.1 * n) for n in range(wrong)),
        *(one(False, "wrong", -0.1 * n) for n in range(strangers)),
    ]


def test_fit_tells_right_answers_from_wrong_ones_of_a_set_it_was_not_fitted_on() -> None:
    sets = {"one": _cases(20, 5, 8), "other": _cases(15, 4, 10), "third": _cases(18, 5, 9)}
    model, measured = fit_likelihood(sets)
    assert model.weights["ahead"] > 0
    assert all(each["right"] > 0.75 and each["refused"] >= 0.8 and each["auroc"] == 1 for each in measured)


def test_terms_for_failures_follow_the_failures_of_the_sets_alone() -> None:
    model = LikelihoodModel(intercept=0.0, weights={}, threshold=0.5, fitted_on="a test", measured="")
    sets = {
        name: [replace(case, failure=True) for case in _cases(12, 0, 12)] + _cases(0, 30, 0)
        for name in ("one", "other")
    }
    fitted, measured = fit_failure_terms(sets, model)
    features = dict.fromkeys(FEATURES, 0.0) | {"ahead": 2.0}
    assert fitted.probability(features) == 0.5
    assert fitted.probability(features, failure=True) > 0.9
    assert [(each["cases"], each["right"], each["refused"]) for each in measured] == [(24, 1.0, 1.0)] * 2
    with pytest.raises(ValueError, match="at least two sets with failures"):
        fit_failure_terms({"one": sets["one"], "other": _cases(5, 5, 5)}, model)


def test_calibration_answers_the_same_and_makes_the_mean_confidence_the_share_right() -> None:
    model = LikelihoodModel(intercept=0.0, weights={"ahead": 1.0}, threshold=0.6, fitted_on="a test", measured="")
    answers = [(0.6, True)] * 9 + [(0.6, False)]
    shifted = calibrate(model, answers, "a set")
    logit = math.log(0.6 / 0.4)
    assert shifted.probability({"ahead": logit}) == pytest.approx(0.9, abs=0.01)
    assert shifted.threshold == pytest.approx(shifted.probability({"ahead": logit}), abs=0.001)
    with pytest.raises(ValueError, match="right answers and wrong ones"):
        calibrate(model, [(0.6, True)], "a set")


def test_a_case_without_the_thing_asked_for_is_refused() -> None:
    sets = [_cases(20, 5, 8), _cases(15, 4, 10)]
    lacking = [replace(case, lacking=True) for case in sets[0]]
    right, refused, wrong = shares(lacking, probabilities(lacking, fit_weights(sets)), 0.3)
    assert (right, refused, wrong) == (0, 1, 0)


def test_folder_without_documents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSet):
        read_cases(tmp_path)
