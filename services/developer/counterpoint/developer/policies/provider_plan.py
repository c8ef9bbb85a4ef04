"""Plans for systems without an official provider: what was searched, what is known, and what is left to do. Pure.

A plan is a document for people, never code, and proposes no stand-in for a provider.
"""

import re
from collections.abc import Sequence

from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.excerpts.citations import cite, labelled_quote, references
from counterpoint.developer.excerpts.passages import passages
from counterpoint.developer.language.words import content_words
from counterpoint.proto.findings import Citation
from counterpoint.proto.tasks import TaskDelegated
from counterpoint.proto.titles import title_of

KNOWN = 5
"""Maximum number of quotes about the systems."""
SHOWN = 10
"""Maximum number of operators or connection types of a provider."""
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


def plan_path(system: str) -> str:
    """Return the path under which the plan of a system belongs into the documents of a project."""
    return f"docs/provider_plan_{'_'.join(re.findall(r'[a-z0-9]+', system.lower())) or 'system'}.md"


def provider_plan(message: TaskDelegated, evidence: Evidence) -> tuple[str, tuple[Citation, ...]]:
    """Return the plans of the missing systems of a task as markdown, and the citations of their quotes."""
    citations: list[Citation] = []
    plans = [_plan(system, message, evidence, citations) for system in evidence.providers.missing]
    text = "\n\n".join(plans)
    return (f"{text}\n\n{references(citations)}" if citations else text), tuple(citations)


def _plan(system: str, message: TaskDelegated, evidence: Evidence, citations: list[Citation]) -> str:
    task = message.task
    job = task.target.job.name if task.target and task.target.job else None
    known: list[str] = []
    for citation in _about(system, evidence):
        citations.append(citation)
        known += labelled_quote(f"From {citation.source_path}", citation.quote, len(citations))
    found = evidence.providers.found
    packages = [
        f"- {name}: `{provider.package}`; connections {_names(provider.connection_types)}; "
        f"operators {_names((*provider.operators, *provider.sensors))}"
        for name, provider in found
    ]
    parts = [
        f"# Provider plan: {system}",
        f"`{plan_path(system)}`, for “{title_of(task.description, task.title, task.error_message, job)}”. "
        "The provider index has no official provider of this system, so no code is written for it.",
        "## Searched",
        "\n".join(f"- {text.splitlines()[0][:300]}" for text in evidence.searched_for),
        "## Known about it",
        *(known or [f"No trusted document of this project mentions {system}."]),
        "## Connections and operators",
        "\n".join([f"- {system}: none known", *packages]),
        "## Alternatives",
        _ALTERNATIVES.format(others=", ".join(name for name, _ in found) or "the task names none"),
        "## Steps",
        _STEPS,
        "## Open points",
        _OPEN.format(system=system),
    ]
    return "\n\n".join(parts)


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


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}" if names else "none"
