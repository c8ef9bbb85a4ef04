"""Procedures: the sections of documents that answer a failure, each with its steps in order and its conditions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from counterpoint.developer.excerpts.excerpt import Excerpt
from counterpoint.developer.excerpts.likelihood import likelihood_model
from counterpoint.developer.excerpts.relevance import Hit
from counterpoint.developer.excerpts.selection import select
from counterpoint.developer.excerpts.summaries import summary_of
from counterpoint.proto.findings import Citation

MOST, NEAR = 4, 0.6
"""Sections that are offered for one failure, none of which fits less than the best one by more than this."""
NAMED = 0.75
"""The least likelihood of a section that holds the very code of the failure."""


@dataclass(frozen=True)
class Procedure:
    """A section that may answer a failure. `code` is what of the failure it names literally, `more` is quoted beside
    it, and `likelihood_model` is the probability in [0, 1] that it answers."""

    excerpt: Excerpt
    more: tuple[Excerpt, ...]
    likelihood: float
    code: str | None

    @property
    def source(self) -> str:
        """The document."""
        return self.excerpt.section.source

    @cached_property
    def text(self) -> str:
        """Return the steps as they stand in the document."""
        return "\n\n".join(self.excerpt.quotes)

    @property
    def summary(self) -> str | None:
        """Its heading and the beginnings of its steps, in a line."""
        return summary_of(self.excerpt.section.path, self.numbered)

    @property
    def hits(self) -> tuple[Hit, ...]:
        """The passages it is made of."""
        return self.excerpt.section.hits

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Return the spans that it quotes."""
        return self.excerpt.citations

    @property
    def likely(self) -> bool:
        """Whether it may be proposed on its own."""
        return self.likelihood >= likelihood_model().threshold

    @property
    def numbered(self) -> tuple[str, ...]:
        """Its numbered steps in their order."""
        units = [self.excerpt.section.units[n] for n in self.excerpt.units]
        return tuple(unit.text for unit in units if unit.kind == "step")

    @cached_property
    def steps(self) -> tuple[str, ...]:
        """The same; its other parts where it has none."""
        units = [self.excerpt.section.units[n] for n in self.excerpt.units]
        return self.numbered or tuple(unit.text for unit in units if unit.kind in ("item", "paragraph", "term", "row"))


def procedures(failure: str, found: Sequence[Hit], beside: Sequence[Hit] = ()) -> tuple[Procedure, ...]:
    """The sections for a failure, best first, of what somebody trusted has put in.

    One that holds its error code, exception or alert name literally comes before those that do not.
    """
    trusted = [hit for hit in found if hit.trusted]
    selected = select(failure, trusted, [hit for hit in beside if hit.trusted], failure=True)
    if selected is None:
        return ()
    best, *_ = selected.ranked
    made = []
    for one in selected.ranked:
        code = one.named
        if one.worth < best.worth - NEAR and code is None:
            continue
        shown = selected.excerpts if one is best else (one.excerpt,)
        likely = selected.likelihood_of(one, shown)
        made.append(Procedure(shown[0], shown[1:], max(likely, NAMED) if code else likely, code))
    return tuple(sorted(made, key=lambda each: each.code is None)[:MOST])
