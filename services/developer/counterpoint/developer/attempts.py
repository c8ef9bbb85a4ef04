"""Attempts: what was tried before for the same or a similar failure, ranked by how it went (row A8)."""

from collections.abc import Sequence
from dataclasses import dataclass

from counterpoint.developer.passages import same
from counterpoint.developer.relevance import TRUSTED, Curve, signs_of
from counterpoint.developer.words import content_words, coverage, weights
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.decisions import Source
from counterpoint.proto.findings import SimilarAttempt
from counterpoint.proto.memory import Item

SHOWN = 10

_WORTH = {
    ("succeeded", "reported"): 4.0,
    ("succeeded", "observed"): 2.0,
    ("partial", "reported"): 1.0,
    ("partial", "observed"): 0.5,
    ("failed", "observed"): -2.0,
    ("failed", "reported"): -4.0,
}
"""What an outcome says for (or against) doing the same again: what was reported weighs more than what was observed."""


@dataclass(frozen=True)
class Tried:
    """An earlier attempt. `same_failure`: its error has the signature of this one; `here`: it belongs to this task."""

    item: Item
    attempt: Attempt
    same_failure: bool
    here: bool
    relevance: float

    @property
    def worth(self) -> float:
        """How much its outcome speaks for doing the same now; similar failures count by their relevance."""
        said = _WORTH.get((self.attempt.outcome, self.attempt.evidence), 0.0)
        return said if self.same_failure or self.here else said * self.relevance

    @property
    def when(self) -> str:
        """The day its outcome became known, or it was made."""
        return (self.attempt.decided_at or self.attempt.at).date().isoformat()

    @property
    def who(self) -> str:
        """Whose idea it was."""
        return self.attempt.override_by or self.attempt.by

    @property
    def basis(self) -> Source:
        """The attempt as the source of a decision."""
        return Source(store=self.item.store, id=self.item.id, version=self.item.version, score=round(self.relevance, 4))


def recall(
    query: str, task_id: str, digest: str | None, searched: Sequence[Item], listed: Sequence[Item], curve: Curve
) -> tuple[Tried, ...]:
    """The attempts worth knowing, best first: those of this task and of this error signature, and what the search
    found that is relevant enough. Attempts without an outcome count only within their own task."""
    shown = {item.id: content_words(_text(item)) for item in searched}
    worth = weights(content_words(query), shown.values())
    tried: dict[str, Tried] = {}
    for item in (*searched, *listed):
        attempt = Attempt.model_validate(item.body)
        one = Tried(
            item=item,
            attempt=attempt,
            same_failure=digest is not None and attempt.error_signature == digest,
            here=attempt.task_id == task_id,
            relevance=1.0
            if digest is not None and attempt.error_signature == digest
            else curve.at(signs_of(item, coverage(worth, shown.get(item.id, frozenset())))),
        )
        if one.here or (attempt.outcome != "unknown" and (one.same_failure or one.relevance >= curve.threshold)):
            tried.setdefault(item.id, one)
    return tuple(
        sorted(tried.values(), key=lambda one: (not one.same_failure, -one.worth, -one.relevance, -one.item.seq))
    )


@dataclass(frozen=True)
class Lesson:
    """One act and every attempt at it, newest first: the same act tried twice is one lesson."""

    attempts: tuple[Tried, ...]

    @property
    def text(self) -> str:
        """The act, in the words of the attempt that is cited for it."""
        return self.cited.attempt.tried

    @property
    def cited(self) -> Tried:
        """The attempt that speaks most for it."""
        return max(self.attempts, key=lambda one: (one.worth, one.item.seq))

    @property
    def worth(self) -> float:
        """All its outcomes together."""
        return sum(one.worth for one in self.attempts)

    @property
    def failures(self) -> tuple[Tried, ...]:
        """Its failures for this very failure."""
        return tuple(one for one in self.attempts if one.attempt.outcome == "failed" and (one.same_failure or one.here))

    @property
    def successes(self) -> tuple[Tried, ...]:
        """The times it worked, wholly or in part."""
        return tuple(one for one in self.attempts if one.attempt.outcome in ("succeeded", "partial"))

    @property
    def used_here(self) -> bool:
        """Whether this task has tried it already."""
        return any(one.here for one in self.attempts)

    @property
    def again(self) -> str | None:
        """The reason for doing again what has failed for this failure; None when there is none."""
        if not self.failures or not self.successes:
            return None
        failed, worked = self.failures[0], self.successes[0]
        outcome, evidence = worked.attempt.outcome, worked.attempt.evidence
        return (
            f"failed for this error {_times(len(self.failures))} (last {failed.when}), "
            f"but {outcome} {_times(len(self.successes))} (last {worked.when}, {evidence})"
        )


def lessons(tried: Sequence[Tried]) -> tuple[Lesson, ...]:
    """The acts behind some attempts: those of this very failure first, then by worth."""
    groups: list[list[Tried]] = []
    for one in sorted(tried, key=lambda one: -one.item.seq):
        for group in groups:
            if same(group[0].attempt.tried, one.attempt.tried):
                group.append(one)
                break
        else:
            groups.append([one])
    made = [Lesson(tuple(group)) for group in groups]
    return tuple(sorted(made, key=lambda lesson: (not any(a.same_failure for a in lesson.successes), -lesson.worth)))


def similar(tried: Sequence[Tried], limit: int = SHOWN) -> tuple[SimilarAttempt, ...]:
    """The attempts as findings show them, without those of this task that still wait for their outcome."""
    return tuple(
        SimilarAttempt(
            id=one.attempt.attempt_id,
            when=one.attempt.decided_at or one.attempt.at,
            tried=shortened(one.attempt.tried),
            outcome=one.attempt.outcome,
            note=shortened(one.attempt.note) if one.attempt.note else None,
            evidence=one.attempt.evidence,
            by=one.who,
            score=round(one.relevance, 4),
        )
        for one in tried
        if one.attempt.outcome != "unknown"
    )[:limit]


def warnings(known: Sequence[Lesson]) -> tuple[str, ...]:
    """What has failed for this failure: how often in all, then each act with the error it ended in."""
    failed = [lesson for lesson in known if lesson.failures]
    if not failed:
        return ()
    count = sum(len(lesson.failures) for lesson in failed)
    each = (
        f"failed {_times(len(lesson.failures))} (last {lesson.failures[0].when}): {_quoted(lesson.failures[0])}"
        for lesson in failed[:SHOWN]
    )
    return (f"attempts at this error have failed {_times(count)}", *each)


def succeeded_before(tried: Sequence[Tried], curve: Curve) -> bool:
    """Whether another task like this one has succeeded: the fourth term of row A2. Untrusted memory does not count."""
    return any(
        one.attempt.outcome == "succeeded"
        and not one.here
        and one.item.integrity > 0
        and (one.same_failure or one.relevance >= curve.threshold)
        for one in tried
    )


def proven(tried: Sequence[Tried]) -> tuple[Tried, ...]:
    """What has worked on balance for this very failure in another task, as trusted principals report: of each act the
    best try. These are sources like trusted documents (row A2); a similar failure, and what an agent reports, is not.
    """
    trusted = [one for one in tried if one.same_failure and not one.here and one.item.integrity >= TRUSTED]
    return tuple(
        lesson.cited
        for lesson in lessons(trusted)
        if lesson.worth > 0
        and lesson.cited.attempt.outcome == "succeeded"
        and lesson.cited.attempt.evidence == "reported"
    )


def _quoted(one: Tried) -> str:
    error = one.attempt.outcome_error
    return f"“{_line(one.attempt.tried)}”" + (f", then “{_line(error)}”" if error else "")


def _line(text: str) -> str:
    return shortened(" ".join(text.split()), 500)


def shortened(text: str, limit: int = 2_000) -> str:
    """The beginning of a text that is too long to be shown whole."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _text(item: Item) -> str:
    body = item.body
    return "\n".join(body.get(field) or "" for field in ("description", "error_message", "tried"))
