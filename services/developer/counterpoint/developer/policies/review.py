"""Review: the judge compares a result with its task before it leaves (docs/review.md). Pure.

A result is sent back once, for an objection that another search or another act can meet. Any other objection, and
whatever remains the second time, is a caveat.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.excerpts.citations import references
from counterpoint.developer.language.exact_forms import exact
from counterpoint.developer.policies.parts import is_answered, question_parts
from counterpoint.developer.policies.prohibitions import violations
from counterpoint.developer.policies.results import AnswerResult, Conclusion, ModelReview, ProposalResult
from counterpoint.proto.findings import Findings, Objection
from counterpoint.proto.tasks import TaskDelegated

OBJECTION = "objection of the reviewer: "
"""Beginning of the caveat of an objection."""
SHOWN = 5
"""Maximum number of exact forms in the reason of an objection."""
_MARK = re.compile(r"\[\d{1,3}(?:\s*[,;]\s*\d{1,3})*\]")
_PLAIN = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True)
class Review:
    """The objections to a result, and whether it is sent back for them."""

    objections: tuple[Objection, ...]
    sent_back: bool
    by_model: ModelReview | None = None

    @property
    def reasoning(self) -> str:
        """The objections in words."""
        said = "; ".join(each.reason for each in self.objections) or (
            "no objection: constraints, systems, numbers and identifiers agree with the task and what is cited"
        )
        return f"{said}; {self.by_model.note}" if self.by_model else said


def review(message: TaskDelegated, conclusion: Conclusion) -> Review | None:
    """Return the review of an answer or a proposal; None for a stop, which makes no claim."""
    result, evidence = conclusion.result, conclusion.evidence
    match result:
        case ProposalResult(proposal=proposal):
            act, claim, shown = proposal.tried, proposal.tried, proposal.text
        case AnswerResult(text=text, claim=rests):
            claim, shown = rests or text, text
            act = claim if message.lane == "plan" else ""
        case _:
            return None
    instructed = message.override is not None and message.override.instruction in (act, *_quotes(result.findings))
    objections = (
        *_prohibited(message, act),
        *_foreign_numbers(message, evidence, result.findings, claim),
        *(_unanswered_parts(message, result.findings, shown) if message.lane == "answer" else ()),
        *_missing_systems(message, evidence, result.findings, shown),
    )
    if conclusion.review:
        known = {(each.rule, each.search_for) for each in objections if each.search_for}
        more = (each for each in conclusion.review.objections if (each.rule, each.search_for) not in known)
        objections = (*objections, *more)
    again = message.purpose == "work" and not message.objections and not instructed
    sent_back = again and any(each.leave_out or each.search_for for each in objections)
    return Review(objections, sent_back, conclusion.review)


def with_caveats(conclusion: Conclusion, review: Review) -> Conclusion:
    """Return a conclusion that states the objections as caveats."""
    if not review.objections:
        return conclusion
    findings = conclusion.result.findings
    caveats = (*findings.caveats, *(f"{OBJECTION}{each.reason}" for each in review.objections))
    return replace(
        conclusion, result=replace(conclusion.result, findings=findings.model_copy(update={"caveats": caveats}))
    )


def _prohibited(message: TaskDelegated, act: str) -> Iterable[Objection]:
    for constraint, sentence in violations(message, act):
        reason = f"“{sentence}” is what the constraint of {constraint.by} forbids: “{constraint.text}”"
        yield Objection(rule="prohibition", reason=reason, leave_out=act)


def _foreign_numbers(message: TaskDelegated, evidence: Evidence, findings: Findings, text: str) -> Iterable[Objection]:
    """Object to numbers and identifiers that are in no cited text, and not in the task."""
    said = _MARK.sub("", text.replace(references(findings.citations), ""))
    foreign = sorted(exact(said) - exact(_known_text(message, evidence, findings)))
    if foreign:
        named = ", ".join(foreign[:SHOWN])
        yield Objection(rule="number", reason=f"{named} occurs in no cited source", search_for=tuple(foreign[:SHOWN]))


def _unanswered_parts(message: TaskDelegated, findings: Findings, text: str) -> Iterable[Objection]:
    """Object to a part of a question of several parts whose words are hardly in the answer."""
    parts = question_parts(message.task.description)
    if len(parts) < 2:
        return
    for part in parts:
        if not is_answered(part, text, findings):
            yield Objection(rule="part", reason=f"nothing in the result answers “{part}”", search_for=(part,))


def _missing_systems(message: TaskDelegated, evidence: Evidence, findings: Findings, text: str) -> Iterable[Objection]:
    """Object to a result in which none of the systems of the task occurs."""
    systems = message.task.systems
    cited = {each.id for each in findings.citations}
    of_attempts = [each for one in evidence.attempts if one.item.id in cited for each in one.attempt.systems]
    known = f" {_plain(' '.join((text, _cited_text(evidence, findings), *of_attempts)))} "
    if systems and not any(f" {_plain(system)} " in known for system in systems):
        yield Objection(rule="system", reason=f"no part of the result mentions {', '.join(systems)}")


def _known_text(message: TaskDelegated, evidence: Evidence, findings: Findings) -> str:
    task = message.task
    override = (message.override.instruction, message.override.reasoning) if message.override else ()
    packages = (
        " ".join((system, each.package, *each.connection_types, *each.operators, *each.sensors, *each.hooks))
        for system, each in evidence.providers.found
    )
    own = (task.title, task.description, task.error_message, *task.systems, *override, *packages)
    return "\n".join([*filter(None, own), _cited_text(evidence, findings)])


def _cited_text(evidence: Evidence, findings: Findings) -> str:
    cited = {each.id for each in findings.citations}
    hits = (*evidence.owners, *evidence.answers, *evidence.neighbours, *evidence.found)
    contexts = dict.fromkeys(hit.context for hit in hits if hit.item.id in cited and hit.context)
    return "\n".join([*_quotes(findings), *(each.source_path for each in findings.citations), *contexts])


def _quotes(findings: Findings) -> tuple[str, ...]:
    return tuple(each.quote for each in findings.citations)


def _plain(text: str) -> str:
    return " ".join(_PLAIN.findall(text.lower()))
