"""Judgement of a model's proposal by the rules: what is not supported by trusted memory is left out. Pure."""

import re
from collections.abc import Mapping, Sequence

from counterpoint.developer.agent.investigation import PARTS, ProposalSection, Proposed
from counterpoint.developer.agent.readings import Reading, may_support
from counterpoint.developer.evidence.attempts import NO_OUTCOME, EarlierAttempt
from counterpoint.developer.evidence.lessons import Lesson
from counterpoint.developer.excerpts.passages import is_same_text
from counterpoint.developer.rag.generate import draft_of_model
from counterpoint.developer.rag.run import Draft, Sentence
from counterpoint.developer.rag.validate import verdicts_of
from counterpoint.proto.findings import Citation

_LINK = re.compile(
    r"!?\[[^\]]*\]\s*[(\[:]|<[a-z/!][^>]*>?|\b[a-z][a-z0-9+.-]*://\S+|\bwww\.\S+|\b(?:mailto|data|javascript):\S+"
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\b[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}/\S*",
    re.IGNORECASE,
)
"""Text that a renderer of markdown turns into a link or an image, or fetches by itself."""
_PROHIBITION = re.compile(
    r"\b(?:(?:do|must|should|may|shall) not|don't|mustn't|shouldn't|never|avoid|nicht|nie|niemals)\b", re.IGNORECASE
)
LINK_REMOVED = "(link removed)"

Key = tuple[str, str, int]


def judged(
    proposed: Proposed, readings: Sequence[Reading], lessons: Sequence[Lesson], model: str
) -> tuple[tuple[ProposalSection, ...], tuple[str, ...]]:
    """Return the supported sections of a proposal, and the problem of each sentence that was left out."""
    sections: list[ProposalSection] = []
    problems: list[str] = []
    hits = [reading.hit for reading in readings]
    for part in PARTS:
        draft = draft_of_model(getattr(proposed, part), hits, model, len(hits))
        kept, wrong = _supported(part, draft, readings, lessons)
        problems += (f"{part}: {problem}" for problem in wrong)
        if kept.sentences:
            sections.append(ProposalSection.model_validate({"part": part, "draft": kept}))
    return tuple(sections), tuple(problems)


def still_supported(
    sections: Sequence[ProposalSection], readings: Sequence[Reading], lessons: Sequence[Lesson]
) -> tuple[ProposalSection, ...]:
    """Return what readings support of sections that were judged before, perhaps on other readings."""
    checked = ((section, _supported(section.part, section.draft, readings, lessons)[0]) for section in sections)
    return tuple(section.model_copy(update={"draft": draft}) for section, draft in checked if draft.sentences)


def act_of(sections: Sequence[ProposalSection]) -> ProposalSection | None:
    """Return the supported act of a proposal."""
    return next((section for section in sections if section.part == "action"), None)


def without_links(text: str) -> str:
    """Return a text in which nothing is a link, an image or an address."""
    return _LINK.sub(LINK_REMOVED, text)


def _supported(
    part: str, draft: Draft, readings: Sequence[Reading], lessons: Sequence[Lesson]
) -> tuple[Draft, tuple[str, ...]]:
    by_key = {reading.key: reading for reading in readings}
    kept: list[Sentence] = []
    problems: list[str] = []
    for sentence, verdict in zip(draft.sentences, verdicts_of(draft, [r.hit for r in readings]), strict=True):
        cited = [draft.citations[n] for n in sentence.rests_on]
        problem = verdict.problem if not verdict.supported else _problem(sentence, cited, by_key)
        if problem is None and part == "action":
            problem = _problem_of_act(sentence, cited, by_key, lessons)
        if problem is None:
            kept.append(sentence)
        else:
            problems.append(problem)
    return draft.model_copy(update={"sentences": tuple(kept)}), tuple(problems)


def _problem(sentence: Sentence, cited: Sequence[Citation], by_key: Mapping[Key, Reading]) -> str | None:
    for citation in cited:
        reading = by_key[citation.store, citation.id, citation.version]
        if not may_support(reading):
            trust = "a" if reading.trusted else "an untrusted"
            return f"it rests on {trust} {reading.kind}, which supports nothing"
    quoted = " ".join(citation.quote for citation in cited)
    if any(link not in quoted for link in _LINK.findall(sentence.text)):
        return "it has a link that the cited text does not have"
    return None


def _has_outcome(one: EarlierAttempt) -> bool:
    return one.in_task and one.attempt.outcome not in NO_OUTCOME


def _problem_of_act(
    sentence: Sentence, cited: Sequence[Citation], by_key: Mapping[Key, Reading], lessons: Sequence[Lesson]
) -> str | None:
    """Return why an act is not proposed: it was tried, it failed, its attempt had no success, or the cited text says
    the opposite.

    An act of this task without an outcome may be proposed again: after the approval of a limit it was never offered.
    """
    tried = [lesson.text for lesson in lessons if lesson.failures or any(map(_has_outcome, lesson.attempts))]
    texts = [sentence.text, *(citation.quote for citation in cited)]
    if any(is_same_text(text, earlier) for text in texts for earlier in tried):
        return "it was tried in this task, or failed for this failure"
    attempts = [by_key[each.store, each.id, each.version].attempt for each in cited]
    if any(one is not None and one.attempt.outcome not in ("succeeded", "partial") for one in attempts):
        return "it rests on an attempt that did not succeed"
    if not _PROHIBITION.search(sentence.text) and all(_PROHIBITION.search(citation.quote) for citation in cited):
        return "the cited text advises against it"
    return None
