"""Earlier attempts at the same or a similar failure, ranked by likeness and outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log1p

from counterpoint.client import readable
from counterpoint.developer.evidence.alignment import align
from counterpoint.developer.evidence.declarations import declared_same
from counterpoint.developer.evidence.failure import Failure, failure_of_attempt
from counterpoint.developer.evidence.likeness import (
    RECOGNISED,
    REFUTED,
    SAME_REPORT_COSINE,
    SAME_REPORT_COVERAGE,
    Circumstances,
    LikenessModel,
    Resemblance,
    likeness,
    log_weight,
    missing_weight,
    reasons,
    shared_share,
)
from counterpoint.developer.excerpts.relevance import TRUSTED
from counterpoint.proto.attempts import SUPERSEDED, Attempt
from counterpoint.proto.decisions import Source
from counterpoint.proto.findings import SimilarAttempt
from counterpoint.proto.links import Link
from counterpoint.proto.memory import Item

FINDINGS_LIMIT = 10
SIMILAR_LIMIT = 5
"""Maximum number of incidents that are only similar, the most similar first."""
IDF_ONE_IN_HUNDRED = 4.2
"""Inverse document frequency of a word in one of a hundred records."""
LIKENESS_MIN = 0.05
"""Minimum likeness of an earlier failure without a code in common."""
NO_OUTCOME = frozenset({"unknown", SUPERSEDED})
TRUSTED_REPORTERS = frozenset({"person", "system"})
"""Kinds of principals whose outcome reports are trusted."""

_OUTCOME_WEIGHTS = {
    ("succeeded", "reported"): 4.0,
    ("partial", "reported"): 1.0,
    ("succeeded", "observed"): 0.5,
    ("partial", "observed"): 0.25,
    ("failed", "observed"): -2.0,
    ("failed", "reported"): -4.0,
}
"""Weight of an outcome for (or against) repeating the act. An observed recovery has no weight."""


@dataclass(frozen=True)
class EarlierAttempt:
    """An earlier attempt. `likeness`: the probability that its failure has the same cause, with `reasons`. `in_task`:
    it belongs to this task."""

    item: Item
    attempt: Attempt
    failure: Failure
    likeness: float
    reasons: tuple[str, ...] = ()
    in_task: bool = False

    @property
    def recognised(self) -> bool:
        """Whether its failure counts as the same."""
        return self.in_task or self.likeness >= RECOGNISED

    @property
    def incident(self) -> str:
        """The incident of the attempt."""
        return incident_of(self.attempt, self.failure)

    @property
    def weight(self) -> float:
        """The weight of its outcome, multiplied by the likeness."""
        outcome_weight = _OUTCOME_WEIGHTS.get((self.attempt.outcome, self.attempt.evidence), 0.0)
        return outcome_weight if self.recognised else outcome_weight * self.likeness

    @property
    def trusted(self) -> bool:
        """Whether a decision may rest on its outcome: its reporter is trusted, and it cites nothing untrusted."""
        if self.item.integrity >= TRUSTED:
            return True
        return (
            self.item.integrity > 0
            and self.attempt.evidence == "reported"
            and self.attempt.by_kind in TRUSTED_REPORTERS
        )

    @property
    def confirmed(self) -> bool:
        """Whether a trusted principal reported its outcome."""
        return self.trusted and self.attempt.evidence == "reported"

    @property
    def is_superseded(self) -> bool:
        """Whether something else is reported to have ended its failure."""
        return self.attempt.outcome == SUPERSEDED and self.attempt.fixed_by != "nothing"

    @property
    def day(self) -> str:
        """The day of its outcome, else of the attempt."""
        return (self.attempt.decided_at or self.attempt.at).date().isoformat()

    @property
    def author(self) -> str:
        """The author of the act."""
        return self.attempt.override_by or self.attempt.by

    @property
    def as_source(self) -> Source:
        """The attempt as a source of a decision."""
        return Source(store=self.item.store, id=self.item.id, version=self.item.version, score=round(self.likeness, 4))


@dataclass(frozen=True)
class AttemptResults:
    """Query results about earlier attempts: found by the report, found by its error, listed by task, signature and job;
    and the links between tasks."""

    by_report: Sequence[Item] = ()
    by_error: Sequence[Item] = ()
    listed: Sequence[Item] = ()
    links: Sequence[Link] = ()


def rank_attempts(
    current: Failure, task_id: str, memory: AttemptResults, model: LikenessModel
) -> tuple[EarlierAttempt, ...]:
    """Return the relevant attempts, ordered by the likeness of their incidents, then by outcome.

    These are the attempts of this task, of all recognised incidents, and of the `SIMILAR_LIMIT` most similar others.
    Attempts without an outcome count only in their own task, those that another act superseded besides that act, and
    proposals in shadow mode never.
    """
    pairs = _pairs(current, task_id, memory)
    incidents: dict[str, list[_Pair]] = {}
    for pair in pairs:
        incidents.setdefault(pair.incident, []).append(pair)
    likeness_by_incident = _likenesses(incidents, model)
    known = {name for name, each in incidents.items() if any(pair.is_shared for pair in each)}
    ranked = sorted(
        (name for name in likeness_by_incident if name in known), key=lambda name: -likeness_by_incident[name][0]
    )
    recognised = {name for name in ranked if likeness_by_incident[name][0] >= RECOGNISED}
    least = {name: REFUTED if _share_code(incidents[name]) else LIKENESS_MIN for name in ranked}
    similar = [name for name in ranked if least[name] < likeness_by_incident[name][0] < RECOGNISED][:SIMILAR_LIMIT]
    shown = recognised.union(similar)
    attempts = [
        EarlierAttempt(
            pair.item,
            pair.attempt,
            pair.failure,
            *(likeness_by_incident[pair.incident] if not pair.in_task else (1.0, ())),
            pair.in_task,
        )
        for pair in pairs
        if pair.in_task or (pair.incident in shown and pair.has_outcome)
    ]
    place = {name: n for n, name in enumerate(ranked)}

    def order(one: EarlierAttempt) -> tuple[float, float, int, float, int]:
        """Return the sort key: likeness, to a tenth for recognised incidents, then their outcome; for others the rank
        of the model."""
        alike, outcome = (round(one.likeness, 1), -one.weight) if one.recognised else (one.likeness, 0.0)
        return -alike, outcome, place.get(one.incident, 0), -one.weight, -one.item.seq

    return tuple(sorted(attempts, key=order))


def _share_code(pairs: Sequence["_Pair"]) -> bool:
    return any(pair.circumstances.code is not None for pair in pairs)


def _likenesses(
    incidents: Mapping[str, Sequence["_Pair"]], model: LikenessModel
) -> dict[str, tuple[float, tuple[str, ...]]]:
    """Return likeness and reasons of each incident, in the order of the model.

    The likeness is that of the best attempt, at most that of the incident ranked before it, within the bounds of the
    circumstances."""
    best = {name: max(each, key=lambda pair: model.order(pair.resemblance)) for name, each in incidents.items()}
    likeness_by_incident: dict[str, tuple[float, tuple[str, ...]]] = {}
    most, is_top_ranked = 1.0, True
    for name in sorted(best, key=lambda name: -model.order(best[name].resemblance)):
        pair = best[name]
        if not pair.in_task:
            most = min(most, model.probability(pair.resemblance))
        circumstances = max(
            (each.circumstances for each in incidents[name]), key=lambda each: each.declared is not None
        )
        same = circumstances.template or circumstances.report
        is_top_ranked = is_top_ranked and (same or circumstances.other_code)
        value = likeness(most, circumstances, is_top_ranked=is_top_ranked)
        likeness_by_incident[name] = round(value, 4), reasons(pair.resemblance, circumstances)
    return likeness_by_incident


def similar_attempts(attempts: Sequence[EarlierAttempt], limit: int = FINDINGS_LIMIT) -> tuple[SimilarAttempt, ...]:
    """Return the attempts for the findings, without those that wait for their outcome; of this task without a
    likelihood."""
    return tuple(
        SimilarAttempt(
            id=one.attempt.attempt_id,
            when=one.attempt.decided_at or one.attempt.at,
            tried=truncate(one.attempt.tried),
            summary=one.attempt.summary,
            outcome=one.attempt.outcome,
            note=truncate(one.attempt.note) if one.attempt.note else None,
            evidence=one.attempt.evidence,
            confirmed=one.confirmed,
            by=one.author,
            reason=one.attempt.reason,
            constraints=one.attempt.constraints,
            changed=one.attempt.changed,
            score=round(one.likeness, 4),
            likelihood=None if one.in_task else round(one.likeness, 4),
            because=one.reasons,
        )
        for one in attempts
        if one.attempt.outcome not in NO_OUTCOME
    )[:limit]


def truncate(text: str, limit: int = 2_000) -> str:
    """Return a text, cut at the limit."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


@dataclass(frozen=True)
class _Pair:
    """An earlier attempt and the comparison of its failure with this one."""

    item: Item
    attempt: Attempt
    failure: Failure
    resemblance: Resemblance
    circumstances: Circumstances
    in_task: bool

    @property
    def incident(self) -> str:
        return incident_of(self.attempt, self.failure)

    @property
    def has_outcome(self) -> bool:
        """Whether its act was proposed, and it is known whether that ended the failure."""
        return self.attempt.outcome != "unknown" and not self.attempt.shadow

    @property
    def is_shared(self) -> bool:
        """Whether it counts for other tasks."""
        return self.has_outcome and self.attempt.outcome != SUPERSEDED


def _pairs(current: Failure, task_id: str, memory: AttemptResults) -> list[_Pair]:
    by_report, by_error = ({item.id: item for item in found} for found in (memory.by_report, memory.by_error))
    pairs = []
    items = {item.id: item for item in (*memory.listed, *memory.by_error, *memory.by_report)}.values()
    for item, attempt in readable(items, Attempt):
        earlier = failure_of_attempt(attempt)
        found = resemblance(earlier, current, _scores(by_report.get(item.id)), _scores(by_error.get(item.id)))
        circumstances = Circumstances(
            report=found.coverage >= SAME_REPORT_COVERAGE and found.cosine >= SAME_REPORT_COSINE,
            template=earlier.same_template(current),
            generic=current.generic,
            vague=current.vague or earlier.vague,
            other_code=earlier.other_code(current),
            other_ending=earlier.other_ending(current),
            job=earlier.same_job(current),
            elsewhere=earlier.elsewhere(current),
            code=earlier.common_code(current),
            declared=declared_same(memory.links, task_id, current, attempt),
        )
        pairs.append(_Pair(item, attempt, earlier, found, circumstances, attempt.task_id == task_id))
    return _with_template_counts(pairs) if current.generic else pairs


def _with_template_counts(pairs: Sequence[_Pair]) -> list[_Pair]:
    """Return the pairs with counts for a template without a cause: the jobs that had it, and the acts that fixed it at
    the same job."""
    alike = [pair for pair in pairs if pair.circumstances.template and pair.is_shared]
    jobs = {pair.failure.job for pair in alike if pair.failure.job is not None}
    fixes = {
        " ".join(pair.attempt.tried.split()).casefold()
        for pair in alike
        if pair.circumstances.job and pair.attempt.outcome == "succeeded"
    }
    had, acts = max(1, len(jobs)), max(1, len(fixes))
    return [replace(pair, circumstances=replace(pair.circumstances, jobs=had, fixes=acts)) for pair in pairs]


def incident_of(attempt: Attempt, failure: Failure) -> str:
    """Return the incident of an attempt: its task, or for an imported one its source and report."""
    return attempt.task_id if attempt.source is None else f"{attempt.source}\x1f{failure.text}"


def resemblance(
    earlier: Failure, current: Failure, by_report: Mapping[str, float], by_error: Mapping[str, float]
) -> Resemblance:
    """Return the features of a pair of failures, from the scores of the two searches."""
    message = align(earlier.content, current.content)
    return Resemblance(
        coverage=by_report.get("coverage", 0.0),
        lexical=_log_bm25(by_report),
        cosine=by_report.get("cosine", 0.0),
        error_coverage=by_error.get("coverage", 0.0),
        error_lexical=_log_bm25(by_error),
        error_cosine=by_error.get("cosine", 0.0),
        error_shared=shared_share(earlier.error_words, current.error_words),
        system=float(earlier.same_system(current)),
        no_error=float(current.error is None),
        error_missing=missing_weight(earlier.error_words, current.error_words) if current.error is not None else 0.0,
        ruled_out=float(current.rules_out),
        replaced=message.replaced_share,
        added=message.added_weight,
        repeated=log_weight(current.repeated_words(earlier)),
    )


def _log_bm25(scores: Mapping[str, float]) -> float:
    """Return ln(1 + BM25), scaled to a memory of a hundred records, since idf grows with the number of records."""
    return log1p(
        max(0.0, scores.get("lexical", 0.0)) * IDF_ONE_IN_HUNDRED / (scores.get("rarest") or IDF_ONE_IN_HUNDRED)
    )


def _scores(item: Item | None) -> Mapping[str, float]:
    return (item.scores or {}) if item is not None else {}
