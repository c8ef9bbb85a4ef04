"""Judgement of a model's proposal by the rules: what is not supported by trusted memory is left out. Pure."""

import re
from collections.abc import Iterator, Sequence

from counterpoint.developer.agent.form import Form, Statement
from counterpoint.developer.agent.investigation import ModelProposal, ProposalSection
from counterpoint.developer.agent.readings import Reading, may_support
from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.rag.generate import draft_of_model
from counterpoint.developer.rag.run import Draft, Sentence
from counterpoint.developer.rag.validate import verdicts_of

_LINK = re.compile(
    r"(?:!?\[[^\[\]]{0,300})?\]\s*[(\[:]|<[a-z/!][^<>]*>?|(?:\b[a-z][a-z0-9+.-]{0,31})?://\S+|\bwww\.\S+"
    r"|\b(?:mailto|data|javascript):\S+|(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+"
    r"|(?<![\w-])(?<![\w-]\.)[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}/\S*",
    re.IGNORECASE,
)
"""Text that a renderer of markdown turns into a link or an image, or fetches by itself."""
LINK_REMOVED = "(link removed)"


def judged(
    proposed: ModelProposal, readings: Sequence[Reading], form: Form, evidence: Evidence, model: str
) -> tuple[tuple[ProposalSection, ...], tuple[str, ...]]:
    """Return the supported sections of a proposal, and the problem of each sentence that was left out."""
    sections: list[ProposalSection] = []
    problems: list[str] = []
    hits = [reading.hit for reading in readings]
    for part, number, after, text in _texts(proposed, form):
        draft = draft_of_model(text, hits, model, len(hits))
        kept, wrong = _supported(part, draft, readings, form, evidence)
        problems += (f"{part}: {problem}" for problem in wrong)
        if kept.sentences:
            section = {"part": part, "draft": kept, "number": number, "after": after}
            sections.append(ProposalSection.model_validate(section))
    return tuple(sections), tuple(problems)


def still_supported(
    sections: Sequence[ProposalSection], readings: Sequence[Reading], form: Form, evidence: Evidence
) -> tuple[ProposalSection, ...]:
    """Return what readings support of sections that were judged before, perhaps on other readings."""
    checked = ((section, _supported(section.part, section.draft, readings, form, evidence)[0]) for section in sections)
    return tuple(section.model_copy(update={"draft": draft}) for section, draft in checked if draft.sentences)


def act_of(sections: Sequence[ProposalSection], form: Form) -> ProposalSection | None:
    """Return the first supported section of the part that a proposal must have."""
    return next((section for section in sections if section.part == form.act), None)


def without_links(text: str) -> str:
    """Return a text in which nothing is a link, an image or an address."""
    return _LINK.sub(LINK_REMOVED, text)


def _texts(proposed: ModelProposal, form: Form) -> Iterator[tuple[str, int | None, tuple[int, ...], str]]:
    """Yield the texts of a proposal by part; those of steps one by one, with their numbers and those before them."""
    for part in form.parts:
        if part == "steps":
            for number, step in enumerate(proposed.steps, 1):
                yield part, number, step.after, step.does
        else:
            yield part, None, (), getattr(proposed, part)


def _supported(
    part: str, draft: Draft, readings: Sequence[Reading], form: Form, evidence: Evidence
) -> tuple[Draft, tuple[str, ...]]:
    by_key = {reading.key: reading for reading in readings}
    kept: list[Sentence] = []
    problems: list[str] = []
    for sentence, verdict in zip(draft.sentences, verdicts_of(draft, [r.hit for r in readings]), strict=True):
        statement = Statement(part, sentence, [draft.citations[n] for n in sentence.rests_on], by_key)
        problem = verdict.problem if not verdict.supported else _problem(statement, form)
        problem = problem or form.problem(statement, evidence)
        if problem is None:
            kept.append(sentence)
        else:
            problems.append(problem)
    return draft.model_copy(update={"sentences": tuple(kept)}), tuple(problems)


def _problem(statement: Statement, form: Form) -> str | None:
    for citation in statement.cited:
        reading = statement.by_key[citation.store, citation.id, citation.version]
        if not may_support(reading, form.supporting):
            trust = "a" if reading.trusted else "an untrusted"
            return f"it rests on {trust} {reading.kind}, which supports nothing"
    quoted = " ".join(citation.quote for citation in statement.cited)
    if any(link not in quoted for link in _LINK.findall(statement.sentence.text)):
        return "it has a link that the cited text does not have"
    return None
