"""Plans for systems without an official provider: what was searched, what is known, and what is left to do. Pure.

A plan is a document for people, never code, and proposes no stand-in for a provider.
"""

import re

from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.excerpts.citations import cite, labelled_quote
from counterpoint.developer.excerpts.passages import passages
from counterpoint.developer.language.words import content_words
from counterpoint.developer.policies.plan_sections import PlanText, WrittenPlan, provider_rows, searched
from counterpoint.proto.findings import Citation
from counterpoint.proto.plans import PlanDocument
from counterpoint.proto.tasks import TaskDelegated
from counterpoint.proto.titles import title_of

KNOWN = 5
"""Maximum number of quotes about the systems."""
_STEPS = """1. Confirm the name: the index may know the system under another one. Depends on nothing.
2. Look for an official package of it, released since the index was made, and ingest it. Depends on 1.
3. If there is none, ingest the documentation of its interface and choose an alternative. Depends on 2.
4. Record the decision and its reasons where the team keeps its architecture. Depends on 3.
5. Submit the task again, with the name in `systems`. Depends on 2 or 4."""
_ALTERNATIVES = """- Another name or alias of the system in the provider index.
- An official package that the index lacks.
- An exchange through a system that has a provider: {others}.
- No alternative: code of one's own in place of a provider, or a general operator that runs commands or functions."""
_OPEN = """- Who owns {system}, and who may grant access to it?
- How do clients log in, and where is the secret kept?
- Which of its data is needed, how much, how often, and in which direction?
- What does it guarantee: order, repetition, limits of its interface?"""

_RECORD = """- Status: proposed; a person decides.
- Context: {system} has no official provider, and {why}.
- Options: the alternatives above.
- Decision: open. It is made in step 4, and needs the open points below.
- Consequences to name: who owns what takes the place of a provider, what is lost when it fails, and how it is replaced
  once there is a provider."""


def plan_path(system: str) -> str:
    """Return the path under which the plan of a system belongs into the documents of a project."""
    words = "_".join(re.findall(r"[^\W_]+", system.lower()))
    return f"docs/provider_plan_{words or 'system'}.md"


def provider_plans(
    message: TaskDelegated, evidence: Evidence, written: WrittenPlan | None = None
) -> tuple[tuple[PlanDocument, ...], tuple[Citation, ...]]:
    """Return the plans of the missing systems of a task as documents, and the citations of their quotes.

    What a model wrote is in the first plan; the others point to it.
    """
    documents: list[PlanDocument] = []
    citations: dict[str, Citation] = {}
    for system in evidence.providers.missing:
        path = plan_path(system)
        if any(path == each.path for each in documents):
            continue
        plan = _plan(system, message, evidence, None if documents else written)
        if documents and written:
            plan.blocks.append(f"What concerns the whole task is in `{documents[0].path}`.")
        documents.append(PlanDocument(path=path, system=system, text=plan.text()))
        citations |= {each.model_dump_json(): each for each in plan.citations}
    return tuple(documents), tuple(citations.values())


def _plan(system: str, message: TaskDelegated, evidence: Evidence, written: WrittenPlan | None) -> PlanText:
    task, plan = message.task, PlanText()
    job = task.target.job.name if task.target and task.target.job else None
    others = ", ".join(name for name, _ in evidence.providers.found) or "the task names none"
    plan.blocks += [
        f"# Provider plan: {system}",
        f"`{plan_path(system)}`, for “{title_of(task.description, task.title, task.error_message, job)}”. "
        "The provider index has no official provider of this system, so no code is written for it.",
    ]
    plan.section("Searched", searched(evidence))
    known: list[str] = []
    for citation in _about(system, evidence):
        known += labelled_quote(f"From {citation.source_path}", citation.quote, plan.number(citation))
    plan.section("Known about it", *(known or [f"No trusted document of this project mentions {system}."]))
    plan.section("Architecture", plan.lines(written, "architecture"))
    rows = "\n".join([f"- {system}: none known", *provider_rows(evidence)])
    plan.section(
        "Connections and operators", rows, plan.lines(written, "connections"), plan.lines(written, "operators")
    )
    plan.section("Alternatives", _ALTERNATIVES.format(others=others), plan.lines(written, "alternatives"))
    plan.section("Steps", _STEPS, *_written_steps(plan, written))
    if why := _reaches(system, evidence):
        plan.section("Decision record", _RECORD.format(system=system, why=why))
    plan.section("Open points", _OPEN.format(system=system), plan.lines(written, "open_points"))
    return plan


def _written_steps(plan: PlanText, written: WrittenPlan | None) -> tuple[str, ...]:
    return (f"After that, in the words of {written.by}:", plan.steps(written)) if written else ()


def _reaches(system: str, evidence: Evidence) -> str | None:
    """Return in words what a decision on a system reaches beyond it: other systems of the task, and what lies
    downstream of its target; None if nothing is known."""
    names = [name for name, _ in evidence.providers.found] + [
        each for each in evidence.providers.missing if each != system
    ]
    radius = evidence.downstream.radius
    count = len({(each.kind, each.namespace, each.name) for each in radius.downstream}) if radius else 0
    parts = [f"the task connects it with {', '.join(names)}"] if names else []
    parts += [f"{count} jobs and data sets are downstream of {evidence.downstream.name}"] if count else []
    return ", and ".join(parts) or None


def _about(system: str, evidence: Evidence) -> list[Citation]:
    """Return the first passages of trusted documents that have all words of the name of a system."""
    words = content_words(system)
    quoted = [
        cite(hit, passage)
        for hit in evidence.found
        if hit.trusted
        for passage in passages(hit.text, hit.markdown)
        if words and words <= content_words(passage.text)
    ]
    return quoted[:KNOWN]
