"""Decisions of the lanes: an answer, a proposal or a stop, from evidence and its assessment."""

from collections.abc import Callable
from dataclasses import replace

from counterpoint.developer.evidence.calibration import Calibration
from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.evidence.lessons import warnings
from counterpoint.developer.evidence.providers import provider_needs
from counterpoint.developer.excerpts.answers import QuestionHits
from counterpoint.developer.policies.assessment import Assessment, assess, under_constraints
from counterpoint.developer.policies.findings import candidates, findings_of, under_caveats, unvouched_sources
from counterpoint.developer.policies.plan_sections import WrittenPlan
from counterpoint.developer.policies.prohibitions import is_forbidden
from counterpoint.developer.policies.proposals import best_known_fix, is_left_out, propose
from counterpoint.developer.policies.provider_plan import plan_path, provider_plans
from counterpoint.developer.policies.results import (
    AnswerResult,
    Conclusion,
    ProposalResult,
    Result,
    StopResult,
    conclusion_of,
)
from counterpoint.developer.policies.task_plan import task_plan
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.tasks import Need, TaskDelegated
from counterpoint.proto.titles import title_of


def conclude(message: TaskDelegated, evidence: Evidence, calibration: Calibration) -> Conclusion:
    """Assess the evidence for a task and decide by its lane. Raises `Permanent` for an unknown lane."""
    decide = _DECIDE.get(message.lane)
    if decide is None:
        problem = f"unknown lane {message.lane}"
        raise Permanent(ErrorCode.UNKNOWN_LANE, (Problem(field="lane", problem=problem),))
    kept = (lesson for lesson in evidence.lessons if not is_left_out(lesson.text, message))
    evidence = replace(evidence, lessons=tuple(kept))
    assessment = under_constraints(message, assess(message, evidence, calibration))
    return conclusion_of(message.task, evidence, assessment, decide(message, evidence, assessment, calibration))


def _answer(message: TaskDelegated, evidence: Evidence, assessment: Assessment, calibration: Calibration) -> Result:
    if not assessment.passed:
        return insufficient_evidence(message, evidence, assessment)
    if evidence.instruction:
        return _instructed(message, evidence, assessment, calibration)
    found = QuestionHits(message.task.description, evidence.answers, evidence.neighbours)
    answer = found.quoted(calibration.answer.threshold)
    text = under_caveats(unvouched_sources(evidence, answer.citations), answer.text)
    return AnswerResult(text, assessment.reasoning, findings_of(evidence, answer.citations, assessment.caveats))


def _instructed(message: TaskDelegated, evidence: Evidence, assessment: Assessment, calibration: Calibration) -> Result:
    proposal = propose((), (), calibration.topic.threshold, evidence.instruction)
    if proposal is None:
        raise ValueError("an instruction always results in a proposal")
    findings = findings_of(evidence, proposal.citations, assessment.caveats)
    return AnswerResult(proposal.text, assessment.reasoning, findings)


def _investigate(
    message: TaskDelegated, evidence: Evidence, assessment: Assessment, calibration: Calibration
) -> Result:
    failed = warnings(evidence.lessons)
    if not assessment.passed:
        return _low_confidence(message, evidence, assessment)
    offers = assessment.offered
    proposal = propose(evidence.lessons, offers, calibration.topic.threshold, evidence.instruction, evidence.failure)
    if proposal is None and not any(lesson.failures or lesson.used_in_task for lesson in evidence.lessons):
        return _low_confidence(message, evidence, assessment)
    if proposal is None:
        return StopResult(
            "repeated_failure",
            "every known fix was tried for this failure, and there is no reason to try one again",
            findings_of(evidence, (), (*assessment.caveats, *failed)),
            (_document_need(message), _override_need()),
        )
    caveats = (*assessment.caveats, *failed)
    if proposal.reason:
        caveats = (*caveats, f"proposed again although it {proposal.reason}")
    basis = proposal.citations[0].source_path
    return ProposalResult(
        proposal,
        f"{assessment.reasoning}; proposed from {basis}",
        findings_of(evidence, proposal.citations, caveats, proposal.next_steps, proposal.likelihood),
    )


def _plan(message: TaskDelegated, evidence: Evidence, assessment: Assessment, calibration: Calibration) -> Result:
    if evidence.providers.missing and evidence.instruction is None:
        return no_provider(message, evidence)
    if not assessment.passed:
        return _low_confidence(message, evidence, assessment)
    if evidence.instruction:
        return _instructed(message, evidence, assessment, calibration)
    plan = task_plan(message, evidence, calibration)
    if plan is None:
        return insufficient_evidence(message, evidence, assessment)
    findings = findings_of(evidence, plan.citations, assessment.caveats)
    return AnswerResult(plan.text, assessment.reasoning, findings, plan.claim)


def _build(message: TaskDelegated, evidence: Evidence, assessment: Assessment, calibration: Calibration) -> Result:
    if evidence.providers.missing and evidence.instruction is None:
        return no_provider(message, evidence)
    plan = task_plan(message, evidence, calibration)
    caveats = (*assessment.caveats, *warnings(evidence.lessons))
    citations = plan.citations if plan else candidates(evidence.found, message.task.description)
    if plan is None and citations:
        caveats = (*caveats, "the citations are candidates, not a plan")
    what = (
        "a language model that writes code, which this release does not have: write the code and report the outcome, "
        "or cancel the task"
    )
    return StopResult(
        "no_model",
        f"{assessment.reasoning}; this release has no model that writes code",
        findings_of(evidence, citations, caveats),
        (Need(kind="model", what=what, how=""),),
        plan.text if plan else None,
    )


def insufficient_evidence(message: TaskDelegated, evidence: Evidence, assessment: Assessment) -> StopResult:
    """Stop for lack of evidence, with candidates to read instead of an answer."""
    found = candidates(evidence.answers, message.task.description)
    caveats = (*assessment.caveats, *(["the citations are candidates, not an answer"] if found else []))
    return StopResult(
        "insufficient_evidence",
        assessment.reasoning,
        findings_of(evidence, found, caveats),
        (_document_need(message),),
    )


def _low_confidence(message: TaskDelegated, evidence: Evidence, assessment: Assessment) -> StopResult:
    """Stop for lack of confidence, with the fix of the most similar failure as an offer."""
    permitted = [lesson for lesson in evidence.lessons if not is_forbidden(message, lesson.text)]
    offer = best_known_fix(permitted, evidence.failure) if message.lane == "investigate" else None
    citations = (*(offer.citations if offer else ()), *candidates(evidence.found, message.task.description))
    caveats = (*assessment.caveats, *warnings(evidence.lessons))
    return StopResult(
        "low_confidence",
        assessment.reasoning,
        findings_of(evidence, citations, caveats, (), offer.likelihood if offer else None),
        (_document_need(message), _override_need()),
        offer.text if offer else None,
    )


def no_provider(message: TaskDelegated, evidence: Evidence, written: WrittenPlan | None = None) -> StopResult:
    """Stop with a plan for people, and the passages to read about it."""
    missing = evidence.providers.missing
    plans, citations = provider_plans(message, evidence, written)
    return StopResult(
        "no_provider",
        f"no official provider is known for {', '.join(missing)}; the plan says what is missing and replaces none",
        findings_of(evidence, (*citations, *candidates(evidence.found, message.task.description)), ()),
        provider_needs({system: plan_path(system) for system in missing}, message.project),
        "\n\n".join(plan.text for plan in plans),
        plans,
    )


def _subject(message: TaskDelegated) -> str:
    task = message.task
    if task.systems:
        return ", ".join(task.systems)
    job = task.target.job.name if task.target and task.target.job else None
    return f"“{title_of(task.description, task.title, task.error_message, job)}”"


def _document_need(message: TaskDelegated) -> Need:
    return Need(
        kind="document",
        what=f"a runbook, an architecture note or an example about {_subject(message)}",
        how="",
    )


def _override_need() -> Need:
    return Need(kind="decision", what="an override: an instruction and its reason", how="")


_DECIDE: dict[str, Callable[[TaskDelegated, Evidence, Assessment, Calibration], Result]] = {
    "answer": _answer,
    "investigate": _investigate,
    "plan": _plan,
    "build": _build,
}
"""The decision function of each lane."""
