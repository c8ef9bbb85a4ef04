"""Sections of a plan: what the rules state, and below it what a model wrote and memory supports. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.excerpts.citations import references
from counterpoint.proto.findings import Citation
from counterpoint.proto.providers import Provider

NAMES = 10
"""Maximum number of operators or connection types of a provider in a plan."""


@dataclass(frozen=True)
class WrittenLine:
    """A sentence of a model and what it cites."""

    text: str
    cited: tuple[Citation, ...]


@dataclass(frozen=True)
class WrittenStep:
    """A step of a model: its sentences, and the places in the plan of the steps before it, from 1.

    `cut`: it also depends on steps that were left out.
    """

    lines: tuple[WrittenLine, ...]
    after: tuple[int, ...] = ()
    cut: bool = False


@dataclass(frozen=True)
class WrittenPlan:
    """The supported part of a plan that the model `by` wrote: lines by part, and the steps in their order."""

    by: str
    parts: Mapping[str, tuple[WrittenLine, ...]]
    steps: tuple[WrittenStep, ...]

    @property
    def text(self) -> str:
        """The sentences of all parts."""
        lines = [
            *(line for part in self.parts.values() for line in part),
            *(line for step in self.steps for line in step.lines),
        ]
        return "\n".join(line.text for line in lines)


@dataclass
class PlanText:
    """A plan in the making: its blocks, and the citations in the order of their numbers."""

    blocks: list[str] = field(default_factory=list)
    citations: list[Citation] = field(default_factory=list)

    def section(self, title: str, *blocks: str) -> None:
        """Add a section, unless it is empty."""
        kept = [block for block in blocks if block]
        if kept:
            self.blocks += [f"## {title}", *kept]

    def number(self, citation: Citation) -> int:
        """Return the number of a citation, a new one for a new citation."""
        if citation not in self.citations:
            self.citations.append(citation)
        return self.citations.index(citation) + 1

    def lines(self, written: WrittenPlan | None, part: str) -> str:
        """Return the lines of a part that a model wrote, as a list."""
        return "\n".join(f"- {self._line(line)}" for line in (written.parts.get(part, ()) if written else ()))

    def steps(self, written: WrittenPlan | None) -> str:
        """Return the steps that a model wrote, each with the steps that it depends on."""
        steps = written.steps if written else ()
        return "\n".join(f"{n}. {self._step(step)}" for n, step in enumerate(steps, 1))

    def text(self) -> str:
        """Return the plan with its references."""
        cited = references(self.citations)
        return "\n\n".join([*self.blocks, *([cited] if cited else [])])

    def _step(self, step: WrittenStep) -> str:
        said = " ".join(self._line(line) for line in step.lines)
        cut = " It also depends on a step that memory does not support." if step.cut else ""
        return f"{said} {depends_on(step.after)}{cut}"

    def _line(self, line: WrittenLine) -> str:
        marks = "".join(f"[{self.number(each)}]" for each in line.cited)
        return f"{line.text.removeprefix('- ')} {marks}"


def depends_on(steps: Sequence[int]) -> str:
    """Return the steps that a step depends on, in words."""
    return f"Depends on {', '.join(map(str, steps)) if steps else 'nothing'}."


def searched(evidence: Evidence) -> str:
    """Return what was searched, a line each."""
    return "\n".join(f"- {text.splitlines()[0][:300]}" for text in evidence.searched_for)


def provider_rows(evidence: Evidence) -> list[str]:
    """Return the providers of the systems of a task, a line each."""
    return [
        f"- {name}: `{provider.package}`; connections {_names(provider.connection_types)}; "
        f"operators {_names(_operators(provider))}"
        for name, provider in evidence.providers.found
    ]


def _operators(provider: Provider) -> tuple[str, ...]:
    return (*provider.operators, *provider.sensors)


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return f"{', '.join(names[:NAMES])}{more}" if names else "none"
