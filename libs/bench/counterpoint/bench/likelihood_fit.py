"""Fit of the likelihood of answers: the probability that the excerpts chosen for a case are right, from their features.

    python -m counterpoint.bench.likelihood_fit DIR DIR... [--failures] [--to FILE]
    python -m counterpoint.bench.likelihood_fit --answers RESULT [--to FILE]

The DIRs are sets of `counterpoint bench triage`. The model is a ridge logistic regression by Newton's method with equal
weight of each set. Each set is measured by a fit on the others, and these figures decide the threshold. `--to` writes
the model of all sets. `--failures` keeps the weights of the package, and fits the terms that are added for failures to
the failures of the sets. `--answers` calibrates the model of the package to a result of `counterpoint bench triage DIR
--json --verbose`: intercept and threshold are shifted alike, so that the same is answered, and the mean confidence is
the share of right answers."""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from counterpoint import bus
from counterpoint.bench.evaluation_metrics import auroc, ece
from counterpoint.bench.evaluation_sets import UnreadableSet
from counterpoint.bench.report import exit_on_sigterm, log_warnings_only
from counterpoint.bench.triage import TriageCase, Verdict, read_cases, stack_with_documents, verdict
from counterpoint.client import Memory
from counterpoint.developer.evidence.calibration import load_calibration
from counterpoint.developer.evidence.failure import failure_of_task
from counterpoint.developer.evidence.gather import CHUNKS, NEIGHBOURS, NEIGHBOURS_OF
from counterpoint.developer.excerpts.citations import attributed_text, quotes_text
from counterpoint.developer.excerpts.likelihood import FailureTerms, LikelihoodModel, likelihood_model
from counterpoint.developer.excerpts.relevance import hits, rank_hits
from counterpoint.developer.excerpts.selection import select
from counterpoint.developer.language.german import english
from counterpoint.proto.memory import HybridSearch
from counterpoint.proto.tasks import SubmitTask

Array = npt.NDArray[np.float64]

FEATURES = ("ahead", "said", "covered", "unnamed", "unknown", "unfocused", "relevance")
LEAST_REFUSED, MOST_WRONG = 0.90, 0.11
"""Bounds of the threshold: means over the sets, each by a fit on the others. The fit searches once per case. The
developer repeats a search in other words, by which one answer in a hundred more is wrong."""
RIDGE = 2.0
FAILURE_FEATURES, FAILURE_RIDGE = ("ahead",), 1.0
"""Features of the terms for failures, and their ridge. One feature, since sets have few failures."""
_ROUNDS = 60
_MOST_SHIFT = 3.0
_COUNTS, _FAILURE_COUNTS = 100.0, 50.0
"""Weight of each set, in cases, and of its failures."""


@dataclass(frozen=True)
class JudgedCase:
    """Verdict on the excerpts for a case, and their features. `lacking`: no excerpt has the kind of value that is asked
    for. `failure`: the case is a failure, not a question."""

    answerable: bool
    verdict: Verdict
    features: Mapping[str, float]
    lacking: bool = False
    failure: bool = False


async def judge_case(memory: Memory, case: TriageCase) -> JudgedCase | None:
    """Search for a case as the developer does first. None if no excerpt is found."""
    failed = case.kind == "troubleshoot"
    task = SubmitTask(kind=case.kind, description=case.text, error_message=case.error_message)
    text = failure_of_task(task).text if failed else case.text
    also = english(case.text)
    query = HybridSearch(
        store="chunks", text=text, also=(also,) if also else (), k=CHUNKS, neighbours=NEIGHBOURS,
        neighbours_of=NEIGHBOURS_OF,
    )  # fmt: skip
    (found,) = await memory.query(query, timeout_s=60)
    near = [item for item in found.items if item.scores is not None]
    neighbours = hits(text, [item for item in found.items if item.scores is None], load_calibration().answer)
    if failed:
        question = "\n".join(filter(None, (case.text, case.error_message)))
        selected = select(question, hits(text, near, load_calibration().topic), neighbours, failure=True)
    else:
        selected = select(text, rank_hits(hits(text, near, load_calibration().answer)), neighbours)
    if selected is None:
        return None
    features = selected.features_of(selected.ranked[0], selected.excerpts)
    shown = (attributed_text if failed else quotes_text)(selected.citations)
    lacking = selected.lacks(features, selected.excerpts)
    return JudgedCase(case.expect != "refuse", verdict(case.expect, shown), features, lacking, failed)


async def judge_set(folder: Path) -> tuple[JudgedCase, ...]:
    """Judge the cases of a set on a temporary stack. Raises `UnreadableSet`."""
    of = read_cases(folder)
    with tempfile.TemporaryDirectory(prefix="counterpoint-fit-") as scratch:
        async with stack_with_documents(Path(scratch), folder) as (_, memory):
            found = [await judge_case(memory, case) for case in of]
    return tuple(each for each in found if each is not None)


def fit_weights(sets: Sequence[Sequence[JudgedCase]]) -> Array:
    """Fit the weights of the features, followed by the intercept. Lacking cases are left out."""
    used = [[case for case in of if not case.lacking] for of in sets]
    design = np.array([[*(case.features[name] for name in FEATURES), 1.0] for of in used for case in of])
    truths = np.array([float(case.verdict == "right") for of in used for case in of])
    counts = np.array([_COUNTS / len(of) for of in used for _ in of])
    return _ridge_regression(design, truths, counts, RIDGE, np.zeros(len(truths)))


def fit_failure_weights(sets: Sequence[Sequence[JudgedCase]], model: LikelihoodModel) -> Array:
    """Fit the weights of the terms for failures, followed by their intercept, on top of the weights of a model."""
    design = np.array([[*(case.features[name] for name in FAILURE_FEATURES), 1.0] for of in sets for case in of])
    truths = np.array([float(case.verdict == "right") for of in sets for case in of])
    counts = np.array([_FAILURE_COUNTS / len(of) for of in sets for _ in of])
    offset = np.array([model.log_odds(case.features) for of in sets for case in of])
    return _ridge_regression(design, truths, counts, FAILURE_RIDGE, offset)


def _ridge_regression(design: Array, truths: Array, counts: Array, ridge: float, offset: Array) -> Array:
    """Return the weights of a logistic regression, whose last column is the intercept. `offset`: known log odds."""
    penalty = np.diag([ridge] * (design.shape[1] - 1) + [1e-6])
    found = np.zeros(design.shape[1])
    for _ in range(_ROUNDS):
        probable = 1 / (1 + np.exp(-offset - design @ found))
        curvature = (design * (counts * probable * (1 - probable))[:, None]).T @ design + penalty
        found = found + np.linalg.solve(curvature, design.T @ (counts * (truths - probable)) - penalty @ found)
    return found


def probabilities(of: Sequence[JudgedCase], found: Array) -> Array:
    """Return the probability of each case under some weights."""
    design = np.array([[*(case.features[name] for name in FEATURES), 1.0] for case in of])
    lacking = np.array([case.lacking for case in of])
    return np.where(lacking, 0.0, 1 / (1 + np.exp(-design @ found)))


def shares(of: Sequence[JudgedCase], probable: Array, threshold: float) -> tuple[float, float, float]:
    """Return shares of a set: right among the answerable, refused among the others, wrong among all."""
    answered = [probability >= threshold for probability in probable]
    answerable = [(case, said) for case, said in zip(of, answered, strict=True) if case.answerable]
    others = [said for case, said in zip(of, answered, strict=True) if not case.answerable]
    right = sum(said and case.verdict == "right" for case, said in answerable)
    wrong = sum(said and case.verdict == "wrong" for case, said in zip(of, answered, strict=True))
    return right / len(answerable), 1 - sum(others) / max(1, len(others)), wrong / len(of)


def choose_threshold(sets: Sequence[Sequence[JudgedCase]], held_out: Sequence[Array]) -> float:
    """Return the lowest threshold within the bounds. Raises `ValueError` if there is none."""
    for hundredths in range(30, 80):
        each = [shares(of, probable, hundredths / 100) for of, probable in zip(sets, held_out, strict=True)]
        _, refused, wrong = (sum(values) / len(each) for values in zip(*each, strict=True))
        if refused >= LEAST_REFUSED and wrong <= MOST_WRONG:
            return hundredths / 100
    raise ValueError("no threshold is within both bounds")


def fit_likelihood(sets: Mapping[str, Sequence[JudgedCase]]) -> tuple[LikelihoodModel, list[dict[str, Any]]]:
    """Fit the model of all sets, and measure each by a fit on the others. At least two sets are needed."""
    names, of = list(sets), list(sets.values())
    held_out = [probabilities(each, fit_weights([*of[:n], *of[n + 1 :]])) for n, each in enumerate(of)]
    enough = choose_threshold(of, held_out)
    measured = [_figures(*each, enough) for each in zip(names, of, held_out, strict=True)]
    *found, intercept = (round(float(value), 4) for value in fit_weights(of))
    model = LikelihoodModel(
        intercept=intercept,
        weights=dict(zip(FEATURES, found, strict=True)),
        threshold=enough,
        fitted_on=f"logistic regression with a ridge of {RIDGE:.0f}, of whether the excerpts that the rules choose "
        f"hold what answers: {_counts(sets)}",
        measured=f"each set by a fit on the others: {_in_words(measured)}",
    )
    return model, measured


def fit_failure_terms(
    sets: Mapping[str, Sequence[JudgedCase]], model: LikelihoodModel
) -> tuple[LikelihoodModel, list[dict[str, Any]]]:
    """Fit the terms for failures on top of a model, and measure each set by a fit on the others. At least two sets with
    failures are needed."""
    failures = {name: [case for case in of if case.failure] for name, of in sets.items()}
    failures = {name: of for name, of in failures.items() if of}
    if len(failures) < 2:
        raise ValueError("at least two sets with failures are needed")
    measured = []
    for name, each in failures.items():
        others = [of for other, of in failures.items() if other != name]
        probable = _failure_probabilities(each, model, fit_failure_weights(others, model))
        measured.append(_figures(name, each, probable, model.threshold))
    *found, intercept = (round(float(value), 4) for value in fit_failure_weights(list(failures.values()), model))
    terms = FailureTerms(
        intercept=intercept,
        weights=dict(zip(FAILURE_FEATURES, found, strict=True)),
        fitted_on=f"logistic regression with a ridge of {FAILURE_RIDGE}, on top of the weights for all cases, of "
        f"whether the excerpts for a failure hold what answers it: {_counts(failures)}",
        measured=f"the failures of each set by a fit on the others: {_in_words(measured)}",
    )
    return model.model_copy(update={"failures": terms}), measured


def calibrate(model: LikelihoodModel, answers: Sequence[tuple[float, bool]], name: str) -> LikelihoodModel:
    """Shift a model to answers, each a confidence and whether it was right. A search that finds nothing is repeated in
    other words, so more of what is answered is right than after the first search that the fit sees.

    Raises `ValueError` if all answers are right, or none.
    """
    right = sum(truth for _, truth in answers) / max(1, len(answers))
    if not 0 < right < 1:
        raise ValueError("a calibration needs right answers and wrong ones")
    low, high = -_MOST_SHIFT, _MOST_SHIFT
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        mean = sum(_shifted(confidence, middle) for confidence, _ in answers) / len(answers)
        low, high = (middle, high) if mean < right else (low, middle)
    shift = round(low, 1)
    return model.model_copy(
        update={
            "intercept": round(model.intercept + shift, 4),
            "threshold": round(_shifted(model.threshold, shift), 3),
            "fitted_on": f"{model.fitted_on}; then shifted by {shift} to the {len(answers)} answers of {name}",
        }
    )


def _shifted(probability: float, shift: float) -> float:
    odds = probability / max(1 - probability, 1e-9) * math.exp(shift)
    return odds / (1 + odds)


def _failure_probabilities(of: Sequence[JudgedCase], model: LikelihoodModel, found: Array) -> Array:
    design = np.array([[*(case.features[name] for name in FAILURE_FEATURES), 1.0] for case in of])
    offset = np.array([model.log_odds(case.features) for case in of])
    return np.asarray(1 / (1 + np.exp(-offset - design @ found)))


def _figures(name: str, of: Sequence[JudgedCase], probable: Array, threshold: float) -> dict[str, Any]:
    right, refused, wrong = shares(of, probable, threshold)
    truths = [case.verdict == "right" for case in of]
    answered = [one for one in zip(map(float, probable), truths, strict=True) if one[0] >= threshold]
    return {
        "set": name,
        "cases": len(of),
        "right": round(float(right), 2),
        "refused": round(float(refused), 2),
        "wrong": round(float(wrong), 2),
        "auroc": round(auroc([float(p) for p in probable], truths) or 0.0, 2),
        "ece": round(ece(answered) or 0.0, 2),
    }


def _counts(sets: Mapping[str, Sequence[JudgedCase]]) -> str:
    return ", ".join(f"{len(each)} of {name}" for name, each in sets.items())


def _in_words(measured: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(
        f"{each['set']} right {each['right']}, refused {each['refused']}, wrong {each['wrong']}, "
        f"AUROC {each['auroc']}, calibration error {each['ece']}"
        for each in measured
    )


async def run(folders: Sequence[Path]) -> dict[str, tuple[JudgedCase, ...]]:
    """Judge sets one after the other; return them by name."""
    return {folder.resolve().name: await judge_set(folder) for folder in folders}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*", metavar="DIR")
    parser.add_argument("--answers", type=Path, metavar="RESULT")
    parser.add_argument("--failures", action="store_true")
    parser.add_argument("--to", type=Path, metavar="FILE")
    args = parser.parse_args()
    if bool(args.folders) == (args.answers is not None):
        parser.error("either DIRs or --answers are needed")
    log_warnings_only()
    exit_on_sigterm()
    try:
        model, measured = _calibrated(args.answers) if args.answers else _fitted(args.folders, args.failures)
    except (OSError, KeyError, UnreadableSet, ValueError) as error:
        sys.exit(f"likelihood_fit: {error}")
    for each in measured:
        print(json.dumps(each))
    if args.to is not None:
        args.to.write_text(model.model_dump_json(indent=2) + "\n")


def _fitted(folders: Sequence[Path], failures: bool) -> tuple[LikelihoodModel, list[dict[str, Any]]]:
    sets = bus.run(run(folders))
    shipped = likelihood_model().model_copy(update={"failures": None})
    return fit_failure_terms(sets, shipped) if failures else fit_likelihood(sets)


def _calibrated(result: Path) -> tuple[LikelihoodModel, list[dict[str, Any]]]:
    """Calibrate the model of the package to the answers of a result. Raises `KeyError` if it has no answers."""
    of = json.loads(result.read_text())
    answers = [(each["confidence"], each["verdict"] == "right") for each in of["each"] if each["verdict"] != "refused"]
    return calibrate(likelihood_model(), answers, of["set"]), []


if __name__ == "__main__":
    main()
