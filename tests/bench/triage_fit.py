"""Fitting the likelihood of answers: the probability that what the rules quote for a case is right, from its signs.

    python tests/bench/triage_fit.py DIR DIR... [--to FILE]

The DIRs are sets as `bench triage` reads them. The model is a logistic regression with a ridge by Newton's method in
which every set counts alike. Each set is measured by a fit on the others, and by these the threshold is chosen. `--to`
writes the model of all sets.
"""

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

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.measure import quiet_logs, stop_when_told
from bench.ranking import auroc, ece
from bench.triage import Case, Unreadable, Verdict, cases, ingested, verdict

from counterpoint import bus
from counterpoint.developer.citations import proposed, quoted
from counterpoint.developer.evidence import CHUNKS, NEIGHBOURS, NEIGHBOURS_OF
from counterpoint.developer.failure import failure_of_task
from counterpoint.developer.german import english
from counterpoint.developer.likelihood import Likelihood
from counterpoint.developer.relevance import calibration, hits, ranked
from counterpoint.developer.selection import select
from counterpoint.proto.memory import HybridSearch
from counterpoint.proto.tasks import SubmitTask
from counterpoint.recall import Memory

Array = npt.NDArray[np.float64]

SIGNS = ("ahead", "said", "covered", "unnamed", "unknown", "unfocused", "relevance")
LEAST_REFUSED, MOST_WRONG = 0.90, 0.11
"""Means of the sets, each by a fit on the others, that the threshold has to keep to. A case is looked up once here; the
developer looks again with other words where that is not enough, by which a hundredth more answers are wrong."""
RIDGE = 2.0
_ROUNDS = 60
_COUNTS = 100.0
"""Cases for which a set counts, however many it has."""


@dataclass(frozen=True)
class Judged:
    """The signs of what the rules quote for a case and the verdict on it. `lacking`: it lacks what alone can answer."""

    answerable: bool
    verdict: Verdict
    signs: Mapping[str, float]
    lacking: bool = False


async def judged(memory: Memory, case: Case) -> Judged | None:
    """A case as the developer looks it up at first; None where nothing can be quoted."""
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
    beside = hits(text, [item for item in found.items if item.scores is None], calibration().answer)
    if failed:
        question = "\n".join(filter(None, (case.text, case.error_message)))
        selected = select(question, hits(text, near, calibration().topic), beside, failure=True)
    else:
        selected = select(text, ranked(hits(text, near, calibration().answer)), beside)
    if selected is None:
        return None
    signs = selected.signs_of(selected.ranked[0], selected.excerpts)
    shown = (proposed if failed else quoted)(selected.citations)
    return Judged(
        case.expect != "refuse", verdict(case.expect, shown), signs, selected.lacks(signs, selected.excerpts)
    )  # fmt: skip


async def gathered(folder: Path) -> tuple[Judged, ...]:
    """The cases of a set on a throw-away stack. Raises `Unreadable`."""
    of = cases(folder)
    with tempfile.TemporaryDirectory(prefix="counterpoint-fit-") as scratch:
        async with ingested(Path(scratch), folder) as (_, memory):
            found = [await judged(memory, case) for case in of]
    return tuple(each for each in found if each is not None)


def weights(sets: Sequence[Sequence[Judged]]) -> Array:
    """The weights of the signs, and the intercept behind them. Cases that lack what alone can answer are left out."""
    used = [[case for case in of if not case.lacking] for of in sets]
    design = np.array([[*(case.signs[name] for name in SIGNS), 1.0] for of in used for case in of])
    truths = np.array([float(case.verdict == "right") for of in used for case in of])
    counts = np.array([_COUNTS / len(of) for of in used for _ in of])
    ridge = np.diag([RIDGE] * len(SIGNS) + [1e-6])
    found = np.zeros(len(SIGNS) + 1)
    for _ in range(_ROUNDS):
        probable = 1 / (1 + np.exp(-design @ found))
        curvature = (design * (counts * probable * (1 - probable))[:, None]).T @ design + ridge
        found = found + np.linalg.solve(curvature, design.T @ (counts * (truths - probable)) - ridge @ found)
    return found


def probabilities(of: Sequence[Judged], found: Array) -> Array:
    """The probability of each case by some weights."""
    design = np.array([[*(case.signs[name] for name in SIGNS), 1.0] for case in of])
    lacking = np.array([case.lacking for case in of])
    return np.where(lacking, 0.0, 1 / (1 + np.exp(-design @ found)))


def shares(of: Sequence[Judged], probable: Array, threshold: float) -> tuple[float, float, float]:
    """Shares of a set: right among the answerable, refused among the others, wrong among all."""
    answered = [probability >= threshold for probability in probable]
    answerable = [(case, said) for case, said in zip(of, answered, strict=True) if case.answerable]
    others = [said for case, said in zip(of, answered, strict=True) if not case.answerable]
    right = sum(said and case.verdict == "right" for case, said in answerable)
    wrong = sum(said and case.verdict == "wrong" for case, said in zip(of, answered, strict=True))
    return right / len(answerable), 1 - sum(others) / max(1, len(others)), wrong / len(of)


def threshold(sets: Sequence[Sequence[Judged]], held_out: Sequence[Array]) -> float:
    """The lowest by which wrong answers are few and refusals many in the mean of the sets, each by a fit on others."""
    for hundredths in range(30, 80):
        each = [shares(of, probable, hundredths / 100) for of, probable in zip(sets, held_out, strict=True)]
        _, refused, wrong = (sum(values) / len(each) for values in zip(*each, strict=True))
        if refused >= LEAST_REFUSED and wrong <= MOST_WRONG:
            return hundredths / 100
    raise ValueError("no threshold keeps to both")


def fit(sets: Mapping[str, Sequence[Judged]]) -> tuple[Likelihood, list[dict[str, Any]]]:
    """The model of all sets, and each measured by a fit on the others. Needs two sets at least."""
    names, of = list(sets), list(sets.values())
    held_out = [probabilities(each, weights([*of[:n], *of[n + 1 :]])) for n, each in enumerate(of)]
    enough = threshold(of, held_out)
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
    *found, intercept = (round(float(value), 4) for value in weights(of))
    cases = ", ".join(f"{len(each)} of {name}" for name, each in sets.items())
    figures = "; ".join(
        f"{each['set']} right {each['right']}, refused {each['refused']}, wrong {each['wrong']}, "
        f"AUROC {each['auroc']}, calibration error {each['ece']}"
        for each in measured
    )
    model = Likelihood(
        intercept=intercept,
        weights=dict(zip(SIGNS, found, strict=True)),
        threshold=enough,
        fitted_on=f"logistic regression with a ridge of {RIDGE:.0f}, of whether the excerpts that the rules choose "
        f"hold what answers: {cases}",
        measured=f"each set by a fit on the others: {figures}",
    )
    return model, measured


async def run(folders: Sequence[Path]) -> dict[str, tuple[Judged, ...]]:
    """The sets by their names, one after the other."""
    return {folder.resolve().name: await gathered(folder) for folder in folders}


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--to", type=Path, metavar="FILE")
    given = parser.parse_args()
    quiet_logs()
    stop_when_told()
    try:
        model, measured = fit(bus.run(run(given.folders)))
    except (Unreadable, ValueError) as error:
        sys.exit(f"triage_fit: {error}")
    for each in measured:
        print(json.dumps(each))
    if given.to is not None:
        given.to.write_text(model.model_dump_json(indent=2) + "\n")


if __name__ == "__main__":
    main()
