"""Conclusion of an investigation: the rules' decision, with the model's proposal if it is supported. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from counterpoint.developer.agent.acts import INVESTIGATION
from counterpoint.developer.agent.investigation import Investigation, ProposalSection
from counterpoint.developer.agent.judge import act_of, still_supported
from counterpoint.developer.agent.readings import Reading
from counterpoint.developer.evidence.lessons import warnings
from counterpoint.developer.excerpts.citations import labelled_quote, references
from counterpoint.developer.policies.findings import findings_of
from counterpoint.developer.policies.prohibitions import is_forbidden
from counterpoint.developer.policies.proposals import Proposal, is_left_out
from counterpoint.developer.policies.results import AnswerResult, Conclusion, ProposalResult, Result, conclusion_of
from counterpoint.proto.findings import Citation, Findings
from counterpoint.proto.tasks import TaskDelegated
from counterpoint.proto.words import quantity

_TITLES = {
    "cause": "Likely cause",
    "action": "Action",
    "verify": "How to verify",
    "risk": "Risk",
    "refutes": "What would refute it",
}


def conclude_investigation(
    message: TaskDelegated, rules: Conclusion, run: Investigation, readings: Sequence[Reading]
) -> Conclusion:
    """Return the conclusion of an ended investigation.

    Confidence, and whether to propose or to stop, are those of the rules. A supported act of the model takes the place
    of the rules' proposal or offer.
    """
    sections = still_supported(run.sections, readings, INVESTIGATION, rules.evidence)
    if run.ending != "proposed" or act_of(sections, INVESTIGATION) is None:
        reason = run.reason or "what it cited has changed"
        return with_caveat(rules, f"the investigation by a model made no proposal: {reason}")
    proposal = _proposal(sections, rules, readings)
    offered = not isinstance(rules.result, ProposalResult) and is_forbidden(message, proposal.tried)
    if offered or is_left_out(proposal.tried, message):
        return with_caveat(rules, "the act that a model proposed is one that a constraint forbids")
    result = _result(rules, proposal, run)
    made = conclusion_of(message.task, rules.evidence, rules.assessment, result)
    alternative = rules.result.proposal.tried if isinstance(rules.result, ProposalResult) else None
    return replace(made, model=run.model, alternative=alternative)


def _result(rules: Conclusion, proposal: Proposal, run: Investigation) -> Result:
    caveats = [
        *rules.assessment.caveats,
        *warnings(rules.evidence.lessons),
        f"the explanation was written by {run.model}; the quoted texts are those of memory",
    ]
    if run.cut:
        caveats.append(f"statements of the model that memory does not support were left out: {run.cut}")
    if proposal.reason:
        caveats.append(proposal.reason)
    findings = findings_of(rules.evidence, proposal.citations, tuple(caveats), proposal.next_steps, proposal.likelihood)
    turns = f"{quantity(len(run.turns), 'turn')} of {run.model}"
    if isinstance(rules.result, ProposalResult):
        own = f"the rules propose: {rules.result.proposal.tried[:200]}"
        return ProposalResult(proposal, f"{rules.assessment.reasoning}; proposed after {turns}; {own}", findings)
    assert not isinstance(rules.result, AnswerResult), "a failure is not answered"
    return replace(
        rules.result,
        reasoning=f"{rules.result.reasoning}; {turns} found an act to offer",
        text=proposal.text,
        findings=findings,
    )


def _proposal(sections: Sequence[ProposalSection], rules: Conclusion, readings: Sequence[Reading]) -> Proposal:
    """Return sections as a proposal. The act that an attempt stores is the quoted text."""
    citations = list(
        {citation.model_dump_json(): citation for section in sections for citation in section.cited}.values()
    )
    act = act_of(sections, INVESTIGATION)
    assert act is not None, "a proposal has an act"
    acts = act.cited
    parts = [_text(section, citations) for section in sections]
    for citation in acts:
        parts += labelled_quote(f"From {citation.source_path}", citation.quote, citations.index(citation) + 1)
    by_key = {reading.key: reading for reading in readings}
    cited = [by_key[each.store, each.id, each.version] for each in acts]
    other = any(reading.attempt is not None and not reading.attempt.recognised for reading in cited)
    return Proposal(
        text="\n\n".join([*parts, references(citations)]),
        tried="\n\n".join(citation.quote for citation in acts),
        citations=tuple(citations),
        next_steps=(),
        reason="the cited attempt was at a failure that may be a different one" if other else None,
        likelihood=_likelihood(rules, acts),
    )


def _text(section: ProposalSection, citations: Sequence[Citation]) -> str:
    """Return a section as a paragraph, or as a list if it was written as one."""
    lines = [
        f"{sentence.text} {''.join(f'[{citations.index(section.draft.citations[n]) + 1}]' for n in sentence.rests_on)}"
        for sentence in section.draft.sentences
    ]
    title = f"**{_TITLES[section.part]}**:"
    if len(lines) > 1 and any(line.startswith("- ") for line in lines):
        return "\n".join([title, "", *(f"- {line.removeprefix('- ')}" for line in lines)])
    return " ".join([title, *(line.removeprefix("- ") for line in lines)])


def _likelihood(rules: Conclusion, acts: Sequence[Citation]) -> float | None:
    """Return the likelihood that the rules give to the sources of an act, the lowest; None if they give none."""
    cited = {(each.store, each.id) for each in acts}
    found = [
        lesson.likelihood
        for lesson in rules.evidence.lessons
        if any((one.item.store, one.item.id) in cited for one in lesson.attempts)
    ]
    found += [
        round(procedure.likelihood, 4)
        for procedure in rules.assessment.procedures
        if any((hit.item.store, hit.item.id) in cited for hit in procedure.hits)
    ]
    return min(found, default=None)


def with_caveat(rules: Conclusion, caveat: str) -> Conclusion:
    """Return the conclusion of the rules with one more caveat."""
    findings: Findings = rules.result.findings
    noted = findings.model_copy(update={"caveats": (*findings.caveats, caveat)})
    return replace(rules, result=replace(rules.result, findings=noted))
