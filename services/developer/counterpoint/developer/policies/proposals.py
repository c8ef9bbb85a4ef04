"""Proposals: the next thing to try, put together from quotes alone.

An act that worked before, the instruction of an override or an untried procedure of a document can be quoted. The
words written here only connect them.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from counterpoint.developer.evidence.failure import Failure, differences
from counterpoint.developer.evidence.gather import Instruction
from counterpoint.developer.evidence.lessons import Lesson
from counterpoint.developer.excerpts.citations import attributed_quotes, cite, labelled_quote, references
from counterpoint.developer.excerpts.passages import Passage, passages, same
from counterpoint.developer.excerpts.relevance import Hit
from counterpoint.developer.language.words import content_words, coverage, weights
from counterpoint.developer.policies.procedures import Procedure
from counterpoint.proto.findings import Citation
from counterpoint.proto.memory import Item
from counterpoint.proto.tasks import OverrideGiven

NEXT_STEPS = 3
SPEAKING = frozenset({"person", "system", "human"})
"""Kinds of principal whose override is an instruction."""
SUPPORTED = 0.4
"""Share of an instruction's words that a passage has to hold to be shown beside it."""


@dataclass(frozen=True)
class Proposal:
    """One thing to try. `tried` is the act alone, as an attempt remembers it, and `summary` a line of it where it is a
    procedure; `text` is the markdown that people read.

    `reason` says why something is proposed that has failed for this failure before; `likelihood` is the probability
    that what is proposed is right for this failure.
    """

    text: str
    tried: str
    citations: tuple[Citation, ...]
    next_steps: tuple[str, ...]
    reason: str | None = None
    likelihood: float | None = None
    summary: str | None = None

    @property
    def sha256(self) -> str:
        """The hash of exactly what is shown."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def spoken_by_agent(override: OverrideGiven | None) -> bool:
    """Whether an override is the word of an agent alone, and so no instruction."""
    return override is not None and override.by_kind not in SPEAKING


def propose(
    lessons: Sequence[Lesson],
    found: Sequence[Procedure],
    threshold: float,
    instruction: Instruction | None = None,
    now: Failure | None = None,
) -> Proposal | None:
    """The next thing to try; None when every known act has failed, or none is known.

    In this order: an override not yet tried in this task, of an agent as what it said; an act that worked for this very
    failure and never failed for it; one that failed but worked on balance, with the reason; the next untried procedure
    of the documents; an act that worked for a failure that only looks alike, as an offer; one that failed more than it
    worked, with the reason.
    """
    untried = [procedure for procedure in found if not _exhausted(procedure, lessons)]
    if instruction and not any(same(instruction.given.instruction, one.text) for one in lessons if one.used_here):
        return _from_instruction(instruction, lessons, threshold, untried)
    fresh = [lesson for lesson in lessons if lesson.vouched and not lesson.used_here]
    for lesson in fresh:
        if lesson.recognised and lesson.confirmed and (not lesson.failures or (lesson.again and lesson.worth > 0)):
            return _from_attempt(lesson, untried, now)
    if untried:
        return _from_document(untried, lessons)
    if offer := best_known_fix(lessons, now):
        return offer
    for lesson in fresh:
        if lesson.again:
            return _from_attempt(lesson, untried, now)
    return None


def best_known_fix(lessons: Sequence[Lesson], now: Failure | None = None) -> Proposal | None:
    """The best known act of an earlier failure, recognised or alike enough, confirmed or not, that has not failed for
    this one."""
    fresh = [lesson for lesson in lessons if lesson.vouched and not lesson.used_here and not lesson.failures]
    return next((_from_attempt(lesson, (), now) for lesson in fresh if lesson.offerable), None)


def _candidates(found: Sequence[Hit], threshold: float) -> Iterator[tuple[Hit, Passage]]:
    """Passages that may support an instruction: numbered steps before prose, by the relevance of their section.

    Nothing is taken from untrusted hits, or from hits below the threshold.
    """
    good = [hit for hit in found if hit.trusted and hit.relevance >= threshold]
    split = [(hit, passage) for hit in good for passage in passages(hit.text, hit.markdown)]
    yield from (pair for pair in split if pair[1].kind == "step")
    yield from (pair for pair in split if pair[1].kind in ("item", "paragraph"))


def _from_instruction(
    instruction: Instruction, lessons: Sequence[Lesson], threshold: float, rest: Sequence[Procedure]
) -> Proposal:
    given = instruction.given
    citations = [
        _field(instruction.task, "override.instruction", given.instruction),
        _field(instruction.task, "override.reasoning", given.reasoning),
        *(_field(instruction.task, f"override.constraints.{n}", text) for n, text in enumerate(given.constraints)),
    ]
    label = f"Instruction of {given.by} ({given.by_kind})"
    if spoken_by_agent(given):
        label = f"Stated by {given.by}, an agent; no trusted person has confirmed it, so check it before you act on it"
    parts = labelled_quote(label, given.instruction, 1)
    parts += labelled_quote(f"Reason given by {given.by}", given.reasoning, 2)
    for number, text in enumerate(given.constraints, 3):
        parts += labelled_quote(f"Constraint set by {given.by}", text, number)
    if found := _support(instruction, lessons, threshold):
        hit, passage = found
        citations.append(cite(hit, passage))
        parts += labelled_quote(f"From {hit.source}", passage.text, len(citations))
    return _proposal(parts, given.instruction, citations, rest)


def _support(instruction: Instruction, lessons: Sequence[Lesson], threshold: float) -> tuple[Hit, Passage] | None:
    """The passage that says most of what an instruction says, if any says enough and it was not tried already."""
    wanted = content_words(instruction.given.instruction)
    worth = weights(wanted, [hit.words for hit in instruction.support])
    options = [
        (coverage(worth, content_words(passage.text)), hit, passage)
        for hit, passage in _candidates(instruction.support, threshold)
        if not any(same(passage.text, lesson.text) for lesson in lessons if lesson.failures or lesson.used_here)
    ]
    said, hit, passage = max(options, key=lambda option: option[0], default=(0.0, None, None))
    return (hit, passage) if hit and passage and said >= SUPPORTED else None


def _from_attempt(lesson: Lesson, rest: Sequence[Procedure], now: Failure | None = None) -> Proposal:
    cited = lesson.cited
    attempt = cited.attempt
    under = f", under an override of {attempt.override_by}" if attempt.override_by else ""
    told = f"{attempt.outcome.capitalize()} on {cited.when} ({attempt.evidence} by {attempt.by}{under})"
    parts = [f"Proposed again because it {lesson.again}."] if lesson.again else []
    if not lesson.recognised:
        parts.append(
            "This failure is similar, but may be a different one. Check that it is the same before you act on it."
        )
        told = f"At that time: {told[0].lower()}{told[1:]}"
    elif not lesson.confirmed:
        parts.append("This failure was seen before. No trusted person has confirmed that this fixed it.")
    citations = [_field(cited.item, "tried", attempt.tried)]
    parts += labelled_quote(told, attempt.tried, 1)
    beside = [
        ("note", "Noted with its outcome", attempt.note if attempt.note != attempt.tried else None),
        ("reason", "Reason given at that time", attempt.reason),
        *((f"constraints.{n}", "Constraint at that time", text) for n, text in enumerate(attempt.constraints)),
        *((f"changed.{n}", "Changed between failure and recovery", text) for n, text in enumerate(attempt.changed)),
    ]
    for field, label, text in beside:
        if text:
            citations.append(_field(cited.item, field, text))
            parts += labelled_quote(label, text, len(citations))
    if now is not None and (unlike := differences(cited.failure, now)):
        label = "Differences from that failure:" if lesson.recognised else "Distinguish them by:"
        parts += [label, "\n".join(f"- {difference}" for difference in unlike)]
    made = _proposal(parts, attempt.tried, citations, rest, lesson.again)
    return replace(made, likelihood=lesson.likelihood, summary=attempt.summary)


def _exhausted(procedure: Procedure, lessons: Sequence[Lesson]) -> bool:
    """Whether a procedure, or each of its steps, was tried in this task or has failed for this failure."""
    tried = [lesson.text for lesson in lessons if lesson.used_here or lesson.failures]
    if any(same(procedure.text, text) for text in tried):
        return True
    return bool(procedure.steps) and all(any(same(step, text) for text in tried) for step in procedure.steps)


def _from_document(untried: Sequence[Procedure], lessons: Sequence[Lesson]) -> Proposal:
    procedure = untried[0]
    citations = [citation for excerpt in (procedure.excerpt, *procedure.more) for citation in excerpt.citations]
    parts = attributed_quotes(citations)
    parts += _experience(procedure, lessons)
    made = _proposal(parts, procedure.text, citations, untried[1:])
    return replace(made, likelihood=round(procedure.likelihood, 4), summary=procedure.summary)


def _experience(procedure: Procedure, lessons: Sequence[Lesson]) -> list[str]:
    """The outcome of each step that was tried before."""
    said = []
    for number, step in enumerate(procedure.steps, 1):
        for lesson in lessons:
            if same(step, lesson.text) and (lesson.failures or lesson.successes):
                what = "failed" if lesson.failures else "worked"
                said.append(f"Step {number} of these was tried before and {what}: {' '.join(step.split())[:80]}")
    return said


def _proposal(
    parts: Sequence[str],
    tried: str,
    citations: Sequence[Citation],
    rest: Sequence[Procedure],
    reason: str | None = None,
) -> Proposal:
    text = "\n\n".join([*parts, references(citations)])
    steps = tuple(f"{each.source}: {step}" for each in rest[:1] for step in each.numbered)[:NEXT_STEPS]
    return Proposal(text, tried, tuple(citations), steps, reason)


def _field(item: Item, field: str, text: str) -> Citation:
    """The citation of a whole field of a record: `source_path` names the field."""
    return Citation(
        store=item.store,
        id=item.id,
        version=item.version,
        source_path=f"{item.store}/{item.id}#{field}",
        start=0,
        end=len(text),
        quote=text,
    )
