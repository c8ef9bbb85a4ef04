"""Lessons: the acts of earlier attempts, ranked by likeness and outcome."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from counterpoint.developer.evidence.attempts import FINDINGS_LIMIT, EarlierAttempt, truncate
from counterpoint.developer.evidence.likeness import RECOGNISED, SAME_JOB_SAME_TEMPLATE
from counterpoint.developer.excerpts.passages import is_same_text

SIMILAR_SUCCESS_LIKENESS = 0.5
"""Minimum likeness of an earlier success that counts in the confidence score."""
OFFER_LIKELIHOOD = 0.24
"""Minimum likelihood of an offered act. Below it three of four earlier failures have another cause."""
UNCONFIRMED_MAX = 0.6
"""Maximum likelihood of an act without a trusted report of success."""

SUPERSEDED_SHARE = 0.8
"""Minimum share of the likeness of what an act fixed, for other acts that superseded it to come before it."""


@dataclass(frozen=True)
class Lesson:
    """An act and all attempts with it, newest first."""

    attempts: tuple[EarlierAttempt, ...]

    @property
    def text(self) -> str:
        """The act, in the words of the cited attempt."""
        return self.cited.attempt.tried

    @property
    def cited(self) -> EarlierAttempt:
        """The best attempt, which is cited."""
        return max(self.attempts, key=lambda one: (one.weight, one.item.seq))

    @property
    def weight(self) -> float:
        """The sum of the weights of its outcomes."""
        return sum(one.weight for one in self.attempts)

    @property
    def failures(self) -> tuple[EarlierAttempt, ...]:
        """Its failures for the same failure."""
        return tuple(one for one in self.attempts if one.attempt.outcome == "failed" and one.recognised)

    @property
    def successes(self) -> tuple[EarlierAttempt, ...]:
        """Its full and partial successes."""
        return tuple(one for one in self.attempts if one.attempt.outcome in ("succeeded", "partial"))

    @property
    def reliability(self) -> float:
        """Factor in (0, 1] for its failures: 1 if it never failed for this failure."""
        worked = len(self.successes) + 1
        return worked / (worked + len(self.failures))

    @property
    def used_in_task(self) -> bool:
        """Whether this task has tried it. A proposal that was replaced before its outcome was not tried."""
        return any(one.in_task and one.attempt.outcome != "unknown" for one in self.attempts)

    @property
    def likelihood(self) -> float:
        """The probability that it fixed the same failure: that of the best incident, or of several recognised ones
        combined."""
        incidents: dict[str, EarlierAttempt] = {}
        for one in self.successes:
            incidents.setdefault(one.incident, one)
        found = combined_likelihood([one.likeness for one in incidents.values() if not one.in_task])
        return found if self.confirmed else min(found, UNCONFIRMED_MAX)

    @property
    def recognised(self) -> bool:
        """Whether it worked for a failure that counts as the same."""
        return any(one.recognised for one in self.successes)

    @property
    def confirmed(self) -> bool:
        """Whether a trusted principal reported a success."""
        return any(one.confirmed for one in self.successes)

    @property
    def is_superseded(self) -> bool:
        """Whether trusted principals reported that something else had fixed it, for failures about as similar and as
        many as those that it fixed."""
        superseded = sum(one.likeness for one in self.attempts if one.confirmed and one.is_superseded)
        return superseded > 0 and superseded >= SUPERSEDED_SHARE * sum(one.likeness for one in self.proofs)

    @property
    def proofs(self) -> tuple[EarlierAttempt, ...]:
        """Its full successes that a trusted principal reported."""
        return tuple(one for one in self.successes if one.confirmed and one.attempt.outcome == "succeeded")

    @property
    def is_trusted(self) -> bool:
        """Whether it may be proposed: it does not rest on untrusted sources alone."""
        return any(one.item.integrity > 0 for one in self.successes)

    @property
    def offerable(self) -> bool:
        """Whether it may be offered: it worked more than it failed, and the failures are similar enough."""
        return self.weight > 0 and (self.recognised or self.likelihood >= OFFER_LIKELIHOOD)

    @property
    def retry_reason(self) -> str | None:
        """The reason to repeat an act that failed for this failure, if any."""
        if not self.failures or not self.successes:
            return None
        failed, worked = self.failures[0], self.successes[0]
        outcome, evidence = worked.attempt.outcome, worked.attempt.evidence
        return (
            f"failed for this error {times_in_words(len(self.failures))} (last {failed.day}), "
            f"but {outcome} {times_in_words(len(self.successes))} (last {worked.day}, {evidence})"
        )


def combined_likelihood(likelihoods: Sequence[float]) -> float:
    """Return the probability that at least one incident is the same failure: recognised ones are combined as
    independent, of others the highest counts."""
    recognised = [value for value in likelihoods if value >= RECOGNISED]
    if recognised:
        return round(1 - prod(1 - value for value in recognised), 4)
    return max(likelihoods, default=0.0)


def lessons(attempts: Sequence[EarlierAttempt]) -> tuple[Lesson, ...]:
    """Return the acts of attempts, which are ordered by likeness: first those that worked for this failure, then those
    that worked more than they failed, then those that were not superseded, then the most similar. Of acts that a
    trusted principal reported to have worked for the same error in the same job, the one that worked most often comes
    first, then the last one."""
    groups: list[list[EarlierAttempt]] = []
    for one in sorted(attempts, key=lambda one: -one.item.seq):
        for group in groups:
            if is_same_text(group[0].attempt.tried, one.attempt.tried):
                group.append(one)
                break
        else:
            groups.append([one])
    place = {one.item.id: n for n, one in enumerate(attempts)}

    def order(lesson: Lesson) -> tuple[bool, bool, bool, float, float, int]:
        first = min(place[one.item.id] for one in lesson.successes or lesson.attempts)
        certain = [one.item.seq for one in lesson.proofs if one.likeness >= SAME_JOB_SAME_TEMPLATE]
        likely = 1.0 if certain else round(lesson.likelihood, 2)
        last = -max(certain) if certain else first
        return not lesson.recognised, lesson.weight <= 0, lesson.is_superseded, -likely, -len(certain), last

    return tuple(sorted((Lesson(tuple(group)) for group in groups), key=order))


def warnings(lessons_ranked: Sequence[Lesson]) -> tuple[str, ...]:
    """Return warnings about acts that failed for this failure: their number if they are several, then each."""
    failed = [lesson for lesson in lessons_ranked if lesson.failures]
    if not failed:
        return ()
    count = sum(len(lesson.failures) for lesson in failed)
    each = tuple(
        f"failed {times_in_words(len(lesson.failures))} (last {lesson.failures[0].day}): {_quoted(lesson.failures[0])}"
        for lesson in failed[:FINDINGS_LIMIT]
    )
    return (f"attempts at this error have failed {times_in_words(count)}", *each) if len(failed) > 1 else each


def similar_success(attempts: Sequence[EarlierAttempt]) -> bool:
    """Return whether a similar task is reported to have succeeded, the fourth term of the confidence score. Untrusted
    reports and observed recoveries do not count."""
    return any(
        one.attempt.outcome == "succeeded"
        and one.attempt.evidence == "reported"
        and not one.in_task
        and one.item.integrity > 0
        and one.likeness >= SIMILAR_SUCCESS_LIKENESS
        for one in attempts
    )


def proven_fixes(attempts: Sequence[EarlierAttempt]) -> tuple[EarlierAttempt, ...]:
    """Return the best trusted success of each similar incident whose act worked more than it failed, with its likeness
    lowered by its failures. These count as sources, one per incident.
    """
    trusted = [one for one in attempts if one.trusted and not one.in_task and one.likeness >= SIMILAR_SUCCESS_LIKENESS]
    best: dict[str, EarlierAttempt] = {}
    for lesson in lessons(trusted):
        if lesson.weight <= 0:
            continue
        for one in lesson.successes:
            if one.attempt.outcome == "succeeded" and one.attempt.evidence == "reported":
                best.setdefault(one.incident, replace(one, likeness=one.likeness * lesson.reliability))
    return tuple(sorted(best.values(), key=lambda one: -one.likeness))


def fixed_errors(attempts: Sequence[EarlierAttempt]) -> tuple[tuple[str, str], ...]:
    """Return the errors of other tasks, each with an act that a trusted principal reported to have fixed it."""
    return tuple(
        (one.attempt.error_message or one.attempt.description, one.attempt.tried)
        for one in attempts
        if one.trusted and not one.in_task and one.attempt.outcome == "succeeded" and one.attempt.evidence == "reported"
    )


def times_in_words(count: int) -> str:
    """Return a count in words."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _quoted(one: EarlierAttempt) -> str:
    error = one.attempt.outcome_error
    return f"“{_line(one.attempt.summary or one.attempt.tried)}”" + (f", then “{_line(error)}”" if error else "")


def _line(text: str) -> str:
    return truncate(" ".join(text.split()), 500)
