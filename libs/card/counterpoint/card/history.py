"""Sections about earlier attempts: how similar they are, the fix in one line, and the other attempts."""

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from counterpoint.card.model import SHOWN_ROWS, CardSection, section
from counterpoint.proto.findings import NOTHING_IN_COMMON, SimilarAttempt
from counterpoint.proto.tasks import Task
from counterpoint.proto.words import quantity

RECOGNISED, SIMILAR, OFFERED = 0.7, 0.4, 0.3
"""Minimum likelihood of the same failure, of a similar one, and of one whose fix is offered."""
_SHARE, _VALUE = re.compile(r"\b\d+ ?% of"), re.compile(r" \(\d?\.\d+\)")
_FIX_CHARS, _TRIED_CHARS = 200, 160


def recognition(task: Task, verbose: bool) -> CardSection:
    """Return whether the failure is known, with the fix in one line. An empty search differs from no search."""
    return section("seen before", _seen(task, verbose))


def earlier_attempts(task: Task, verbose: bool) -> CardSection:
    """Return the earlier attempts without the fix in `recognition`, nearest first."""
    attempts = list(task.findings.similar_attempts) if task.findings else []
    fix = _fix(task)
    rest = attempts if verbose else [one for one in attempts if one != fix and not _below(one, OFFERED)]
    shown = rest if verbose else rest[:SHOWN_ROWS]
    more = [f"and {len(rest) - len(shown)} more"] if len(rest) > len(shown) else []
    return section("tried", [*(_tried(one, verbose) for one in shown), *more])


def is_offer(task: Task) -> bool:
    """Return whether the proposal comes from a failure that is only similar."""
    likelihood = task.findings.likelihood if task.findings else None
    return likelihood is not None and likelihood < RECOGNISED


def likelihood_words(likelihood: float) -> str:
    """Return the likelihood of the same failure in words."""
    if likelihood >= 0.9:
        return "almost certainly the same failure"
    if likelihood >= RECOGNISED:
        return "probably the same failure"
    if likelihood >= SIMILAR:
        return "similar, but may be a different failure"
    return "only slightly similar, probably a different failure"


def _seen(task: Task, verbose: bool) -> Iterator[str]:
    if task.findings is None:
        yield "not searched yet"
        return
    before = _before(task)
    here = [one for one in task.findings.similar_attempts if one not in before]
    if not before and task.shadow and task.override is None:
        yield f"not shown: incidents of this job are in shadow; see `counterpoint shadow --project {task.project}`"
    elif not before:
        yield "no: the search for earlier attempts found no similar one"
    elif not verbose and all(NOTHING_IN_COMMON in one.because for one in before):
        yield "no: the nearest earlier failures have few words in common with it, and another meaning"
    else:
        fix = _fix(task)
        nearest = fix or max(before, key=_band)
        yield _headline(before, nearest, verbose)
        yield from _fixed(task, fix) if fix else ["no attempt has helped yet"]
        if nearest.because:
            reasons = nearest.because if verbose else tuple(map(_without_numbers, nearest.because))
            yield f"{_because(nearest)}: {'; '.join(reasons)}"
    if here:
        yield f"tried in this task: {_outcomes(here)}"


def _headline(before: Sequence[SimilarAttempt], nearest: SimilarAttempt, verbose: bool) -> str:
    if _below(nearest, SIMILAR) and nearest.likelihood is not None:
        # Attempts below it are of several failures, so their number says nothing.
        return likelihood_words(nearest.likelihood) + (f" ({nearest.likelihood:.2f})" if verbose else "")
    alike = [one for one in before if _band(one) >= _band(nearest)]
    days = sorted({one.when.date() for one in alike})
    when = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
    summary = f"{quantity(len(alike), 'attempt')} {when}, {_each(alike)}"
    if nearest.likelihood is None:
        return summary
    number = f" ({nearest.likelihood:.2f})" if verbose else ""
    return f"{likelihood_words(nearest.likelihood)}{number}: {summary}"


def _fixed(task: Task, fix: SimilarAttempt) -> Iterator[str]:
    """Yield the fix in one line, and its reason and constraints if the proposal does not contain them."""
    proposed = _flat(task.result or task.proposal or "")
    led = "the fix then was" if _unsure(fix) else "fixed by"
    if led == "fixed by" and not fix.confirmed:
        led = "not confirmed by a trusted person:"
    if fix.evidence == "observed":
        led = "the job worked again after"
    yield f"{led} “{_line(fix.summary or fix.tried, _FIX_CHARS)}”, {_how(fix)}, {fix.when.date()}, {fix.by}"
    if _below(fix, OFFERED):
        return
    beside = [
        ("noted", fix.note),
        ("reason then", fix.reason),
        *(("condition then", constraint) for constraint in fix.constraints),
        *(("changed before the recovery", change) for change in fix.changed),
    ]
    for label, text in beside:
        if text and text != fix.tried and _flat(text) not in proposed:
            yield f"{label}: {_line(text, _FIX_CHARS)}"


def _without_numbers(reason: str) -> str:
    return _SHARE.sub("much of", _VALUE.sub("", reason))


def _because(attempt: SimilarAttempt) -> str:
    if _below(attempt, SIMILAR):
        return "in common"
    return "similar because" if _unsure(attempt) else "the same because"


def _band(attempt: SimilarAttempt) -> float:
    """Return the highest of the limits that the likelihood of an attempt reaches."""
    limits = (RECOGNISED, SIMILAR, OFFERED)
    return next((limit for limit in limits if not _below(attempt, limit)), 0.0)


def _unsure(attempt: SimilarAttempt) -> bool:
    return _below(attempt, RECOGNISED)


def _below(attempt: SimilarAttempt, likelihood: float) -> bool:
    return attempt.likelihood is not None and attempt.likelihood < likelihood


def _before(task: Task) -> list[SimilarAttempt]:
    """Return the attempts of other tasks: those with a likelihood, or from before this task."""
    attempts = task.findings.similar_attempts if task.findings else ()
    return [one for one in attempts if one.likelihood is not None or one.when < task.submitted_at]


def _fix(task: Task) -> SimilarAttempt | None:
    """Return the first attempt that helped, preferably the proposed one, then one that a person confirmed.

    One at a failure that is clearly less alike than the nearest is none: what has failed for that one is said instead.
    """
    before, cited = _before(task), _cited(task)
    top = max((_band(one) for one in before if one.likelihood is not None), default=0.0)
    helped = [one for one in before if one.outcome == "succeeded" and (one.id in cited or _band(one) >= top)]
    return min(helped, key=lambda one: (one.id not in cited, _unsure(one), not one.confirmed), default=None)


def _cited(task: Task) -> set[str]:
    """Return the ids of the attempts that the proposal cites."""
    return {each.id for each in task.findings.citations if each.store == "attempts"} if task.findings else set()


def _outcomes(attempts: Sequence[SimilarAttempt]) -> str:
    return f"{quantity(len(attempts), 'attempt')}, {_each(attempts)}"


def _each(attempts: Sequence[SimilarAttempt]) -> str:
    outcomes = Counter(
        "recovered without a confirmed cause"
        if one.outcome == "succeeded" and one.evidence == "observed"
        else one.outcome
        for one in attempts
    )
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())


def _how(attempt: SimilarAttempt) -> str:
    match attempt.outcome, attempt.evidence:
        case "unknown", _:
            return "no outcome yet"
        case "succeeded", "observed":
            return "succeeded (observed, not confirmed by a person)"
        case "superseded", "observed":
            return "not known to be the cause of the recovery"
        case "superseded", evidence:
            return f"not the cause of the recovery ({evidence})"
        case outcome, evidence:
            return f"{outcome} ({evidence})"


def _tried(attempt: SimilarAttempt, verbose: bool) -> str:
    limit = 2_000 if verbose else _TRIED_CHARS
    noted = attempt.note if attempt.note != attempt.tried else None
    note = f"; noted: {_line(noted, limit)}" if noted else ""
    alike = f", likelihood {attempt.likelihood:.2f}" if verbose and attempt.likelihood is not None else ""
    act = attempt.tried if verbose else attempt.summary or attempt.tried
    conditions = "".join(f"; condition then: {_line(each, limit)}" for each in attempt.constraints)
    return f"{attempt.when.date()}  {_how(attempt)}, {attempt.by}{alike}: “{_line(act, limit)}”{note}{conditions}"


def _line(text: str, limit: int) -> str:
    return textwrap.shorten(text, limit, placeholder=" …")


def _flat(text: str) -> str:
    return " ".join(" ".join(line.removeprefix(">") for line in text.split("\n")).split())
