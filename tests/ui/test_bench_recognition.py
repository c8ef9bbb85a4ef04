"""`bench recognition` learns each case as a person reports it, and counts what is recalled, proposed and claimed."""

from pathlib import Path

import numpy as np
import pytest

from counterpoint.bench.evaluation_metrics import ece
from counterpoint.bench.evaluation_sets import UnreadableSet
from counterpoint.bench.likeness_fit import IncidentCandidates, cross_validate, fit_likeness
from counterpoint.bench.recognition_cases import Bm25Baseline, RecognitionCase, RecognitionOutcome, read_cases, summary
from counterpoint.bench.synthetic_incidents import synthetic_incidents
from counterpoint.developer.evidence.likeness import AGAINST, FEATURES, Resemblance


def case(id: str, role: str = "second", **more: str) -> RecognitionCase:
    return RecognitionCase.model_validate({"id": id, "pair": id[:-1], "role": role, "title": "The load stops", **more})


def outcome(
    of: RecognitionCase, proposed: str | None, likelihood: float, right: str | None = "1a"
) -> RecognitionOutcome:
    return RecognitionOutcome(
        of, (proposed,) if proposed else (), proposed, likelihood, ("1a",), frozenset({right} if right else ())
    )


def test_a_case_is_learned_as_its_failed_attempts_and_then_its_fix() -> None:
    first = case(
        "1a", "first", failed_attempts=["Restart it."], fix="Unlock the user.", error_message="locked", system="db"
    )
    rows = first.incidents()
    assert [(row["tried"], row["outcome"]) for row in rows] == [
        ("Restart it.", "failed"), ("Unlock the user.", "succeeded"),
    ]  # fmt: skip
    assert rows[0]["when"] < rows[1]["when"]
    assert {row["systems"][0] for row in rows} == {"db"}
    assert first.learned
    assert not case("s1", "single").learned
    assert case("s1", "single", fix="x").learned


def test_claims_are_proposals_of_at_least_the_likeness_of_the_same_failure() -> None:
    outcomes = [
        outcome(case("1b", difficulty="same_text"), "1a", 0.9),
        outcome(case("1c", difficulty="other_words"), "1a", 0.4),
        outcome(case("1d", difficulty="other_words"), "2a", 0.8),
        outcome(case("n1", "near_miss_of:1a"), "1a", 0.8, None),
        outcome(case("n2", "near_miss_of:1a"), "1a", 0.3, None),
        outcome(case("s1", "single"), None, 0.0, None),
    ]
    found = summary(outcomes)
    assert (found["proposed"], found["claimed"]) == (0.6667, 0.3333)
    assert found["wrongly_claimed"] == 0.3333
    assert found["wrongly_claimed_by_kind"] == {"near_misses": 0.5, "strangers": 0.0}
    assert found["by_difficulty"]["other_words"]["recall@1"] == 0.5
    assert found["bm25_recall@1"] == 1.0
    assert 0.5 < found["auroc"] < 1.0


def test_invented_incidents_are_none_twice_and_the_same_each_time() -> None:
    made = list(synthetic_incidents(500))
    assert made == list(synthetic_incidents(500))
    assert len({each["id"] for each in made}) == 500
    assert len({(each["error_message"], each["title"]) for each in made}) == 500


def test_words_rank_by_bm25() -> None:
    learned = [
        case("1a", "first", error_message="disk full on scratch"),
        case("2a", "first", error_message="user locked"),
    ]
    assert Bm25Baseline(learned).ranked("the user is locked")[0] == "2a"


def test_folder_without_cases_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSet):
        read_cases(tmp_path)
    (tmp_path / "cases.jsonl").write_text('{"id": "1"}\n')
    with pytest.raises(UnreadableSet, match="role"):
        read_cases(tmp_path)


def test_a_fitted_model_orders_its_own_set_and_no_likeness_counts_against() -> None:
    draw = np.random.default_rng(3)

    def report(n: int) -> IncidentCandidates:
        right = int(draw.integers(4))
        candidates = [dict(zip(FEATURES, draw.random(len(FEATURES)) * 0.4, strict=True)) for _ in range(4)]
        candidates[right]["coverage"] += 0.6
        return IncidentCandidates(
            f"f{n}", tuple(Resemblance(**each) for each in candidates), right if n % 3 else None, bool(n % 3)
        )

    reports = [report(n) for n in range(90)]
    model = fit_likeness(reports, "drawn")
    known = [each for each in reports if each.correct is not None]
    best = [max(range(4), key=lambda n: model.order(each.candidates[n])) for each in known]
    assert sum(at == each.correct for at, each in zip(best, known, strict=True)) > 0.9 * len(known)
    assert all(weight >= 0 for name, weight in model.weights.items() if name not in {"no_error", *AGAINST})
    assert all(model.weights[name] <= 0 for name in AGAINST)
    figures = cross_validate(reports)
    assert "recall@1" in figures
    assert "calibration error" in figures


def test_all_sets_teach_the_probability_and_a_held_out_one_is_as_sure_as_it_is_right() -> None:
    draw = np.random.default_rng(5)

    def reports(share: float, count: int) -> list[IncidentCandidates]:
        made = []
        for n in range(count):
            right = bool(draw.random() < share)
            lexical = draw.normal(1.0, 0.5) + right / 2
            made.append(IncidentCandidates(f"f{n}", (Resemblance(lexical=lexical),), 0 if right else None))
        return made

    seldom, often, unseen = reports(0.2, 200), reports(0.8, 200), reports(0.5, 4_000)
    middle = Resemblance(lexical=1.25)
    alone, both = fit_likeness(seldom, ""), fit_likeness(seldom, "", often)
    assert alone.probability(middle) < both.probability(middle) < fit_likeness(often, "").probability(middle)
    sure = [(both.probability(each.candidates[0]), each.correct == 0) for each in unseen]
    assert (ece(sure) or 1) < 0.06, "a stronger ridge would keep the probabilities near the mean"
