"""Likeness: the probability that an earlier failure had the same cause as this one, and the reasons for it.

Two linear models over the scores of two searches of memory (by the whole report, and by its error alone) and over
the words and systems that both failures share: one orders earlier failures, one says how probable the best of them
is. Their weights are data, fitted by `counterpoint bench recognition DIR --fit FILE`. Class, template, job and the
word of a person set bounds.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path

from counterpoint.proto.messages import Shape

RECOGNISED = 0.7
"""Likeness from which an earlier failure counts as the same one; below it, a fix is only offered."""
SAME_JOB_SAME_TEMPLATE = 0.9
SAME_TEMPLATE = 0.7
SAME_JOB_NO_CAUSE = 0.6
"""Least likeness of a failure of the same job with the same template, of one with the same template that nothing places
elsewhere, and of one of the same job with a template that names no cause."""
SAME_REPORT_COVERAGE, SAME_REPORT_COSINE = 0.95, 0.85
"""Coverage and cosine from which two reports are the same text, which weighs as much as a message in common."""
NO_CAUSE = 0.5
"""Most likeness of two failures that share a template without a cause and no job."""
CONFIRMED, REFUTED = 0.95, 0.0
"""Likeness of two failures that a person declared the same, or different."""
LIKELY = 0.4

_WORD = re.compile(r"[a-z_][a-z0-9_]+|\d{3,}")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_RULES_OUT = re.compile(r"\b(?:(?:al)?though|despite|in spite of|nevertheless|nonetheless|regardless)\b", re.I)


@dataclass(frozen=True)
class Resemblance:
    """The features of one pair of failures, each in [0, 1] but for logarithms.

    `coverage`, `lexical`, `cosine`: of the earlier attempt to the whole report, `error_*` to its error alone: share of
    the words by their worth in memory, ln(1 + BM25) as in a memory of a hundred records, cosine. `error_shared`: share
    of the words of the earlier error that this error has too. `system`: they name the same system or belong to the same
    job. `no_error`: this failure has no error message.

    Two count against: `error_missing`, ln(1 + worth) of the words of the earlier error that this one lacks, and
    `ruled_out`, this report says that a usual cause is none ("although the header is set").
    """

    coverage: float = 0.0
    lexical: float = 0.0
    cosine: float = 0.0
    error_coverage: float = 0.0
    error_lexical: float = 0.0
    error_cosine: float = 0.0
    error_shared: float = 0.0
    system: float = 0.0
    no_error: float = 0.0
    error_missing: float = 0.0
    ruled_out: float = 0.0


FEATURES = tuple(field.name for field in fields(Resemblance))
AGAINST = frozenset({"error_missing", "ruled_out"})
"""Features that may only lower the likelihood; of all others but `no_error` more may only raise it."""


@dataclass(frozen=True)
class Circumstances:
    """The facts about a pair of failures that need no model.

    `report`: the same text but for a few words; `template`: the same error template; `generic`: that template names no
    cause; `job`: the same job; `elsewhere`: they name different jobs, or different systems; `code`: an error code,
    exception class or exit status of both, if any; `declared`: a person linked (True) or parted (False) them. Of a
    template without a cause: `jobs` is how many jobs had it, `fixes` how many acts put it right at this job.
    """

    report: bool = False
    template: bool = False
    generic: bool = False
    job: bool = False
    elsewhere: bool = False
    code: str | None = None
    declared: bool | None = None
    jobs: int = 1
    fixes: int = 1


class LikenessModel(Shape):
    """Two linear models over the features: `rank` orders earlier failures, `intercept` and `weights` say how probable
    it is that the best of them has the same cause. `fitted_on` names the set, its size and the figures on unseen data.
    """

    rank: Mapping[str, float]
    intercept: float
    weights: Mapping[str, float]
    fitted_on: str

    def order(self, pair: Resemblance) -> float:
        """The score that earlier failures are ordered by, the most alike highest."""
        return _weighed(self.rank, pair)

    def at(self, pair: Resemblance) -> float:
        """The probability in (0, 1) that the causes are the same, from the features alone."""
        score = self.intercept + _weighed(self.weights, pair)
        return 1 / (1 + math.exp(-max(-40.0, min(40.0, score))))


@cache
def likeness_model(file: Path | None = None) -> LikenessModel:
    """The model that ships with the developer, or another. Raises `OSError` or `ValidationError`."""
    shipped = files("counterpoint.developer.evidence").joinpath("likeness.json")
    return LikenessModel.model_validate_json(shipped.read_text() if file is None else file.read_text())


def likeness(value: float, known: Circumstances, first: bool = True) -> float:
    """The probability that the causes are the same: `value` of the model, within the bounds of the circumstances.

    `first`: the model orders no failure with another message before it, without which a message in common alone lifts
    nothing.
    """
    if known.declared is not None:
        return CONFIRMED if known.declared else REFUTED
    if known.template and known.job:
        return max(value, SAME_JOB_NO_CAUSE / known.fixes if known.generic else SAME_JOB_SAME_TEMPLATE)
    if known.template and known.generic and not known.report:
        return min(value, NO_CAUSE / known.jobs)
    if (known.template or known.report) and not known.elsewhere and first:
        return max(value, SAME_TEMPLATE)
    return value


def because(pair: Resemblance, known: Circumstances) -> tuple[str, ...]:
    """The reasons in words, the strongest first."""
    if known.declared is not None:
        return ("a person declared them the same" if known.declared else "a person declared them different",)
    said = []
    if known.report:
        said.append("same report")
    if known.template:
        said.append("same message, but it names no cause" if known.generic else "same error message")
    if known.job:
        said.append("same job")
    elif pair.system:
        said.append("same system")
    if known.code:
        said.append(f"same code: {known.code}")
    if not known.template and pair.error_coverage >= LIKELY:
        said.append(f"shares {pair.error_coverage:.0%} of the error's rare words")
    if pair.coverage >= LIKELY:
        said.append(f"shares {pair.coverage:.0%} of the report's rare words")
    if pair.cosine >= LIKELY or pair.error_cosine >= LIKELY:
        said.append(f"similar in meaning ({max(pair.cosine, pair.error_cosine):.2f})")
    if not said:
        said.append("few words in common, and not similar in meaning")
    if pair.ruled_out:
        said.append("against: this report rules a cause out")
    return tuple(said)


def words_of_error(error: str | None) -> frozenset[str]:
    """The words and long numbers of an error message, identifiers whole and without their humps."""
    return frozenset(_WORD.findall(_HUMP.sub(" ", error or "").lower()))


def shared(earlier: frozenset[str], now: frozenset[str]) -> float:
    """Share in [0, 1] of the words of an earlier error that stand in this one, long words counting more."""
    total = sum(map(_worth, earlier))
    return sum(_worth(word) for word in earlier & now) / total if total else 0.0


def missing(earlier: frozenset[str], now: frozenset[str]) -> float:
    """The logarithm of what the words of an earlier error are worth that this one lacks."""
    return math.log1p(sum(_worth(word) for word in earlier - now))


def rules_out(report: str) -> bool:
    """Whether a report says that a usual cause is none: it concedes one and goes on."""
    return _RULES_OUT.search(report) is not None


def _weighed(weights: Mapping[str, float], pair: Resemblance) -> float:
    return sum(weight * float(getattr(pair, name)) for name, weight in weights.items())


def _worth(word: str) -> float:
    return math.log(1 + len(word))
