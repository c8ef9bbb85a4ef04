"""Attempts: earlier tries at the same or a similar failure, by how alike the failures are and how they went."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log1p

from counterpoint.client import readable
from counterpoint.developer.evidence.failure import Failure, failure_of_attempt
from counterpoint.developer.evidence.likeness import (
    RECOGNISED,
    SAME_REPORT_COSINE,
    SAME_REPORT_COVERAGE,
    Circumstances,
    LikenessModel,
    Resemblance,
    because,
    likeness,
    missing,
    shared,
)
from counterpoint.developer.excerpts.relevance import TRUSTED
from counterpoint.proto.attempts import SUPERSEDED, Attempt
from counterpoint.proto.decisions import Source
from counterpoint.proto.findings import SimilarAttempt
from counterpoint.proto.links import Link, Side
from counterpoint.proto.memory import Item

SHOWN = 10
OFFERED = 5
"""Incidents below the likeness of the same failure that are looked at, the most alike first."""
A_HUNDRED = 4.2
"""Worth of a word that one of a hundred records has."""
LEAST = 0.05
"""Likeness below which an earlier failure is not worth a look."""
NO_OUTCOME = frozenset({"unknown", SUPERSEDED})
VOUCHING = frozenset({"person", "system"})
"""Kinds of principal whose report of an outcome is trusted, whatever opened the incident."""

_WORTH = {
    ("succeeded", "reported"): 4.0,
    ("partial", "reported"): 1.0,
    ("succeeded", "observed"): 0.5,
    ("partial", "observed"): 0.25,
    ("failed", "observed"): -2.0,
    ("failed", "reported"): -4.0,
}
"""The weight of an outcome for (or against) doing the same again. An observed recovery confirms nothing."""


@dataclass(frozen=True)
class EarlierAttempt:
    """An earlier attempt. `likeness`: the probability that its failure had the same cause, `because` the reasons;
    `here`: it belongs to this task."""

    item: Item
    attempt: Attempt
    failure: Failure
    likeness: float
    because: tuple[str, ...] = ()
    here: bool = False

    @property
    def recognised(self) -> bool:
        """Whether its failure counts as the same one."""
        return self.here or self.likeness >= RECOGNISED

    @property
    def incident(self) -> str:
        """The incident it was made at."""
        return incident_of(self.attempt, self.failure)

    @property
    def worth(self) -> float:
        """The weight of its outcome, as far as the failures are alike."""
        said = _WORTH.get((self.attempt.outcome, self.attempt.evidence), 0.0)
        return said if self.recognised else said * self.likeness

    @property
    def trusted(self) -> bool:
        """Whether its outcome may carry a decision: by who reported it, and never if it cites what is untrusted."""
        if self.item.integrity >= TRUSTED:
            return True
        return self.item.integrity > 0 and self.attempt.evidence == "reported" and self.attempt.by_kind in VOUCHING

    @property
    def when(self) -> str:
        """The day its outcome became known, or it was made."""
        return (self.attempt.decided_at or self.attempt.at).date().isoformat()

    @property
    def who(self) -> str:
        """The author of the idea."""
        return self.attempt.override_by or self.attempt.by

    @property
    def basis(self) -> Source:
        """The attempt as the source of a decision."""
        return Source(store=self.item.store, id=self.item.id, version=self.item.version, score=round(self.likeness, 4))


@dataclass(frozen=True)
class AttemptResults:
    """The answers of memory about earlier attempts: found by the whole report, by its error alone, or listed by task,
    signature and job; and the pairs of tasks that people declared the same or different."""

    by_report: Sequence[Item] = ()
    by_error: Sequence[Item] = ()
    listed: Sequence[Item] = ()
    links: Sequence[Link] = ()


def rank_attempts(
    now: Failure, task_id: str, memory: AttemptResults, model: LikenessModel
) -> tuple[EarlierAttempt, ...]:
    """The attempts worth knowing, by the likeness of their incidents and then by how they went.

    Those of this task, of all recognised incidents, and of the `OFFERED` most alike of the others. Attempts without an
    outcome count only within their own task, and those that were shown to nobody count nowhere.
    """
    pairs = _pairs(now, task_id, memory)
    incidents: dict[str, list[_Pair]] = {}
    for pair in pairs:
        incidents.setdefault(pair.incident, []).append(pair)
    judged = _likenesses(incidents, model)
    known = {name for name, each in incidents.items() if any(pair.counts for pair in each)}
    ranked = sorted((name for name in judged if name in known), key=lambda name: -judged[name][0])
    offered = [name for name in ranked if LEAST <= judged[name][0] < RECOGNISED][:OFFERED]
    shown = {name for name in ranked if judged[name][0] >= RECOGNISED} | set(offered)
    tried = [
        EarlierAttempt(
            pair.item, pair.attempt, pair.failure, *(judged[pair.incident] if not pair.here else (1.0, ())), pair.here
        )
        for pair in pairs
        if pair.here or (pair.counts and pair.incident in shown)
    ]
    place = {name: n for n, name in enumerate(ranked)}

    def order(one: EarlierAttempt) -> tuple[float, float, int, float, int]:
        """Order by likeness; recognised ones then by outcome, others by the order of the model."""
        outcome = -one.worth if one.recognised else 0.0
        return -one.likeness, outcome, place.get(one.incident, 0), -one.worth, -one.item.seq

    return tuple(sorted(tried, key=order))


def _likenesses(
    incidents: Mapping[str, Sequence["_Pair"]], model: LikenessModel
) -> dict[str, tuple[float, tuple[str, ...]]]:
    """The likeness of each incident and the reasons, in the order of the model: that of its best attempt, never above
    that of an incident which the model orders before it unless the circumstances say more."""
    best = {name: max(each, key=lambda pair: model.order(pair.resemblance)) for name, each in incidents.items()}
    judged: dict[str, tuple[float, tuple[str, ...]]] = {}
    most, first = 1.0, True
    for name in sorted(best, key=lambda name: -model.order(best[name].resemblance)):
        pair = best[name]
        if not pair.here:
            most = min(most, model.at(pair.resemblance))
        circumstances = max(
            (each.circumstances for each in incidents[name]), key=lambda each: each.declared is not None
        )
        first = first and (circumstances.template or circumstances.report)
        value = likeness(most, circumstances, first=first)
        judged[name] = round(value, 4), because(pair.resemblance, circumstances)
    return judged


def similar_attempts(tried: Sequence[EarlierAttempt], limit: int = SHOWN) -> tuple[SimilarAttempt, ...]:
    """The attempts as findings show them, without those of this task that still wait for their outcome."""
    return tuple(
        SimilarAttempt(
            id=one.attempt.attempt_id,
            when=one.attempt.decided_at or one.attempt.at,
            tried=shortened(one.attempt.tried),
            summary=one.attempt.summary,
            outcome=one.attempt.outcome,
            note=shortened(one.attempt.note) if one.attempt.note else None,
            evidence=one.attempt.evidence,
            by=one.who,
            reason=one.attempt.reason,
            constraints=one.attempt.constraints,
            changed=one.attempt.changed,
            score=round(one.likeness, 4),
            likelihood=round(one.likeness, 4),
            because=one.because,
        )
        for one in tried
        if one.attempt.outcome not in NO_OUTCOME
    )[:limit]


def shortened(text: str, limit: int = 2_000) -> str:
    """The beginning of a text that is too long to be shown whole."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


@dataclass(frozen=True)
class _Pair:
    """An earlier attempt and how its failure compares with this one."""

    item: Item
    attempt: Attempt
    failure: Failure
    resemblance: Resemblance
    circumstances: Circumstances
    here: bool

    @property
    def incident(self) -> str:
        return incident_of(self.attempt, self.failure)

    @property
    def counts(self) -> bool:
        """Whether another task may know of it."""
        return self.attempt.outcome not in NO_OUTCOME and not self.attempt.shadow


def _pairs(now: Failure, task_id: str, memory: AttemptResults) -> list[_Pair]:
    by_report, by_error = ({item.id: item for item in found} for found in (memory.by_report, memory.by_error))
    pairs = []
    items = {item.id: item for item in (*memory.listed, *memory.by_error, *memory.by_report)}.values()
    for item, attempt in readable(items, Attempt):
        earlier = failure_of_attempt(attempt)
        found = resemblance(earlier, now, _scores(by_report.get(item.id)), _scores(by_error.get(item.id)))
        circumstances = Circumstances(
            report=found.coverage >= SAME_REPORT_COVERAGE and found.cosine >= SAME_REPORT_COSINE,
            template=earlier.same_template(now),
            generic=now.generic,
            job=earlier.same_job(now),
            elsewhere=earlier.elsewhere(now),
            code=earlier.common_code(now),
            declared=declared_same(memory.links, task_id, now, attempt),
        )
        pairs.append(_Pair(item, attempt, earlier, found, circumstances, attempt.task_id == task_id))
    return _weighed(pairs) if now.generic else pairs


def _weighed(pairs: Sequence[_Pair]) -> list[_Pair]:
    """The same with how many jobs had a message that names no cause, and how many acts put it right at the same one."""
    alike = [pair for pair in pairs if pair.circumstances.template and pair.counts]
    jobs = {pair.failure.job for pair in alike if pair.failure.job is not None}
    fixes = {
        " ".join(pair.attempt.tried.split()).casefold()
        for pair in alike
        if pair.circumstances.job and pair.attempt.outcome == "succeeded"
    }
    had, acts = max(1, len(jobs)), max(1, len(fixes))
    return [replace(pair, circumstances=replace(pair.circumstances, jobs=had, fixes=acts)) for pair in pairs]


def incident_of(attempt: Attempt, failure: Failure) -> str:
    """The incident that an attempt was made at: its task, or the report that a past incident shares with others."""
    return attempt.task_id if attempt.source is None else f"{attempt.source}\x1f{failure.text}"


def resemblance(
    earlier: Failure, now: Failure, by_report: Mapping[str, float], by_error: Mapping[str, float]
) -> Resemblance:
    """The features of a pair of failures, from the scores of the two searches that found the earlier one."""
    return Resemblance(
        coverage=by_report.get("coverage", 0.0),
        lexical=_in_words(by_report),
        cosine=by_report.get("cosine", 0.0),
        error_coverage=by_error.get("coverage", 0.0),
        error_lexical=_in_words(by_error),
        error_cosine=by_error.get("cosine", 0.0),
        error_shared=shared(earlier.error_words, now.error_words),
        system=float(earlier.same_system(now)),
        no_error=float(now.error is None),
        error_missing=missing(earlier.error_words, now.error_words) if now.error is not None else 0.0,
        ruled_out=float(now.rules_out),
    )


def declared_same(links: Sequence[Link], task_id: str, now: Failure, attempt: Attempt) -> bool | None:
    """Whether a person declared this failure and the one of `attempt` the same or different; None where nobody did.

    This task is a side of a pair by its id, or by its signature and job; a side that fits by signature alone counts
    where the other does not.
    """
    for link in sorted(links, key=lambda link: link.at, reverse=True):
        first, second = link.pair
        for mine, other in ((first, second), (second, first)):
            if _is_other(other, attempt) and _is_mine(mine, other, task_id, now):
                return link.relation != "different"
    return None


def _is_mine(side: Side, other: Side, task_id: str, now: Failure) -> bool:
    if side.task_id == task_id:
        return True
    if now.digest is None or side.error_signature != now.digest or other.task_id == task_id:
        return False
    if now.generic or other.error_signature == now.digest:
        return side.job is not None and side.job == now.job
    return True


def _is_other(side: Side, attempt: Attempt) -> bool:
    return attempt.attempt_id == side.attempt_id or attempt.task_id == side.task_id


def _in_words(scores: Mapping[str, float]) -> float:
    """ln(1 + BM25), as it would be in a memory of a hundred records: rare words are worth more in a larger one."""
    return log1p(max(0.0, scores.get("lexical", 0.0)) * A_HUNDRED / (scores.get("rarest") or A_HUNDRED))


def _scores(item: Item | None) -> Mapping[str, float]:
    return (item.scores or {}) if item is not None else {}
