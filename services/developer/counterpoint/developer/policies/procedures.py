"""Procedures: sections of documents for a failure, with their steps in order."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from counterpoint.developer.excerpts.excerpt import Excerpt
from counterpoint.developer.excerpts.likelihood import likelihood_model
from counterpoint.developer.excerpts.relevance import Hit
from counterpoint.developer.excerpts.selection import select
from counterpoint.developer.excerpts.summaries import summary_of
from counterpoint.developer.language.question_terms import QuestionTerms
from counterpoint.developer.language.words import content_words
from counterpoint.proto.error_template import without_hosts
from counterpoint.proto.findings import Citation

MOST, NEAR = 4, 0.6
"""Maximum number of sections for one failure, and their maximum score difference to the best."""
CODE_LIKELIHOOD_MIN = 0.82
"""Minimum likelihood of a section that contains the code of the failure."""


@dataclass(frozen=True)
class Procedure:
    """A section for a failure. `code` is the code of the failure in it, `more` are further quoted excerpts, and
    `likelihood` is the probability in [0, 1] that it answers."""

    excerpt: Excerpt
    more: tuple[Excerpt, ...]
    likelihood: float
    code: str | None

    @property
    def source(self) -> str:
        """The name of the document."""
        return self.excerpt.section.source

    @cached_property
    def text(self) -> str:
        """Return the text of the excerpt."""
        return "\n\n".join(self.excerpt.quotes)

    @property
    def summary(self) -> str | None:
        """A one-line summary: its heading and the beginnings of its steps."""
        return summary_of(self.excerpt.section.path, self.numbered)

    @property
    def hits(self) -> tuple[Hit, ...]:
        """The hits that it consists of."""
        return self.excerpt.section.hits

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Return its citations."""
        return self.excerpt.citations

    @property
    def likely(self) -> bool:
        """Whether it may be proposed without other evidence."""
        return self.likelihood >= likelihood_model().failures.threshold

    @property
    def numbered(self) -> tuple[str, ...]:
        """Its numbered steps in order."""
        units = [self.excerpt.section.units[n] for n in self.excerpt.units]
        return tuple(unit.text for unit in units if unit.kind == "step")

    @cached_property
    def steps(self) -> tuple[str, ...]:
        """Its numbered steps, else its other parts."""
        units = [self.excerpt.section.units[n] for n in self.excerpt.units]
        return self.numbered or tuple(unit.text for unit in units if unit.kind in ("item", "paragraph", "term", "row"))


def _is_by_host_alone(failure: str, terms: QuestionTerms, shown: Sequence[Excerpt]) -> bool:
    """Return whether excerpts have no word in common with a failure but those of the names of hosts."""
    rest = without_hosts(failure)
    if rest == failure:
        return False
    text = "\n".join(f"{each.section.headings}\n{each.text}" for each in shown)
    common = terms.words_in(text)
    return bool(common) and common.isdisjoint(content_words(rest))


def procedures(
    failure: str, hits: Sequence[Hit], neighbours: Sequence[Hit] = (), common: frozenset[str] = frozenset()
) -> tuple[Procedure, ...]:
    """Return the sections for a failure from trusted documents, best first; for an alert that none names likely ones.

    Sections that contain its error code, exception or alert name come first, unless that is one of the `common` ones.
    Those with nothing of it but the name of a host are left out.
    """
    trusted = [hit for hit in hits if hit.trusted]
    selected = select(failure, trusted, [hit for hit in neighbours if hit.trusted], failure=True, common=common)
    if selected is None:
        return ()
    best, *_ = selected.ranked
    near = [one for one in selected.ranked if one.worth >= best.worth - NEAR or one.named is not None]
    made: list[Procedure] = []
    for one in sorted(near, key=lambda one: one.named is None):
        beside = selected.excerpts[1:] if one is best else ()
        shown = (selected.excerpts[0] if one is best else one.excerpt, *(each for each in beside if not each.is_table))
        likely = selected.likelihood_of(one, shown)
        if one.named is None and _is_by_host_alone(failure, selected.terms, shown):
            continue
        procedure = Procedure(shown[0], shown[1:], max(likely, CODE_LIKELIHOOD_MIN) if one.named else likely, one.named)
        if procedure.likely or not selected.misses_alert:
            made.append(procedure)
        if len(made) == MOST:
            break
    return tuple(made)
