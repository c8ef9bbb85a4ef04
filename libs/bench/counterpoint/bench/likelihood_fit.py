"""Fit of the likelihood of answers: the probability that the excerpts chosen for a case are right, from their features.

    python -m counterpoint.bench.likelihood_fit DIR DIR... [--to FILE]

The DIRs are sets of `counterpoint bench triage`. The model is a ridge logistic regression by Newton's method with equal
weight of each set. Each set is measured by a fit on the others, and these figures decide the threshold. `--to` writes
the model of all sets."""

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
from counterpoint.developer.excerpts.likelihood import LikelihoodModel
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
_ROUNDS = 60
_COUNTS = 100.0
"""Weight of each set, in cases."""


@dataclass(frozen=True)
class JudgedCase:
    """Verdict on the excerpts for a case, and their features. `lacking`: no excerpt has the kind of value that is asked
    for."""

    answerable: bool
    verdict: Verdict
    features: Mapping[str, float]
    lacking: bool = False


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
    return JudgedCase(
        case.expect != "refuse", verdict(case.expect, shown), features, selected.lacks(features, selected.excerpts)
    )  # fmt: skip


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
    ridge = np.diag([RIDGE] * len(FEATURES) + [1e-6])
    found = np.zeros(len(FEATURES) + 1)
    for _ in range(_ROUNDS):
        probable = 1 / (1 + np.exp(-design @ found))
        curvature = (design * (counts * probable * (1 - probable))[:, None]).T @ design + ridge
        found = found + np.linalg.solve(curvature, design.T @ (counts * (truths - probable)) - ridge @ found)
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
    measured = []
    for name, each, probable in zip(names, of, held_out, strict=True):
        right, refused, wrong = shares(each, probable, enough)
        truths = [case.verdict == "right" for case in each]
        measured.append(
            {
                "set": name,
                "cases": len(each),
                "right": round(float(right), 2),
                "refused": round(float(refused), 2),
                "wrong": round(float(wrong), 2),
                "auroc": round(auroc([float(p) for p in probable], truths) or 0.0, 2),
                "ece": round(
                    ece([one for one in zip(map(float, probable), truths, strict=True) if one[0] >= enough]) or 0.0, 2
                ),
            }
        )
    *found, intercept = (round(float(value), 4) for value in fit_weights(of))
    cases = ", ".join(f"{len(each)} of {name}" for name, each in sets.items())
    figures = "; ".join(
        f"{each['set']} right {each['right']}, refused {each['refused']}, wrong {each['wrong']}, "
        f"AUROC {each['auroc']}, calibration error {each['ece']}"
        for each in measured
    )
    model = LikelihoodModel(
        intercept=intercept,
        weights=dict(zip(FEATURES, found, strict=True)),
        threshold=enough,
        fitted_on=f"logistic regression with a ridge of {RIDGE:.0f}, of whether the excerpts that the rules choose "
        f"hold what answers: {cases}",
        measured=f"each set by a fit on the others: {figures}",
    )
    return model, measured


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
    except (UnreadableSet, ValueError) as error:
        sys.exit(f"likelihood_fit: {error}")
    for each in measured:
        print(json.dumps(each))
    if args.to is not None:
        args.to.write_text(model.model_dump_json(indent=2) + "\n")


if __name__ == "__main__":
    main()
