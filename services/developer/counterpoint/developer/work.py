"""Work: what the developer comes to for a delegated task, decided from evidence alone (rows A2-A6, A8; offline)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from counterpoint.developer.answers import answer
from counterpoint.developer.assessment import Assessment
from counterpoint.developer.attempts import similar
from counterpoint.developer.citations import cite, references
from counterpoint.developer.confidence import band, unvouched
from counterpoint.developer.evidence import Evidence
from counterpoint.developer.lessons import warnings
from counterpoint.developer.passages import passages
from counterpoint.developer.proposals import Proposal, offered, propose
from counterpoint.developer.providers import needs as provider_needs
from counterpoint.developer.rag.generate import rendered
from counterpoint.developer.rag.run import Graded, Run
from counterpoint.developer.relevance import Calibration, Grade, Hit
from counterpoint.proto.decisions import Confidence
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.findings import Citation, Findings
from counterpoint.proto.tasks import EscalationCode, Need, TaskDelegated
from counterpoint.proto.titles import title_of

CANDIDATES = 3
PLAN_STEPS = 12


@dataclass(frozen=True)
class Answered:
    """The work is done: a text of quotes."""

    text: str
    reasoning: str
    findings: Findings


@dataclass(frozen=True)
class Proposed:
    """Something to try."""

    proposal: Proposal
    reasoning: str
    findings: Findings


@dataclass(frozen=True)
class Stopped:
    """The work cannot go on without what `needs` lists; where one says no `how`, the manager does."""

    code: EscalationCode
    reasoning: str
    findings: Findings
    needs: tuple[Need, ...]
    text: str | None = None


Result = Answered | Proposed | Stopped


def concluded(message: TaskDelegated, evidence: Evidence, run: Run) -> tuple[Assessment, Result]:
    """What a run over a question came to."""
    assert run.graded is not None or run.ending == "insufficient_evidence", "what was found has been graded"
    graded = run.graded or Graded(sufficient=False, probability=0.0, reason="nothing could be looked up")
    reached = band(graded.probability) if run.ending == "answered" else "low"
    confidence = Confidence(score=round(graded.probability, 4), band=reached)
    assessment = Assessment(
        confidence, Grade(run.ending != "insufficient_evidence", graded.probability, graded.reason), None, graded.reason
    )
    if run.ending == "insufficient_evidence" or run.draft is None:
        declined = "; whoever was to word the answer found none in it" if run.draft and run.draft.declined else ""
        stopped = _unfounded(message, evidence, assessment)
        leads = tuple(
            Need(kind="document", what=f"a page that may hold it, which nobody has vouched for: {lead.title}",
                 how=f"counterpoint ingest {lead.url} --project {message.project}")
            for lead in run.leads
        )  # fmt: skip
        findings = stopped.findings.model_copy(update={"caveats": (*stopped.findings.caveats, *run.notes)})
        return assessment, replace(
            stopped, reasoning=f"{stopped.reasoning}{declined}", needs=(*stopped.needs, *leads), findings=findings
        )
    text, citations = rendered(run.draft)
    unsupported = [verdict.problem for verdict in run.verdicts if not verdict.supported]
    fell_back = (
        f"these are the passages as they were found: the answer drafted from them was not supported ({unsupported[0]})"
        if run.ending == "fallback" and unsupported
        else "these are the passages as they were found"
        if run.ending == "fallback"
        else None
    )
    doubts = _unvouched(evidence, citations)
    if doubts:
        assessment = replace(assessment, confidence=unvouched(assessment.confidence))
    caveats = (*((fell_back,) if fell_back else ()), *run.notes)
    corrected = f"; found after it was put in other words ({run.rewrites})" if run.rewrites else ""
    reasoning = f"{graded.reason}{corrected}; {len(run.draft.sentences)} sentences by {run.draft.by}, each checked"
    return assessment, Answered(_doubted(doubts, text), reasoning, _findings(evidence, citations, caveats))


def work(message: TaskDelegated, evidence: Evidence, assessment: Assessment, known: Calibration) -> Result:
    """What comes of it, by the lane of the task. Raises `Permanent` for a lane nobody knows."""
    match message.lane:
        case "answer":
            return _answer(message, evidence, assessment, known)
        case "investigate":
            return _investigate(message, evidence, assessment, known)
        case "plan":
            return _plan(message, evidence, assessment, known)
        case "build":
            return _build(message, evidence, assessment, known)
        case other:
            raise Permanent(ErrorCode.UNKNOWN_LANE, (Problem(field="lane", problem=f"nobody works in lane {other}"),))


def _answer(message: TaskDelegated, evidence: Evidence, assessment: Assessment, known: Calibration) -> Result:
    if not assessment.passed:
        return _unfounded(message, evidence, assessment)
    if evidence.instruction:
        return _instructed(message, evidence, assessment, known)
    made = answer(message.task.description, evidence.answers, known.answer.threshold, evidence.beside)
    text = _doubted(_unvouched(evidence, made.citations), made.text)
    return Answered(text, assessment.reasoning, _findings(evidence, made.citations, assessment.caveats))


def _unvouched(evidence: Evidence, citations: Sequence[Citation]) -> tuple[str, ...]:
    """A caveat for each cited source that nobody trusted has put in."""
    cited = {citation.id for citation in citations}
    found = (*evidence.answers, *evidence.beside, *evidence.found)
    sources = dict.fromkeys(hit.source for hit in found if hit.item.id in cited and not hit.trusted)
    return tuple(f"nobody trusted has vouched for {source}" for source in sources)


def _doubted(doubts: Sequence[str], text: str) -> str:
    """The text under what speaks against trusting it."""
    return "\n\n".join([*(f"{doubt[0].upper()}{doubt[1:]}." for doubt in doubts), text])


def _instructed(message: TaskDelegated, evidence: Evidence, assessment: Assessment, known: Calibration) -> Result:
    made = propose((), (), known.topic.threshold, evidence.instruction)
    if made is None:
        raise ValueError("an instruction always makes a text")
    return Answered(made.text, assessment.reasoning, _findings(evidence, made.citations, assessment.caveats))


def _investigate(message: TaskDelegated, evidence: Evidence, assessment: Assessment, known: Calibration) -> Result:
    failed = warnings(evidence.known)
    if not assessment.passed:
        return _low(message, evidence, assessment)
    offers = assessment.offered
    made = propose(evidence.known, offers, known.topic.threshold, evidence.instruction, evidence.failure)
    if made is None and not any(lesson.failures or lesson.used_here for lesson in evidence.known):
        return _low(message, evidence, assessment)
    if made is None:
        return Stopped(
            "repeated_failure",
            "everything known was tried for this failure, and there is no reason to try any of it again",
            _findings(evidence, (), (*assessment.caveats, *failed)),
            (_document_need(message), _override_need()),
        )
    caveats = (*assessment.caveats, *failed)
    if made.reason:
        caveats = (*caveats, f"proposed again although it {made.reason}")
    basis = made.citations[0].source_path
    return Proposed(
        made,
        f"{assessment.reasoning}; proposed from {basis}",
        _findings(evidence, made.citations, caveats, made.next_steps, made.likelihood),
    )


def _plan(message: TaskDelegated, evidence: Evidence, assessment: Assessment, known: Calibration) -> Result:
    if evidence.providers.missing and evidence.instruction is None:
        return _no_provider(message, evidence)
    if not assessment.passed:
        return _low(message, evidence, assessment)
    if evidence.instruction:
        return _instructed(message, evidence, assessment, known)
    text, citations = _outline(evidence, known)
    if text is None:
        return _unfounded(message, evidence, assessment)
    return Answered(text, assessment.reasoning, _findings(evidence, citations, assessment.caveats))


def _build(message: TaskDelegated, evidence: Evidence, assessment: Assessment, known: Calibration) -> Result:
    if evidence.providers.missing and evidence.instruction is None:
        return _no_provider(message, evidence)
    text, citations = _outline(evidence, known)
    caveats = (*assessment.caveats, *warnings(evidence.known))
    if text is None:
        citations, caveats = _candidates(evidence.found), (*caveats, "the citations are candidates, no plan")
    what = "a language model that writes code; this release has none: write it and say so, or cancel the task"
    return Stopped(
        "no_model",
        f"{assessment.reasoning}; code is written by a model, and there is none",
        _findings(evidence, citations, caveats),
        (Need(kind="model", what=what, how=""),),
        text,
    )


def _unfounded(message: TaskDelegated, evidence: Evidence, assessment: Assessment) -> Stopped:
    caveats = (*assessment.caveats, "the citations are candidates, no answer")
    return Stopped(
        "insufficient_evidence",
        assessment.reasoning,
        _findings(evidence, _candidates(evidence.answers), caveats),
        (_document_need(message),),
    )


def _low(message: TaskDelegated, evidence: Evidence, assessment: Assessment) -> Stopped:
    """A stop for lack of confidence, with the fix of the failure that looks most alike as an offer."""
    offer = offered(evidence.known, evidence.failure) if message.lane == "investigate" else None
    citations = (*(offer.citations if offer else ()), *_candidates(evidence.found))
    caveats = (*assessment.caveats, *warnings(evidence.known))
    return Stopped(
        "low_confidence",
        assessment.reasoning,
        _findings(evidence, citations, caveats, (), offer.likelihood if offer else None),
        (_document_need(message), _override_need()),
        offer.text if offer else None,
    )


def _no_provider(message: TaskDelegated, evidence: Evidence) -> Stopped:
    missing = evidence.providers.missing
    return Stopped(
        "no_provider",
        f"no official provider is known for {', '.join(missing)}; nothing is built around a missing provider",
        _findings(evidence, _candidates(evidence.found), ()),
        provider_needs(missing, message.project),
    )


def _outline(evidence: Evidence, known: Calibration) -> tuple[str | None, tuple[Citation, ...]]:
    """A plan made of the steps of the best trusted passages, and the providers to use; None without either."""
    steps = [
        cite(hit, passage)
        for hit in evidence.found
        if hit.trusted and hit.relevance >= known.topic.threshold
        for passage in passages(hit.text, hit.markdown)
    ][:PLAN_STEPS]
    packages = [f"{system}: {provider.package}" for system, provider in evidence.providers.found]
    if not steps and not packages:
        return None, ()
    parts = [*packages, *(f"[{number}] {step.quote}" for number, step in enumerate(steps, 1)), references(steps)]
    return "\n\n".join(part for part in parts if part), tuple(steps)


def _candidates(found: Sequence[Hit]) -> tuple[Citation, ...]:
    """The first passage of each of the best hits: where somebody who looks further may begin."""
    firsts = ((hit, passages(hit.text, hit.markdown)) for hit in found[:CANDIDATES])
    return tuple(cite(hit, split[0]).model_copy(update={"role": "candidate"}) for hit, split in firsts if split)


def _findings(
    evidence: Evidence,
    citations: tuple[Citation, ...],
    caveats: tuple[str, ...],
    next_steps: tuple[str, ...] = (),
    likelihood: float | None = None,
) -> Findings:
    return Findings(
        similar_attempts=similar(evidence.tried),
        citations=citations,
        next_steps=next_steps,
        caveats=(*caveats, *_unvouched(evidence, citations)),
        likelihood=likelihood,
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
