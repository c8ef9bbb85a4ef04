"""Parts of a question: whether each is answered, and the addition of an answer for whose absence the work was returned.

Pure."""

import re
from dataclasses import replace

from counterpoint.developer.evidence.calibration import Calibration
from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.excerpts.answers import QuestionHits
from counterpoint.developer.excerpts.citations import references
from counterpoint.developer.language.question_terms import question_terms, words_of
from counterpoint.developer.language.words import content_words
from counterpoint.developer.policies.findings import unvouched_sources
from counterpoint.developer.policies.results import AnswerResult, Conclusion
from counterpoint.proto.findings import Findings
from counterpoint.proto.tasks import TaskDelegated

ANSWERED_SHARE = 1 / 3
"""Share of the words of a part of a question that an answer to it exceeds. Fitted on pairs of questions of
`examples/triage`."""
PART_WORDS = 2
"""Minimum number of content words of a part of a question."""
_PARTS = re.compile(
    r"\?\s+(?:(?:and|und|also|außerdem)\b,?)?|(?<!\s),?\s++(?:and|und)\s+(?=(?:who|whom|whose|what|which|when|where|how|why|is|are"
    r"|can|may|do|does|wer|wem|was|welche\w*|wann|wo|wie|warum|wieso|ist|sind|darf|kann|muss)\b)",
    re.IGNORECASE,
)


def question_parts(question: str) -> tuple[str, ...]:
    """Return the parts of a question that ask for something by themselves."""
    parts = (each.strip(" ?,.") for each in _PARTS.split(question))
    return tuple(each for each in parts if len(content_words(each)) >= PART_WORDS)


def is_answered(part: str, text: str, findings: Findings) -> bool:
    """Return whether an answer has enough of the words of a part, in its text or in the names of its sources."""
    sources = " ".join(each.source_path for each in findings.citations)
    words = words_of(f"{text.replace(references(findings.citations), '')} {sources}")
    forms = question_terms(part, ()).synonyms.values()
    return sum(not each.isdisjoint(words) for each in forms) > ANSWERED_SHARE * len(forms)


def missing_parts(message: TaskDelegated) -> tuple[str, ...]:
    """Return the parts of the question for which the work was returned."""
    objections = (each for each in message.objections if each.rule == "part")
    return tuple(dict.fromkeys(part for each in objections for part in each.search_for))


def with_part(conclusion: Conclusion, part: str, evidence: Evidence, calibration: Calibration) -> Conclusion:
    """Return an answer with that to one more part, if it lacks it, and the evidence for it suffices and is trusted."""
    result, curve = conclusion.result, calibration.answer
    if not isinstance(result, AnswerResult) or not evidence.answers or is_answered(part, result.text, result.findings):
        return conclusion
    found = QuestionHits(part, evidence.answers, evidence.neighbours)
    if not found.grade(curve).sufficient:
        return conclusion
    before = result.findings.citations
    new = tuple(each for each in found.quoted(curve.threshold).citations if each not in before)
    if not new or unvouched_sources(evidence, new):
        return conclusion
    body = result.text.replace(references(before), "").rstrip()
    quotes = (f"{each.quote} [{number}]" for number, each in enumerate(new, len(before) + 1))
    citations = (*before, *new)
    text = "\n\n".join([body, *quotes, references(citations)])
    findings = result.findings.model_copy(update={"citations": citations})
    if not is_answered(part, text, findings):
        return conclusion
    known = conclusion.evidence
    merged = replace(
        known,
        answers=(*known.answers, *evidence.answers),
        neighbours=(*known.neighbours, *evidence.neighbours),
    )
    return replace(conclusion, evidence=merged, result=replace(result, text=text, findings=findings))
