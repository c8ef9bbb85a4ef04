"""Plans of tasks whose systems have providers: packages, steps with their dependencies, and open points. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from counterpoint.developer.evidence.calibration import Calibration
from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.excerpts.citations import cite, labelled_quote
from counterpoint.developer.excerpts.passages import passages
from counterpoint.developer.language.words import content_words
from counterpoint.developer.policies.plan_sections import (
    PlanText,
    WrittenPlan,
    depends_on,
    provider_rows,
    searched,
)
from counterpoint.developer.policies.prohibitions import is_forbidden
from counterpoint.developer.policies.provider_rules import objection_to
from counterpoint.proto.findings import Citation
from counterpoint.proto.tasks import TaskDelegated
from counterpoint.proto.titles import title_of

PLAN_STEPS = 12


@dataclass(frozen=True)
class TaskPlan:
    """A plan as markdown, its citations, and `claim`, the part of it that rests on them."""

    text: str
    citations: tuple[Citation, ...]
    claim: str


def task_plan(
    message: TaskDelegated, evidence: Evidence, calibration: Calibration, written: WrittenPlan | None = None
) -> TaskPlan | None:
    """Return a plan from the steps of the best trusted passages, the providers, and what a model wrote; None without
    any of them."""
    quoted, left_out = _quoted_steps(evidence, calibration)
    forbidden = [each for each in quoted if is_forbidden(message, each.quote)]
    quoted, rows = [each for each in quoted if each not in forbidden][:PLAN_STEPS], provider_rows(evidence)
    if not quoted and not rows and written is None:
        return None
    task, plan = message.task, PlanText()
    job = task.target.job.name if task.target and task.target.job else None
    plan.blocks.append(f"# Plan: {title_of(task.description, task.title, task.error_message, job)}")
    plan.section("Searched", searched(evidence))
    plan.section("Architecture", plan.lines(written, "architecture"))
    plan.section(
        "Connections and operators",
        "\n".join(rows),
        plan.lines(written, "connections"),
        plan.lines(written, "operators"),
    )
    plan.section("Alternatives", plan.lines(written, "alternatives"))
    by_model = (f"In the words of {written.by}:", plan.steps(written)) if written else ()
    plan.section("Steps", *by_model, *_as_stated(plan, quoted))
    plan.section("Open points", _open_points(evidence, quoted, left_out, forbidden), plan.lines(written, "open_points"))
    claim = "\n".join([*(each.quote for each in quoted), *([written.text] if written else [])])
    return TaskPlan(plan.text(), tuple(plan.citations), claim)


def _quoted_steps(evidence: Evidence, calibration: Calibration) -> tuple[list[Citation], list[str]]:
    """Return the passages of trusted documents about the task, and the sources of those that have no place in a
    plan."""
    quoted: list[Citation] = []
    left_out: list[str] = []
    for hit in evidence.found:
        if not hit.trusted or hit.relevance < calibration.topic.threshold:
            continue
        for passage in passages(hit.text, hit.markdown):
            if objection_to(passage.text, evidence.providers) is None:
                quoted.append(cite(hit, passage))
            else:
                left_out.append(hit.source)
    return quoted, left_out


def _as_stated(plan: PlanText, quoted: Sequence[Citation]) -> list[str]:
    """Return the steps that documents state; a step depends on the one before it in its document."""
    blocks = ["As documents state them:"] if quoted else []
    last: dict[str, int] = {}
    for place, citation in enumerate(quoted, 1):
        before = (last[citation.source_path],) if citation.source_path in last else ()
        label = f"Step {place} of {citation.source_path}. {depends_on(before)}"
        blocks += labelled_quote(label, citation.quote, plan.number(citation))
        last[citation.source_path] = place
    return blocks


def _open_points(
    evidence: Evidence, quoted: Sequence[Citation], left_out: Sequence[str], forbidden: Sequence[Citation]
) -> str:
    """Return what memory does not say, a line each."""
    stated = content_words("\n".join(each.quote for each in quoted))
    points = [
        f"- No step that is quoted mentions {name}."
        for name, _ in evidence.providers.found
        if not content_words(name) <= stated
    ]
    points += [
        f"- The provider index names no connection type of {name}."
        for name, provider in evidence.providers.found
        if not provider.connection_types
    ]
    if not evidence.providers.found:
        points.append("- The task names no external system: say in `systems` which ones are meant.")
    if not quoted:
        points.append("- No trusted document states a step: ingest a runbook or an example.")
    points += [
        f"- Passages of {source} that are code or name a stand-in for a provider are left out: {number}."
        for source, number in Counter(left_out).items()
    ]
    points += [
        f"- Steps of {source} that a constraint of the task forbids are left out: {number}."
        for source, number in Counter(each.source_path for each in forbidden).items()
    ]
    points.append("- Confirm the order of the steps: documents state that of their own steps alone.")
    return "\n".join(points)
