"""Selection: which sections of what was found are quoted for a question, and what speaks for each. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from counterpoint.developer.codes import codes_of, named
from counterpoint.developer.excerpts import Excerpt, excerpt
from counterpoint.developer.likelihood import likelihood
from counterpoint.developer.rag.validate import exact
from counterpoint.developer.relevance import Grade, Hit
from counterpoint.developer.sections import Section, documents, sections
from counterpoint.developer.wanted import Wanted, wanted
from counterpoint.proto.findings import Citation

LOOKED_AT = 12
"""Sections that are compared."""
WHOLE, SECOND = 1_080, 350
"""Characters of an answer, and of that what a second section may have at most."""
MARGIN = 0.6
"""A section that fits less by more than this is not quoted beside the best one."""
TELLING = 3
"""Characters of a number, a name or a code by which texts are told apart."""
LACKING = 0.2
"""The most likely that an answer is that lacks a port, a version, a price where one is asked for."""
NEXT, KIN = 5, 0.25
LEAST = 150
"""Characters that are worth beginning a second section for."""


@dataclass(frozen=True)
class Candidate:
    """A section with its excerpt and what speaks for it."""

    excerpt: Excerpt
    search: float
    cosine: float
    behind: float
    covered: float
    headings: float
    unit: float
    exact: float
    named: str | None = None

    @property
    def section(self) -> Section:
        """The section."""
        return self.excerpt.section

    @property
    def worth(self) -> float:
        """Fit, comparable among the candidates of one question."""
        return (
            self.search
            - 2 * self.behind
            + self.covered
            + 0.25 * self.headings
            + self.unit
            + self.exact
            + 0.5 * (self.named is not None)
        )


def candidates(wanted: Wanted, sections: Sequence[Section]) -> tuple[Candidate, ...]:
    """The sections that can be quoted, best first."""
    compared = sections[:LOOKED_AT]
    nearest = max((hit.signs.cosine for section in compared for hit in section.found), default=0.0)
    forms = {form for form in exact(wanted.text) if len(form) >= TELLING}
    codes = codes_of(wanted.text)
    made = [_candidate(wanted, section, nearest, forms, codes) for section in compared]
    return tuple(sorted((one for one in made if one is not None), key=lambda one: -one.worth))


def _candidate(
    wanted: Wanted, section: Section, nearest: float, forms: set[str], codes: tuple[str, ...]
) -> Candidate | None:
    made = excerpt(wanted, section, WHOLE)
    if made is None:
        return None
    cosine = max(hit.signs.cosine for hit in section.found)
    return Candidate(
        excerpt=made,
        search=max(hit.item.score or 0.0 for hit in section.found),
        cosine=cosine,
        behind=nearest - cosine,
        covered=wanted.share(wanted.held(f"{made.text}\n{section.headings}")),
        headings=wanted.share(wanted.held(section.headings)),
        unit=made.covered,
        exact=len(forms & exact(made.text)) / len(forms) if forms else 0.0,
        named=named(codes, f"{section.headings}\n{section.text}") if codes else None,
    )


def chosen(wanted: Wanted, ranked: Sequence[Candidate], margin: float = MARGIN) -> tuple[Excerpt, ...]:
    """The excerpts of an answer: of the best section, and where there is room of the next that is nearly as good."""
    first, *rest = ranked
    near = sorted(
        (one for one in rest[:NEXT] if one.worth + _kin(first, one) >= first.worth - margin),
        key=lambda one: -(one.worth + _kin(first, one)),
    )[:2]
    taken = [first.excerpt]
    if near and len(first.excerpt.text) > WHOLE - SECOND:
        smaller = excerpt(wanted, first.section, WHOLE - SECOND)
        taken = [smaller or first.excerpt]
    for one in near:
        left = WHOLE - sum(len(each.text) for each in taken)
        more = excerpt(wanted, one.section, left) if left >= LEAST else None
        if more is not None and len(more.text) <= left:
            taken.append(more)
    return tuple(taken)


def _kin(first: Candidate, other: Candidate) -> float:
    """Weight of a section of the same document as the best one, or a part of it."""
    if first.section.source != other.section.source:
        return 0.0
    return KIN + KIN * other.section.best.context.startswith(f"{first.section.best.context} > ")


@dataclass(frozen=True)
class Selection:
    """The excerpts that are quoted for a question, and all candidates, best first."""

    wanted: Wanted
    ranked: tuple[Candidate, ...]
    excerpts: tuple[Excerpt, ...]

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Return the spans that it quotes."""
        return tuple(citation for each in self.excerpts for citation in each.citations)

    @cached_property
    def signs(self) -> dict[str, float]:
        """Features of the likelihood, by name."""
        return self.signs_of(self.ranked[0])

    def signs_of(self, one: Candidate) -> dict[str, float]:
        """The same of one candidate."""
        found = [hit for each in self.ranked for hit in each.section.found]
        words = self.wanted.known
        unknown = [word for word, said in words.items() if all(said.isdisjoint(hit.words) for hit in found)]
        return {
            "worth": one.worth,
            "permission": float(self.wanted.permission),
            "named": float(one.named is not None),
            "headings": one.headings,
            "unknown": self.wanted.share(unknown),
            "relevance": max(hit.relevance for hit in found),
            "covered": one.covered,
            **self._said(one),
        }

    def _said(self, one: Candidate) -> dict[str, float]:
        """The same of the sentences: what the best of them covers that has the kind of thing asked for, and how much
        of the words for that thing none of them has."""
        asked, about = self.wanted, self.wanted.held(one.section.headings)
        said = named = 0.0
        for n in one.excerpt.units:
            text = one.section.units[n].text
            held = asked.held(text)
            if held and (asked.kind is None or asked.fits(text)):
                said = max(said, asked.share(held | about))
                named = max(named, len(asked.focus & (held | about)) / max(1, len(asked.focus)))
        return {"said": said, "unfocused": 1.0 - named if asked.focus else 0.0}

    @cached_property
    def likelihood(self) -> float:
        """The probability in [0, 1] that it answers."""
        return self.likelihood_of(self.ranked[0])

    def likelihood_of(self, one: Candidate) -> float:
        """The same of one candidate: little where it lacks what alone can answer."""
        signs = self.signs_of(one)
        probable = likelihood().at(signs)
        return (
            min(probable, LACKING)
            if self.wanted.kind is not None and self.wanted.kind.strict and not signs["said"]
            else probable
        )

    @property
    def grade(self) -> Grade:
        """The same as a grade, with its reason."""
        enough = likelihood().threshold
        verdict = (
            "the best section is likely to answer" if self.likelihood >= enough else "no section is likely to answer"
        )
        return Grade(
            self.likelihood >= enough,
            self.likelihood,
            f"{verdict}: {self.likelihood:.2f} where {enough:.2f} is enough (cosine {self.ranked[0].cosine:.2f}, "
            f"words covered {self.ranked[0].covered:.2f})",
        )


def select(question: str, found: Sequence[Hit], beside: Sequence[Hit] = (), loose: bool = False) -> Selection | None:
    """The excerpts for a question; None where nothing of what was found can be quoted, or where, unless `loose`, it is
    no documents."""
    if not found or not (loose or documents(found)):
        return None
    sought = wanted(question, [hit.words for hit in found])
    ranked = candidates(sought, sections(found, beside))
    return Selection(sought, ranked, chosen(sought, ranked)) if ranked else None
