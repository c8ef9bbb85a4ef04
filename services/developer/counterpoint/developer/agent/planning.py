"""Plans by a model: the form of their proposals, judged by the provider index, and their conclusion. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from counterpoint.developer.agent.conclusion import with_caveat
from counterpoint.developer.agent.form import Form, Statement
from counterpoint.developer.agent.investigation import Investigation, ProposalSection
from counterpoint.developer.agent.judge import act_of, still_supported
from counterpoint.developer.agent.readings import Reading
from counterpoint.developer.evidence.calibration import Calibration
from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.policies.findings import findings_of
from counterpoint.developer.policies.lanes import no_provider
from counterpoint.developer.policies.plan_sections import WrittenLine, WrittenPlan, WrittenStep
from counterpoint.developer.policies.prohibitions import is_forbidden
from counterpoint.developer.policies.provider_rules import objection_to
from counterpoint.developer.policies.results import AnswerResult, Conclusion, Result, StopResult, conclusion_of
from counterpoint.developer.policies.task_plan import task_plan
from counterpoint.proto.findings import Findings
from counterpoint.proto.tasks import TaskDelegated
from counterpoint.proto.words import quantity


def _problem(statement: Statement, evidence: Evidence) -> str | None:
    return objection_to(statement.sentence.text, evidence.providers)


PLAN = Form(
    decision_type="plan",
    task="You write the plan of one change to data pipelines, for people. You write no code.",
    parts={
        "architecture": "where the parts run and how data flows between them",
        "connections": "the connections that are needed, with their types",
        "operators": "the operators, sensors and hooks of official provider packages to use",
        "alternatives": "other ways, with what speaks for and against them",
        "steps": "what to do, one thing each; `after` has the numbers of the steps it depends on, from 1",
        "open_points": "what the readings leave undecided",
    },
    act="steps",
    act_name="step",
    rules=(
        "Name only packages, operators, sensors and hooks that the readings of the provider index have.",
        "A system without a provider has none: propose no stand-in, and no general operator in its place.",
    ),
    supporting=frozenset({"document", "attempt", "provider"}),
    problem=_problem,
)


def conclude_plan(
    message: TaskDelegated,
    rules: Conclusion,
    run: Investigation,
    readings: Sequence[Reading],
    calibration: Calibration,
) -> Conclusion:
    """Return the conclusion of an ended run: the plan of the rules with what a model wrote and memory supports.

    Confidence, and whether to answer or to stop, are those of the rules. After a stop the plan is an offer.
    """
    supported = still_supported(run.sections, readings, PLAN, rules.evidence)
    sections = tuple(each for each in supported if each.part != "steps" or not _is_forbidden(message, each))
    if run.ending != "proposed" or act_of(sections, PLAN) is None:
        reason = run.reason or "what it cited has changed"
        return with_caveat(rules, f"the plan is that of the rules, a model added nothing: {reason}")
    written = written_plan(sections, run.model or "a model")
    cited = {(each.store, each.id, each.version) for section in sections for each in section.cited}
    known = {(hit.item.store, hit.item.id, hit.item.version) for hit in rules.evidence.found}
    more = tuple(one.hit for one in readings if one.kind == "document" and one.key in cited - known)
    evidence = replace(rules.evidence, found=(*rules.evidence.found, *more))
    result = _result(message, evidence, rules.result, written, run, calibration)
    return replace(conclusion_of(message.task, evidence, rules.assessment, result), model=run.model)


def written_plan(sections: Sequence[ProposalSection], model: str) -> WrittenPlan:
    """Return the supported sections as a plan. Steps are numbered anew; a step depends on earlier steps alone."""
    steps = [section for section in sections if section.part == "steps"]
    places = {section.number: place for place, section in enumerate(steps, 1)}
    numbered = []
    for section in steps:
        named = [number for number in dict.fromkeys(section.after) if 0 < number < (section.number or 0)]
        after = tuple(sorted(places[number] for number in named if number in places))
        numbered.append(WrittenStep(_lines(section), after, cut=len(after) < len(named)))
    parts = {section.part: _lines(section) for section in sections if section.part != "steps"}
    return WrittenPlan(model, parts, tuple(numbered))


def _is_forbidden(message: TaskDelegated, section: ProposalSection) -> bool:
    return any(is_forbidden(message, sentence.text) for sentence in section.draft.sentences)


def _lines(section: ProposalSection) -> tuple[WrittenLine, ...]:
    return tuple(
        WrittenLine(sentence.text, tuple(section.draft.citations[n] for n in sentence.rests_on))
        for sentence in section.draft.sentences
    )


def _result(
    message: TaskDelegated,
    evidence: Evidence,
    rules: Result,
    written: WrittenPlan,
    run: Investigation,
    calibration: Calibration,
) -> Result:
    caveats = [f"what is marked as such was written by {written.by}; the quoted texts are those of memory"]
    if run.cut:
        caveats.append(f"statements of the model that memory does not support were left out: {run.cut}")
    turns = f"; a plan after {quantity(len(run.turns), 'turn')} of {written.by}"
    if isinstance(rules, StopResult) and rules.code == "no_provider":
        stop = no_provider(message, evidence, written)
        return replace(stop, reasoning=stop.reasoning + turns, findings=_noted(stop.findings, caveats))
    plan = task_plan(message, evidence, calibration, written)
    assert plan is not None, "what a model wrote makes a plan"
    findings = findings_of(evidence, plan.citations, rules.findings.caveats, rules.findings.next_steps)
    reasoning, findings = rules.reasoning + turns, _noted(findings, caveats)
    if isinstance(rules, StopResult):
        return replace(rules, reasoning=reasoning, findings=findings, text=plan.text)
    assert isinstance(rules, AnswerResult), "a plan is no proposal"
    return AnswerResult(plan.text, reasoning, findings, plan.claim)


def _noted(findings: Findings, caveats: Sequence[str]) -> Findings:
    return findings.model_copy(update={"caveats": tuple(dict.fromkeys((*findings.caveats, *caveats)))})
