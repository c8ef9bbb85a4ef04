"""Proposals: the next act to try, as quotes of an act that worked before, of an override or of a document."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from counterpoint.developer.evidence.attempts import truncate
from counterpoint.developer.evidence.failure import Failure, differences
from counterpoint.developer.evidence.gather import Instruction
from counterpoint.developer.evidence.lessons import Lesson
from counterpoint.developer.excerpts.citations import attributed_quotes, cite, labelled_quote, references
from counterpoint.developer.excerpts.passages import Passage, is_same_text, passages
from counterpoint.developer.excerpts.relevance import Hit
from counterpoint.developer.language.words import content_words, coverage, weights
from counterpoint.developer.policies.procedures import Procedure
from counterpoint.developer.policies.prohibitions import is_forbidden
from counterpoint.proto.findings import Citation
from counterpoint.proto.memory import Item
from counterpoint.proto.overrides import OverrideGiven
from counterpoint.proto.tasks import TaskDelegated

NEXT_STEPS = 3
STEP_CHARS = 80
INSTRUCTING_KINDS = frozenset({"person", "system", "human"})
"""Kinds of principals whose override is an instruction."""
SUPPORT_SHARE = 0.4
"""Minimum share of an instruction's words in a supporting passage."""


@dataclass(frozen=True)
class Proposal:
    """An act to try. `tried` is the act as an attempt stores it, `summary` its summary if it is a procedure, `text` the
    markdown for people.

    `reason` is the reason to repeat an act that failed for this failure; `likelihood` is the probability that the act
    is right.
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
        """The hash of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def is_agent_override(override: OverrideGiven | None) -> bool:
    """Return whether an override is by an agent, which makes it no instruction."""
    return override is not None and override.by_kind not in INSTRUCTING_KINDS


def is_left_out(text: str, message: TaskDelegated) -> bool:
    """Return whether an act is one for which the work was returned, or a forbidden one in work that is not returned."""
    if any(each.leave_out is not None and is_same_text(text, each.leave_out) for each in message.objections):
        return True
    final = bool(message.objections) or message.purpose != "work"
    return final and is_forbidden(message, text)


def propose(
    lessons: Sequence[Lesson],
    candidates: Sequence[Procedure],
    threshold: float,
    instruction: Instruction | None = None,
    current: Failure | None = None,
) -> Proposal | None:
    """Return the next act to try; None if all known acts have failed, or none is known.

    In this order: an override that this task has not tried; an act that worked for this failure and never failed; one
    that worked more than it failed, with the reason; the next untried procedure; an act that worked for a similar
    failure, as an offer; one that failed more than it worked, with the reason.
    """
    untried = [procedure for procedure in candidates if not _exhausted(procedure, lessons)]
    if instruction and not any(
        is_same_text(instruction.override.instruction, one.text) for one in lessons if one.used_in_task
    ):
        return _from_instruction(instruction, lessons, threshold, untried)
    fresh = [lesson for lesson in lessons if lesson.is_trusted and not lesson.used_in_task]
    for lesson in fresh:
        if (
            lesson.recognised
            and lesson.confirmed
            and (not lesson.failures or (lesson.retry_reason and lesson.weight > 0))
        ):
            return _from_attempt(lesson, untried, current)
    if untried:
        return _from_document(untried, lessons)
    if offer := best_known_fix(lessons, current):
        return offer
    for lesson in fresh:
        if lesson.retry_reason:
            return _from_attempt(lesson, untried, current)
    return None


def best_known_fix(lessons: Sequence[Lesson], current: Failure | None = None) -> Proposal | None:
    """Return the best act of an earlier, sufficiently similar failure that has not failed for this one, confirmed or
    not."""
    fresh = [lesson for lesson in lessons if lesson.is_trusted and not lesson.used_in_task and not lesson.failures]
    return next((_from_attempt(lesson, (), current) for lesson in fresh if lesson.offerable), None)


def _candidates(hits: Sequence[Hit], threshold: float) -> Iterator[tuple[Hit, Passage]]:
    """Yield passages that may support an instruction: numbered steps before prose, by relevance.

    Untrusted hits and hits below the threshold are skipped.
    """
    good = [hit for hit in hits if hit.trusted and hit.relevance >= threshold]
    split = [(hit, passage) for hit in good for passage in passages(hit.text, hit.markdown)]
    yield from (pair for pair in split if pair[1].kind == "step")
    yield from (pair for pair in split if pair[1].kind in ("item", "paragraph"))


def _from_instruction(
    instruction: Instruction, lessons: Sequence[Lesson], threshold: float, rest: Sequence[Procedure]
) -> Proposal:
    override = instruction.override
    citations = [
        _field(instruction.task, "override.instruction", override.instruction),
        _field(instruction.task, "override.reasoning", override.reasoning),
        *(_field(instruction.task, f"override.constraints.{n}", text) for n, text in enumerate(override.constraints)),
    ]
    label = f"Instruction of {override.by} ({override.by_kind})"
    if is_agent_override(override):
        label = (
            f"Stated by {override.by}, an agent; no trusted person has confirmed it, so check it before you act on it"
        )
    parts = labelled_quote(label, override.instruction, 1)
    parts += labelled_quote(f"Reason given by {override.by}", override.reasoning, 2)
    for number, text in enumerate(override.constraints, 3):
        parts += labelled_quote(f"Constraint set by {override.by}", text, number)
    if support := _support(instruction, lessons, threshold):
        hit, passage = support
        citations.append(cite(hit, passage))
        parts += labelled_quote(f"From {hit.source}", passage.text, len(citations))
    return _proposal(parts, override.instruction, citations, rest)


def _support(instruction: Instruction, lessons: Sequence[Lesson], threshold: float) -> tuple[Hit, Passage] | None:
    """Return the passage with most words of an instruction, if it has enough and was not tried."""
    wanted = content_words(instruction.override.instruction)
    worth = weights(wanted, [hit.words for hit in instruction.support])
    options = [
        (coverage(worth, content_words(passage.text)), hit, passage)
        for hit, passage in _candidates(instruction.support, threshold)
        if not any(
            is_same_text(passage.text, lesson.text) for lesson in lessons if lesson.failures or lesson.used_in_task
        )
    ]
    share, hit, passage = max(options, key=lambda option: option[0], default=(0.0, None, None))
    return (hit, passage) if hit and passage and share >= SUPPORT_SHARE else None


def _from_attempt(lesson: Lesson, rest: Sequence[Procedure], current: Failure | None = None) -> Proposal:
    cited = lesson.cited
    attempt = cited.attempt
    under = f", under an override of {attempt.override_by}" if attempt.override_by else ""
    label_text = f"{attempt.outcome.capitalize()} on {cited.day} ({attempt.evidence} by {attempt.by}{under})"
    parts = [f"Proposed again because it {lesson.retry_reason}."] if lesson.retry_reason else []
    if not lesson.recognised:
        parts.append("This failure may be a different one. Check that it is the same before you act on it.")
        label_text = f"At that time: {label_text[0].lower()}{label_text[1:]}"
    elif not lesson.confirmed:
        parts.append("This failure was seen before. No trusted person has confirmed that this fixed it.")
    citations = [_field(cited.item, "tried", attempt.tried)]
    parts += labelled_quote(label_text, attempt.tried, 1)
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
    if current is not None and (unlike := differences(cited.failure, current)):
        label = "Differences from that failure:" if lesson.recognised else "Distinguish them by:"
        parts += [label, "\n".join(f"- {difference}" for difference in unlike)]
    others = [each for each in rest if not is_same_text(each.text, attempt.tried)]
    proposal = _proposal(parts, attempt.tried, citations, others, lesson.retry_reason)
    return replace(proposal, likelihood=lesson.likelihood, summary=attempt.summary)


def _exhausted(procedure: Procedure, lessons: Sequence[Lesson]) -> bool:
    """Return whether a procedure, or each of its steps, was tried in this task or failed for this failure."""
    tried = [lesson.text for lesson in lessons if lesson.used_in_task or lesson.failures]
    if any(is_same_text(procedure.text, text) for text in tried):
        return True
    return bool(procedure.steps) and all(any(is_same_text(step, text) for text in tried) for step in procedure.steps)


def _from_document(untried: Sequence[Procedure], lessons: Sequence[Lesson]) -> Proposal:
    procedure = untried[0]
    citations = [citation for excerpt in (procedure.excerpt, *procedure.more) for citation in excerpt.citations]
    parts = attributed_quotes(citations)
    if procedure.excerpt.omits_steps:
        quoted, whole = procedure.excerpt.steps
        parts.append(
            f"These are {quoted} of the {whole} steps: read the others in {procedure.source} before you begin."
        )
    parts += _experience(procedure, lessons)
    made = _proposal(parts, procedure.text, citations, untried[1:])
    return replace(made, likelihood=round(procedure.likelihood, 4), summary=procedure.summary)


def _experience(procedure: Procedure, lessons: Sequence[Lesson]) -> list[str]:
    """Return the outcomes of earlier attempts with the procedure, or with single steps of it."""
    texts = []
    tried = [lesson for lesson in lessons if lesson.failures or lesson.successes]
    for lesson in tried:
        steps = [(n, step) for n, step in enumerate(procedure.steps, 1) if is_same_text(step, lesson.text)]
        if is_same_text(procedure.text, lesson.text) and all(2 * len(step) < len(lesson.text) for _, step in steps):
            texts.append(f"This was tried before and {_outcome(lesson)}.")
            continue
        for number, step in steps:
            act = truncate(" ".join(step.split()), STEP_CHARS)
            texts.append(f"Step {number} of these was tried before and {_outcome(lesson)}: {act}")
    return texts


def _outcome(lesson: Lesson) -> str:
    """Return the outcome of an act in words: its best one, and whether that was for another failure; a success that no
    trusted principal reported is called unconfirmed."""
    if lesson.failures:
        return "failed"
    if lesson.confirmed:
        best = lesson.proofs or lesson.successes
        worked = "worked" if lesson.proofs else "helped in part"
        return worked if any(one.recognised for one in best) else f"{worked} for a failure that may be another one"
    attempt = lesson.cited.attempt
    return f"{attempt.outcome} ({attempt.evidence} by {attempt.by}, not confirmed by a trusted person)"


def _proposal(
    parts: Sequence[str],
    tried: str,
    citations: Sequence[Citation],
    rest: Sequence[Procedure],
    reason: str | None = None,
) -> Proposal:
    text = "\n\n".join([*parts, references(citations)])
    likely = [each for each in rest if each.likely]
    steps = tuple(f"{each.source}: {step}" for each in likely[:1] for step in each.numbered)[:NEXT_STEPS]
    return Proposal(text, tried, tuple(citations), steps, reason)


def _field(item: Item, field: str, text: str) -> Citation:
    """Return the citation of a field of a record; `source_path` names the field."""
    return Citation(
        store=item.store,
        id=item.id,
        version=item.version,
        source_path=f"{item.store}/{item.id}#{field}",
        start=0,
        end=len(text),
        quote=text,
    )
