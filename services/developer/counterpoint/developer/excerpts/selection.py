"""Selection: which sections of what was found are quoted for a question, and what speaks for each. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from counterpoint.developer.excerpts.citations import attributed_text, quotes_text
from counterpoint.developer.excerpts.excerpt import Excerpt, excerpt, row_subject
from counterpoint.developer.excerpts.likelihood import likelihood_model
from counterpoint.developer.excerpts.relevance import Grade, Hit
from counterpoint.developer.excerpts.sections import Section, mostly_documents, sections
from counterpoint.developer.language.codes import codes_of, first_code_in
from counterpoint.developer.language.exact_forms import exact
from counterpoint.developer.language.kinds import OWN
from counterpoint.developer.language.question_terms import QuestionTerms, digits, question_terms
from counterpoint.proto.findings import Citation

LOOKED_AT = 12
"""Sections that are compared."""
LIMIT, CUT, TRIES = 1_460, 40, 12
"""Characters of an answer with its references, by how many excerpts are cut to keep to that, and how often."""
COMPARED = 1_300
"""Characters of the excerpts by which sections are compared."""
MARGIN, BESIDE = 1.0, 3
"""A section that fits less by more than this is not quoted beside the best one, nor are more than so many."""
SHARE = 0.5
"""The share of an answer that the best section gets first, where others are to be quoted beside it."""
PLACE, NUMBER = 60, 25
"""Characters of the place of an excerpt, and of one number of it among the references."""
STEPS = 0.3
"""Weight of a section that says what to do, step by step, for a failure."""
TELLING = 3
"""Characters of a number, a name or a code by which texts are told apart."""
LACKING = 0.2
"""The most likely that an answer is that lacks a port, a version, a price where one is asked for."""
AGAIN = 0.05
"""Probability that is asked for besides where other words found it: who looks again finds something in the end."""
LEAST = 150
"""Characters that are worth beginning a second section for."""


@dataclass(frozen=True)
class SectionCandidate:
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
    def instructs(self) -> bool:
        """Whether it holds steps."""
        return any(self.section.units[n].kind == "step" for n in self.excerpt.units)

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


def rank_sections(terms: QuestionTerms, sections: Sequence[Section]) -> tuple[SectionCandidate, ...]:
    """The sections that can be quoted, best first."""
    compared = sections[:LOOKED_AT]
    nearest = max((hit.features.cosine for section in compared for hit in section.found), default=0.0)
    forms = {form for form in exact(terms.text) if len(form) >= TELLING}
    codes = codes_of(terms.text)
    made = [_candidate(terms, section, nearest, forms, codes) for section in compared]
    return tuple(sorted((one for one in made if one is not None), key=lambda one: -one.worth))


def _candidate(
    terms: QuestionTerms, section: Section, nearest: float, forms: set[str], codes: tuple[str, ...]
) -> SectionCandidate | None:
    made = excerpt(terms, section, COMPARED)
    if made is None:
        return None
    cosine = max(hit.features.cosine for hit in section.found)
    return SectionCandidate(
        excerpt=made,
        search=max(hit.item.score or 0.0 for hit in section.found),
        cosine=cosine,
        behind=nearest - cosine,
        covered=terms.share(terms.held(f"{made.text}\n{section.headings}")),
        headings=terms.share(terms.held(section.headings)),
        unit=made.covered,
        exact=len(forms & exact(made.text)) / len(forms) if forms else 0.0,
        named=first_code_in(codes, f"{section.headings}\n{section.text}") if codes else None,
    )


def choose_excerpts(
    terms: QuestionTerms, ranked: Sequence[SectionCandidate], shown: Callable[[Sequence[Citation]], str] = quotes_text
) -> tuple[Excerpt, ...]:
    """The excerpts of an answer: of the best section, and where there is room of the next that are nearly as good.

    `shown` makes the text of what they cite, which is at most `LIMIT` characters long.
    """
    room = LIMIT
    for _ in range(TRIES):
        taken = _taken(terms, ranked, room)
        over = len(shown([citation for each in taken for citation in each.citations])) - LIMIT
        if over <= 0:
            return taken
        room -= max(over, CUT)
    return (excerpt(terms, ranked[0].section, LEAST) or ranked[0].excerpt,)


def _taken(terms: QuestionTerms, ranked: Sequence[SectionCandidate], room: int) -> tuple[Excerpt, ...]:
    first, *rest = ranked
    subject = row_subject(terms, first.section, first.excerpt.best)
    near = [one for one in rest[:BESIDE] if one.worth >= first.worth - MARGIN]
    taken = [excerpt(terms, first.section, int(SHARE * room if near else room) - PLACE) or first.excerpt]
    for one in near:
        left = room - sum(map(_size, taken)) - PLACE
        more = excerpt(terms, one.section, left, subject) if left >= LEAST else None
        if more is not None and _size(more) <= left + PLACE:
            taken.append(more)
    left = room - sum(map(_size, taken[1:])) - PLACE
    whole = excerpt(terms, first.section, left)
    return (whole if whole is not None and _size(whole) <= left + PLACE else taken[0], *taken[1:])


def _size(one: Excerpt) -> int:
    return len(one.text) + NUMBER * len(one.citations) + PLACE


@dataclass(frozen=True)
class Selection:
    """The excerpts that are quoted for a question, and all candidates, best first."""

    terms: QuestionTerms
    ranked: tuple[SectionCandidate, ...]
    excerpts: tuple[Excerpt, ...]

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Return the spans that it quotes."""
        return tuple(citation for each in self.excerpts for citation in each.citations)

    @cached_property
    def likelihood(self) -> float:
        """The probability in [0, 1] that it answers."""
        return self.likelihood_of(self.ranked[0], self.excerpts)

    def likelihood_of(self, one: SectionCandidate, shown: Sequence[Excerpt]) -> float:
        """The same of excerpts of which the first is one candidate's: little where they lack what alone can answer."""
        features = self.features_of(one, shown)
        probable = likelihood_model().at(features)
        return min(probable, LACKING) if self.lacks(features, shown) else probable

    def features_of(self, one: SectionCandidate, shown: Sequence[Excerpt]) -> dict[str, float]:
        """Features of the likelihood, by name."""
        hits = [hit for each in self.ranked for hit in each.section.found]
        others = [other.worth for other in self.ranked if other is not one]
        codes = codes_of(self.terms.text)
        text = "\n".join(f"{each.section.headings}\n{each.text}" for each in shown)
        covered = self.terms.share(self.terms.held(text))
        return {
            "ahead": covered * min(one.worth - max(others, default=one.worth), MARGIN),
            "unnamed": float(bool(codes) and first_code_in(codes, text) is None),
            "unknown": self.terms.share(self.terms.missing),
            "relevance": max(hit.relevance for hit in hits),
            "covered": covered,
            **self._said(shown),
        }

    def _said(self, shown: Sequence[Excerpt]) -> dict[str, float]:
        """The same of the sentences: what the best of them covers that has the kind of thing asked for, and how much
        of the words for that thing none of them has."""
        asked = self.terms
        said = focused = 0.0
        for each in shown:
            about = asked.held(each.section.headings)
            for n in each.units:
                text = each.section.sentences[n]
                held = asked.held(text)
                if held and (asked.kind is None or asked.fits(text)):
                    said = max(said, asked.share(held | about))
                    focused = max(focused, len(asked.focus & (held | about)) / max(1, len(asked.focus)))
        return {"said": said, "unfocused": 1.0 - focused if asked.focus else 0.0}

    def lacks(self, features: Mapping[str, float], shown: Sequence[Excerpt]) -> bool:
        """Whether a thing is asked for that none of the excerpts has, or that only a page of one's own can have."""
        asked = self.terms
        if asked.ours and not any(OWN.search(hit.text) for each in shown for hit in each.section.hits):
            return True
        return asked.kind is not None and asked.kind.strict and not features["said"]

    def grade(self, again: bool = False) -> Grade:
        """Return the likelihood as a grade; evidence found `again`, by a rewritten query, has to be likelier."""
        enough = likelihood_model().threshold + AGAIN * again
        sufficient = self.likelihood >= enough
        verdict = "the best section is likely to answer" if sufficient else "no section is likely to answer"
        best = self.ranked[0]
        figures = (
            f"{self.likelihood:.2f}, threshold {enough:.2f} "
            f"(cosine {best.cosine:.2f}, words covered {best.covered:.2f})"
        )
        return Grade(sufficient=sufficient, probability=self.likelihood, reason=f"{verdict}: {figures}")


def select(question: str, found: Sequence[Hit], beside: Sequence[Hit] = (), failure: bool = False) -> Selection | None:
    """The excerpts for a question; None where nothing of what was found can be quoted, or where it is no documents.

    For a `failure` whatever is found will do, and what says step by step what to do comes first.
    """
    if not found or not (failure or mostly_documents(found)):
        return None
    sought = question_terms(question, [hit.words | digits(hit.text) for hit in found], counted=not failure)
    ranked = rank_sections(sought, sections(found, beside))
    if failure:
        ranked = tuple(sorted(ranked, key=lambda one: -(one.worth + STEPS * one.instructs)))
    if not ranked:
        return None
    return Selection(sought, ranked, choose_excerpts(sought, ranked, attributed_text if failure else quotes_text))
