"""Fit of the likelihood of answers: the probability that the excerpts chosen for a case are right, from their features.

    python -m counterpoint.bench.likelihood_fit DIR DIR... [--to FILE]

The DIRs are sets of `counterpoint bench triage`. The model has two ridge logistic regressions by Newton's method, one
for questions and one for failures, with equal weight of each set. Each set is measured by a fit on the others, and
these figures decide the thresholds. `--to` writes the model of all sets."""

import argparse
import json
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
from counterpoint.developer.excerpts.likelihood import LikelihoodModel, LikelihoodTerms
from counterpoint.developer.excerpts.relevance import hits, rank_hits
from counterpoint.developer.excerpts.selection import select
from counterpoint.developer.language.german import english
from counterpoint.developer.policies.procedures import CODE_LIKELIHOOD_MIN
from counterpoint.proto.memory import HybridSearch, Item
from counterpoint.proto.tasks import SubmitTask

Array = npt.NDArray[np.float64]

QUESTION_FEATURES = ("ahead", "said", "headings", "words")
FAILURE_FEATURES = ("overlap", "headings", "ahead")
"""Fewer, since sets have few failures."""
LEAST_REFUSED, MOST_WRONG = 0.905, 0.08
"""Bounds of the threshold, over the cases of all sets, each by a fit on the others. The fit searches once per case. The
developer repeats a search in other words, by which one answer in a hundred more is wrong."""
RIDGE = 2.0
_ROUNDS = 60
_COUNTS = 100.0
"""Weight of each set, in cases."""
_LACKING = 0.1


@dataclass(frozen=True)
class JudgedCase:
    """Verdict on the excerpts for a case, and their features. `lacking`: no excerpt has the kind of value that is asked
    for. `failure`: the case is a failure, not a question. `named`: the excerpt names it."""

    answerable: bool
    verdict: Verdict
    features: Mapping[str, float]
    lacking: bool = False
    failure: bool = False
    named: bool = False


async def judge_case(memory: Memory, case: TriageCase) -> JudgedCase | None:
    """Search for a case as the developer does first. None if no excerpt is found."""
    task = SubmitTask(kind=case.kind, description=case.text, error_message=case.error_message)
    text = failure_of_task(task).text if case.kind == "troubleshoot" else case.text
    also = english(case.text)
    query = HybridSearch(
        store="chunks", text=text, also=(also,) if also else (), k=CHUNKS, neighbours=NEIGHBOURS,
        neighbours_of=NEIGHBOURS_OF,
    )  # fmt: skip
    (found,) = await memory.query(query, timeout_s=60)
    return judge_items(case, text, found.items)


def judge_items(case: TriageCase, text: str, items: Sequence[Item]) -> JudgedCase | None:
    """Judge what a search for a text found for a case. None if no excerpt is found."""
    failed = case.kind == "troubleshoot"
    near = [item for item in items if item.scores is not None]
    neighbours = hits(text, [item for item in items if item.scores is None], load_calibration().answer)
    if failed:
        question = "\n".join(filter(None, (case.text, case.error_message)))
        selected = select(question, hits(text, near, load_calibration().topic), neighbours, failure=True)
    else:
        selected = select(text, rank_hits(hits(text, near, load_calibration().answer)), neighbours)
    if selected is None:
        return None
    best, *_ = selected.ranked
    shown = (attributed_text if failed else quotes_text)(selected.citations)
    return JudgedCase(
        answerable=case.expect != "refuse",
        verdict=verdict(case.expect, shown),
        features=selected.features_of(best, selected.excerpts),
        lacking=selected.lacks(selected.excerpts),
        failure=failed,
        named=failed and best.named is not None,
    )


async def judge_set(folder: Path) -> tuple[JudgedCase, ...]:
    """Judge the cases of a set on a temporary stack. Raises `UnreadableSet`."""
    of = read_cases(folder)
    with tempfile.TemporaryDirectory(prefix="counterpoint-fit-") as scratch:
        async with stack_with_documents(Path(scratch), folder) as (_, memory):
            found = [await judge_case(memory, case) for case in of]
    return tuple(each for each in found if each is not None)


def fit_terms(sets: Sequence[Sequence[JudgedCase]], features: Sequence[str], threshold: float = 0.5) -> LikelihoodTerms:
    """Fit the weights of features to the cases of sets. Lacking and named cases, which rules decide, are left out."""
    used = [[case for case in of if not case.lacking and not case.named] for of in sets]
    design = np.array([[*(case.features[name] for name in features), 1.0] for of in used for case in of])
    truths = np.array([float(case.verdict == "right") for of in used for case in of])
    counts = np.array([_COUNTS / len(of) for of in used for _ in of])
    *found, intercept = (round(float(value), 4) for value in _ridge_regression(design, truths, counts))
    weights = dict(zip(features, found, strict=True))
    return LikelihoodTerms(threshold=threshold, intercept=intercept, weights=weights)


def _ridge_regression(design: Array, truths: Array, counts: Array) -> Array:
    """Return the weights of a logistic regression, whose last column is the intercept."""
    penalty = np.diag([RIDGE] * (design.shape[1] - 1) + [1e-6])
    found = np.zeros(design.shape[1])
    for _ in range(_ROUNDS):
        probable = 1 / (1 + np.exp(-design @ found))
        curvature = (design * (counts * probable * (1 - probable))[:, None]).T @ design + penalty
        found = found + np.linalg.solve(curvature, design.T @ (counts * (truths - probable)) - penalty @ found)
    return found


def probability(case: JudgedCase, terms: LikelihoodTerms) -> float:
    """Return the probability of a case under some terms."""
    probable = min(terms.probability(case.features), _LACKING if case.lacking else 1.0)
    return max(probable, CODE_LIKELIHOOD_MIN) if case.named else probable


def shares(of: Sequence[JudgedCase], probable: Sequence[float], threshold: float) -> tuple[float, float, float]:
    """Return shares of a set: right among the answerable, refused among the others, wrong among all."""
    answered = [probability >= threshold for probability in probable]
    answerable = [(case, said) for case, said in zip(of, answered, strict=True) if case.answerable]
    others = [said for case, said in zip(of, answered, strict=True) if not case.answerable]
    right = sum(said and case.verdict == "right" for case, said in answerable)
    wrong = sum(said and case.verdict == "wrong" for case, said in zip(of, answered, strict=True))
    return right / max(1, len(answerable)), 1 - sum(others) / max(1, len(others)), wrong / len(of)


def choose_threshold(of: Sequence[JudgedCase], held_out: Sequence[float]) -> float:
    """Return the lowest threshold within the bounds. Raises `ValueError` if there is none."""
    for thousandths in range(300, 800):
        _, refused, wrong = shares(of, held_out, thousandths / 1000)
        if refused >= LEAST_REFUSED and wrong <= MOST_WRONG:
            return thousandths / 1000
    raise ValueError("no threshold is within both bounds")


def fit_kind(
    sets: Mapping[str, Sequence[JudgedCase]], features: Sequence[str]
) -> tuple[LikelihoodTerms, list[dict[str, Any]]]:
    """Fit the terms of all sets, and measure each by a fit on the others. Raises `ValueError` for less than two sets
    with cases."""
    of = {name: cases for name, cases in sets.items() if cases}
    if len(of) < 2:
        raise ValueError("questions and failures are needed, each in two sets at least")
    held_out = {}
    for name, cases in of.items():
        terms = fit_terms([others for other, others in of.items() if other != name], features)
        held_out[name] = [probability(case, terms) for case in cases]
    every = [case for cases in of.values() for case in cases]
    enough = choose_threshold(every, [probable for each in held_out.values() for probable in each])
    measured = [_figures(name, cases, held_out[name], enough) for name, cases in of.items()]
    return fit_terms(list(of.values()), features, enough), measured


def fit_likelihood(sets: Mapping[str, Sequence[JudgedCase]]) -> tuple[LikelihoodModel, list[dict[str, Any]]]:
    """Fit the model of all sets, and measure its terms on each. Raises `ValueError` for too few cases."""
    fitted = {}
    for kind, failure, features in (("questions", False, QUESTION_FEATURES), ("failures", True, FAILURE_FEATURES)):
        of = {name: [case for case in cases if case.failure == failure] for name, cases in sets.items()}
        fitted[kind] = fit_kind(of, features)
    model = LikelihoodModel(
        questions=fitted["questions"][0],
        failures=fitted["failures"][0],
        fitted_on=f"logistic regressions with a ridge of {RIDGE:.0f}, of whether the excerpts that the rules choose "
        f"hold what answers: {', '.join(f'{len(each)} of {name}' for name, each in sets.items())}",
        measured="each set by a fit on the others: "
        + "; ".join(f"{kind} of {_in_words(measured)}" for kind, (_, measured) in fitted.items()),
    )
    return model, [{"kind": kind, **each} for kind, (_, measured) in fitted.items() for each in measured]


def _figures(name: str, of: Sequence[JudgedCase], probable: Sequence[float], threshold: float) -> dict[str, Any]:
    right, refused, wrong = shares(of, probable, threshold)
    truths = [case.verdict == "right" for case in of]
    answered = [one for one in zip(probable, truths, strict=True) if one[0] >= threshold]
    return {
        "set": name,
        "cases": len(of),
        "right": round(right, 2),
        "refused": round(refused, 2),
        "wrong": round(wrong, 2),
        "auroc": round(auroc(probable, truths) or 0.0, 2),
        "ece": round(ece(answered) or 0.0, 2),
    }


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
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--to", type=Path, metavar="FILE")
    args = parser.parse_args()
    log_warnings_only()
    exit_on_sigterm()
    try:
        model, measured = fit_likelihood(bus.run(run(args.folders)))
    except (OSError, UnreadableSet, ValueError) as error:
        sys.exit(f"likelihood_fit: {error}")
    for each in measured:
        print(json.dumps(each))
    if args.to is not None:
        args.to.write_text(model.model_dump_json(indent=2) + "\n")


if __name__ == "__main__":
    main()
