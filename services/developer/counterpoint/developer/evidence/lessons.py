"""Lessons: the acts behind earlier attempts, ranked by how alike the failures are and how the acts went."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from counterpoint.developer.evidence.attempts import SHOWN, EarlierAttempt, shortened
from counterpoint.developer.evidence.likeness import RECOGNISED
from counterpoint.developer.excerpts.passages import same

COUNTED = 0.5
"""Likeness from which an earlier success is a source of the confidence score."""
OFFERED = 0.3
"""Likelihood from which an act is offered: below it the earlier failure is another one in four cases of five."""
UNCONFIRMED = 0.6
"""Most likelihood of an act that nobody trusted has reported to have worked."""


@dataclass(frozen=True)
class Lesson:
    """One act and every attempt at it, newest first: the same act tried twice is one lesson."""

    attempts: tuple[EarlierAttempt, ...]

    @property
    def text(self) -> str:
        """The act, in the words of the attempt that is cited for it."""
        return self.cited.attempt.tried

    @property
    def cited(self) -> EarlierAttempt:
        """The attempt that speaks most for it."""
        return max(self.attempts, key=lambda one: (one.worth, one.item.seq))

    @property
    def worth(self) -> float:
        """All its outcomes together."""
        return sum(one.worth for one in self.attempts)

    @property
    def failures(self) -> tuple[EarlierAttempt, ...]:
        """Its failures for this very failure."""
        return tuple(one for one in self.attempts if one.attempt.outcome == "failed" and one.recognised)

    @property
    def successes(self) -> tuple[EarlierAttempt, ...]:
        """The times it worked, wholly or in part."""
        return tuple(one for one in self.attempts if one.attempt.outcome in ("succeeded", "partial"))

    @property
    def reliability(self) -> float:
        """Share in (0, 1] by which its failures lower it: 1 where it never failed for this failure."""
        worked = len(self.successes) + 1
        return worked / (worked + len(self.failures))

    @property
    def used_here(self) -> bool:
        """Whether this task has tried it already."""
        return any(one.here for one in self.attempts)

    @property
    def likelihood(self) -> float:
        """The probability that it worked for the same failure: that of the best incident, or, of several recognised
        ones, that not all of them are another failure."""
        incidents: dict[str, EarlierAttempt] = {}
        for one in self.successes:
            incidents.setdefault(one.incident, one)
        found = combined_likelihood([one.likeness for one in incidents.values() if not one.here])
        return found if self.confirmed else min(found, UNCONFIRMED)

    @property
    def recognised(self) -> bool:
        """Whether it worked for a failure that counts as the same one."""
        return any(one.recognised for one in self.successes)

    @property
    def confirmed(self) -> bool:
        """Whether somebody trusted has reported that it worked."""
        return any(one.trusted and one.attempt.evidence == "reported" for one in self.successes)

    @property
    def vouched(self) -> bool:
        """Whether it may be proposed at all: not on the word of an untrusted source alone."""
        return any(one.item.integrity > 0 for one in self.successes)

    @property
    def offerable(self) -> bool:
        """Whether it is worth trying: it worked on balance, and the failures are alike enough."""
        return self.worth > 0 and (self.recognised or self.likelihood >= OFFERED)

    @property
    def again(self) -> str | None:
        """The reason for doing again what has failed for this failure; None when there is none."""
        if not self.failures or not self.successes:
            return None
        failed, worked = self.failures[0], self.successes[0]
        outcome, evidence = worked.attempt.outcome, worked.attempt.evidence
        return (
            f"failed for this error {times(len(self.failures))} (last {failed.when}), "
            f"but {outcome} {times(len(self.successes))} (last {worked.when}, {evidence})"
        )


def combined_likelihood(likelihoods: Sequence[float]) -> float:
    """The probability that one incident at least is the same failure: of recognised ones, which are independent
    witnesses, that not all are mistaken; of others the highest."""
    recognised = [value for value in likelihoods if value >= RECOGNISED]
    if recognised:
        return round(1 - prod(1 - value for value in recognised), 4)
    return max(likelihoods, default=0.0)


def lessons(tried: Sequence[EarlierAttempt]) -> tuple[Lesson, ...]:
    """The acts behind some attempts, which come in the order of their likeness: those that worked for this very
    failure first, then those that worked more than they failed, then the most alike."""
    groups: list[list[EarlierAttempt]] = []
    for one in sorted(tried, key=lambda one: -one.item.seq):
        for group in groups:
            if same(group[0].attempt.tried, one.attempt.tried):
                group.append(one)
                break
        else:
            groups.append([one])
    place = {one.item.id: n for n, one in enumerate(tried)}

    def order(lesson: Lesson) -> tuple[bool, bool, float, int]:
        first = min(place[one.item.id] for one in lesson.successes or lesson.attempts)
        return not lesson.recognised, lesson.worth <= 0, -round(lesson.likelihood, 2), first

    return tuple(sorted((Lesson(tuple(group)) for group in groups), key=order))


def warnings(known: Sequence[Lesson]) -> tuple[str, ...]:
    """The acts that have failed for this failure: how often in all, then each with the error it ended in."""
    failed = [lesson for lesson in known if lesson.failures]
    if not failed:
        return ()
    count = sum(len(lesson.failures) for lesson in failed)
    each = (
        f"failed {times(len(lesson.failures))} (last {lesson.failures[0].when}): {_quoted(lesson.failures[0])}"
        for lesson in failed[:SHOWN]
    )
    return (f"attempts at this error have failed {times(count)}", *each)


def similar_success(tried: Sequence[EarlierAttempt]) -> bool:
    """Whether another task like this one is reported to have succeeded: the fourth term of the confidence score.
    Untrusted memory does not count, nor does a recovery that was only observed."""
    return any(
        one.attempt.outcome == "succeeded"
        and one.attempt.evidence == "reported"
        and not one.here
        and one.item.integrity > 0
        and one.likeness >= COUNTED
        for one in tried
    )


def proven_fixes(tried: Sequence[EarlierAttempt]) -> tuple[EarlierAttempt, ...]:
    """Best success that a trusted principal reported for each earlier incident that is alike enough, if the act
    worked more than it failed, its likeness lowered by its failures. These are sources like trusted documents; several
    attempts at one incident are one.
    """
    trusted = [one for one in tried if one.trusted and not one.here and one.likeness >= COUNTED]
    best: dict[str, EarlierAttempt] = {}
    for lesson in lessons(trusted):
        if lesson.worth <= 0:
            continue
        for one in lesson.successes:
            if one.attempt.outcome == "succeeded" and one.attempt.evidence == "reported":
                best.setdefault(one.incident, replace(one, likeness=one.likeness * lesson.reliability))
    return tuple(sorted(best.values(), key=lambda one: -one.likeness))


def times(count: int) -> str:
    """A count in words."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _quoted(one: EarlierAttempt) -> str:
    error = one.attempt.outcome_error
    return f"“{_line(one.attempt.summary or one.attempt.tried)}”" + (f", then “{_line(error)}”" if error else "")


def _line(text: str) -> str:
    return shortened(" ".join(text.split()), 500)
