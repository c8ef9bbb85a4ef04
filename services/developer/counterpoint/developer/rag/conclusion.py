"""Conclusion of a run over a question."""

from dataclasses import replace

from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.excerpts.relevance import Grade
from counterpoint.developer.policies.assessment import Assessment
from counterpoint.developer.policies.confidence import band, below_high
from counterpoint.developer.policies.findings import findings_of, under_caveats, unvouched_sources
from counterpoint.developer.policies.lanes import insufficient_evidence
from counterpoint.developer.policies.results import AnswerResult, Conclusion, StopResult, conclusion_of
from counterpoint.developer.rag.generate import render_draft
from counterpoint.developer.rag.run import Run
from counterpoint.proto.decisions import Confidence
from counterpoint.proto.tasks import Need, TaskDelegated
from counterpoint.proto.words import quantity


def conclude_run(message: TaskDelegated, evidence: Evidence, run: Run) -> Conclusion:
    """Return the conclusion of an ended run: its draft as an answer, or a stop."""
    grade = run.graded or Grade(sufficient=False, probability=0.0, reason="the search failed")
    confidence = Confidence(
        score=round(grade.probability, 4), band=band(grade.probability) if run.ending == "answered" else "low"
    )
    sufficient = run.ending != "insufficient_evidence"
    assessment = Assessment(confidence, grade.model_copy(update={"sufficient": sufficient}), None, grade.reason)
    if not sufficient or run.draft is None:
        stop = _stop(message, insufficient_evidence(message, evidence, assessment), run)
        return replace(conclusion_of(message.task, evidence, assessment, stop), wanted_search=run.wanted_search)
    text, citations = render_draft(run.draft)
    caveats = unvouched_sources(evidence, citations)
    if caveats or run.draft.declined:
        assessment = replace(assessment, confidence=below_high(confidence))
    rewritten = f"; found after the question was rewritten ({run.rewrites})" if run.rewrites else ""
    sentences = quantity(len(run.draft.sentences), "sentence")
    reasoning = f"{grade.reason}{rewritten}; {sentences} by {run.draft.by}, each checked"
    findings = findings_of(evidence, citations, (*_fallback_caveats(run), *run.notes))
    answer = AnswerResult(under_caveats(caveats, text), reasoning, findings)
    return conclusion_of(message.task, evidence, assessment, answer)


def _stop(message: TaskDelegated, stop: StopResult, run: Run) -> StopResult:
    """Return the stop with the notes of the run, and the web pages it found as documents to ingest."""
    leads = tuple(
        Need(
            kind="document",
            what=f"an untrusted page that may contain the answer: {lead.title}",
            how=f"counterpoint ingest {lead.url} --project {message.project}",
        )
        for lead in run.leads
    )
    findings = stop.findings.model_copy(update={"caveats": (*stop.findings.caveats, *run.notes)})
    return replace(stop, needs=(*stop.needs, *leads), findings=findings)


def _fallback_caveats(run: Run) -> tuple[str, ...]:
    if run.ending != "fallback":
        return ()
    unsupported = [verdict.problem for verdict in run.verdicts if not verdict.supported]
    reason = f": the answer drafted from them was not supported ({unsupported[0]})" if unsupported else ""
    return (f"the passages are shown as they were found{reason}",)
