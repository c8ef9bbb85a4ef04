"""Likeness: the probability that an earlier failure has the same cause, and the reasons for it.

Two linear models use the scores of two searches (by the report and by its error) and the words and systems in common:
one ranks earlier failures, the other gives the probability of the best. `counterpoint bench recognition DIR --fit FILE`
fits their weights. Class, template, job and links set bounds.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path

from counterpoint.developer.evidence.alignment import word_weight
from counterpoint.proto.findings import NOTHING_IN_COMMON
from counterpoint.proto.messages import Shape

RECOGNISED = 0.7
"""Minimum likeness of the same failure; below it a fix is only offered."""
SAME_JOB_SAME_TEMPLATE = 0.9
SAME_REPORT = 0.7
SAME_MESSAGE = 0.45
SAME_JOB_NO_CAUSE = 0.6
"""Minimum likeness with the same job and template; with the same report or template and no contradicting job or system;
with the same report or template otherwise, too few to count in the confidence score; and with the same job and a
template without a cause. Of 36 first-ranked ones of four sets with the same template 21 have the same cause."""
SAME_REPORT_COVERAGE, SAME_REPORT_COSINE = 0.95, 0.85
"""Minimum coverage and cosine of reports with the same text."""
NO_CAUSE = 0.5
"""Maximum likeness if one of the errors names no cause, unless job and template are the same."""
OTHER_CODE = 0.15
"""Maximum likeness with different codes of one kind, such as two exit codes (3 of 23 first-ranked ones of four sets
have the same cause)."""
OTHER_ENDING = 0.25
"""Maximum likeness of messages that begin alike and end in different words, such as two reasons why a server refuses (7
of 36 first-ranked ones of four sets have the same cause)."""
CONFIRMED, REFUTED = 0.95, 0.0
"""Likeness of failures that a person declared the same, or different."""
LIKELY = 0.4
REPLACED = 0.4
"""Minimum share of replaced words that is a reason against."""

_WORD = re.compile(r"[a-z_][a-z0-9_]+|\d{3,}")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_RULES_OUT = re.compile(r"\b(?:(?:al)?though|despite|in spite of|nevertheless|nonetheless|regardless)\b", re.I)


@dataclass(frozen=True)
class Resemblance:
    """The features of a pair of failures, each in [0, 1] except logarithms.

    `coverage` (idf-weighted share of words), `lexical` (ln(1 + BM25), scaled to a hundred records) and `cosine` compare
    the earlier attempt with the report; `error_*` compare it with the error. `error_shared`: share of the earlier
    error's words in this error. `system`: same system or job. `no_error`: this failure has no error message.

    Four features lower the likeness: `error_missing`, ln(1 + weight) of the earlier error's words that this error
    lacks, `ruled_out`: this report rules out a usual cause ("although the header is set"), `replaced`: the share of
    the earlier message in whose place this one has other words, and `repeated`, ln(1 + weight) of the words of both
    messages that this report repeats in its own sentences, since the search counts them twice. `added` is of the
    `Alignment` of both messages.
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
    replaced: float = 0.0
    added: float = 0.0
    repeated: float = 0.0


FEATURES = tuple(field.name for field in fields(Resemblance))
AGAINST = frozenset({"error_missing", "ruled_out", "replaced", "repeated"})
"""Features with a negative weight; all others but `no_error` have a positive one."""


@dataclass(frozen=True)
class Circumstances:
    """Facts about a pair of failures, independent of the model.

    `report`: almost the same text. `template`: the same error template; `generic`: it has no cause. `vague`: one of the
    errors names no cause. `other_code`: they have different codes of one kind. `other_ending`: their messages begin
    alike and end in different words. `job`: the same job. `elsewhere`: different jobs or systems. `code`: a common
    error code, exception class or exit status. `declared`: a person linked (True) or split (False) them. For a template
    without a cause, `jobs` is the number of jobs that had it, and `fixes` the number of acts that fixed it at this job.
    """

    report: bool = False
    template: bool = False
    generic: bool = False
    vague: bool = False
    other_code: bool = False
    other_ending: bool = False
    job: bool = False
    elsewhere: bool = False
    code: str | None = None
    declared: bool | None = None
    jobs: int = 1
    fixes: int = 1


class LikenessModel(Shape):
    """Two linear models over the features: `rank` orders earlier failures; `intercept` and `weights` give the
    probability that the best has the same cause. `fitted_on` describes the set and the figures on unseen data.
    """

    rank: Mapping[str, float]
    intercept: float
    weights: Mapping[str, float]
    fitted_on: str

    def order(self, pair: Resemblance) -> float:
        """Return the ranking score of a pair, the highest for the most similar."""
        return _weighted_sum(self.rank, pair)

    def probability(self, pair: Resemblance) -> float:
        """Return the probability in (0, 1) of the same cause, from the features alone."""
        score = self.intercept + _weighted_sum(self.weights, pair)
        return 1 / (1 + math.exp(-max(-40.0, min(40.0, score))))


@cache
def likeness_model(file: Path | None = None) -> LikenessModel:
    """Load the model of the package, or of a file. Raises `OSError` or `ValidationError`."""
    shipped = files("counterpoint.developer.evidence").joinpath("likeness.json")
    return LikenessModel.model_validate_json(shipped.read_text() if file is None else file.read_text())


def likeness(value: float, circumstances: Circumstances, is_top_ranked: bool = True) -> float:
    """Return the probability of the same cause: `value` of the model, within the bounds of the circumstances.

    `is_top_ranked`: all failures ranked before it have the same message, or another code and so another cause.
    Otherwise the same message sets no minimum.
    """
    if circumstances.declared is not None:
        return CONFIRMED if circumstances.declared else REFUTED
    if circumstances.template and circumstances.job:
        return max(value, SAME_JOB_NO_CAUSE / circumstances.fixes if circumstances.generic else SAME_JOB_SAME_TEMPLATE)
    if circumstances.other_code:
        return min(value, OTHER_CODE)
    if circumstances.other_ending and not circumstances.report:
        return min(value, OTHER_ENDING)
    if circumstances.vague and not circumstances.report:
        return min(value, NO_CAUSE / circumstances.jobs if circumstances.template else NO_CAUSE)
    if is_top_ranked and (circumstances.report or (circumstances.template and not circumstances.generic)):
        return max(value, SAME_MESSAGE if circumstances.elsewhere else SAME_REPORT)
    return value


def reasons(pair: Resemblance, circumstances: Circumstances) -> tuple[str, ...]:
    """Return the reasons in words, strongest first, those against it last."""
    if circumstances.declared is not None:
        return ("a person declared them the same" if circumstances.declared else "a person declared them different",)
    texts, against = [], []
    if circumstances.report:
        texts.append("same report")
    if circumstances.template:
        texts.append("same message, but it names no cause" if circumstances.generic else "same error message")
    if circumstances.job:
        texts.append("same job")
    elif pair.system:
        texts.append("same system")
    if circumstances.code:
        texts.append(f"same code: {circumstances.code}")
    if circumstances.other_code:
        against.append("against: another error code")
    if circumstances.other_ending:
        against.append("against: the message ends in other words")
    if not circumstances.template and pair.error_coverage >= LIKELY:
        texts.append(f"shares {pair.error_coverage:.0%} of the error's rare words")
    if pair.coverage >= LIKELY:
        texts.append(f"shares {pair.coverage:.0%} of the report's rare words")
    if pair.cosine >= LIKELY or pair.error_cosine >= LIKELY:
        texts.append(f"similar in meaning ({max(pair.cosine, pair.error_cosine):.2f})")
    if not texts:
        texts.append(NOTHING_IN_COMMON)
    if REPLACED <= pair.replaced < 1 and not circumstances.other_ending:
        against.append(f"against: {pair.replaced:.0%} of the message is in other words")
    if pair.ruled_out:
        against.append("against: this report rules a cause out")
    return (*texts, *against)


def words_of_error(error: str | None) -> frozenset[str]:
    """Return the words and long numbers of an error message; identifiers also split at their humps."""
    return frozenset(_WORD.findall(_HUMP.sub(" ", error or "").lower()))


def shared_share(earlier: frozenset[str], current: frozenset[str]) -> float:
    """Return the share in [0, 1] of an earlier error's words that this one has; longer words weigh more."""
    total = math.fsum(map(word_weight, earlier))
    return math.fsum(map(word_weight, earlier & current)) / total if total else 0.0


def missing_weight(earlier: frozenset[str], current: frozenset[str]) -> float:
    """Return ln(1 + weight) of the words of an earlier error that this one lacks."""
    return log_weight(earlier - current)


def log_weight(words: frozenset[str]) -> float:
    """Return ln(1 + weight) of words."""
    return math.log1p(math.fsum(map(word_weight, words)))


def rules_out(report: str) -> bool:
    """Return whether a report rules out a usual cause by a concession."""
    return _RULES_OUT.search(report) is not None


def _weighted_sum(weights: Mapping[str, float], pair: Resemblance) -> float:
    return sum(weight * float(getattr(pair, name)) for name, weight in weights.items())
