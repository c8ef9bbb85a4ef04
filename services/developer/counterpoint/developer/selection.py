"""Selection: which sections of what was found are quoted for a question, and what speaks for each. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from counterpoint.developer.citations import proposed, quoted
from counterpoint.developer.codes import codes_of, named
from counterpoint.developer.excerpts import Excerpt, excerpt, row_subject
from counterpoint.developer.kinds import OWN
from counterpoint.developer.likelihood import likelihood
from counterpoint.developer.rag.validate import exact
from counterpoint.developer.relevance import Grade, Hit
from counterpoint.developer.sections import Section, documents, sections
from counterpoint.developer.wanted import Wanted, digits, wanted
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
    made = excerpt(wanted, section, COMPARED)
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


def chosen(
    wanted: Wanted, ranked: Sequence[Candidate], shown: Callable[[Sequence[Citation]], str] = quoted
) -> tuple[Excerpt, ...]:
    """The excerpts of an answer: of the best section, and where there is room of the next that are nearly as good.

    `shown` makes the text of what they cite, which is at most `LIMIT` characters long.
    """
    room = LIMIT
    for _ in range(TRIES):
        taken = _taken(wanted, ranked, room)
        over = len(shown([citation for each in taken for citation in each.citations])) - LIMIT
        if over <= 0:
            return taken
        room -= max(over, CUT)
    return (excerpt(wanted, ranked[0].section, LEAST) or ranked[0].excerpt,)


def _taken(wanted: Wanted, ranked: Sequence[Candidate], room: int) -> tuple[Excerpt, ...]:
    first, *rest = ranked
    subject = row_subject(wanted, first.section, first.excerpt.best)
    near = [one for one in rest[:BESIDE] if one.worth >= first.worth - MARGIN]
    taken = [excerpt(wanted, first.section, int(SHARE * room if near else room) - PLACE) or first.excerpt]
    for one in near:
        left = room - sum(map(_size, taken)) - PLACE
        more = excerpt(wanted, one.section, left, subject) if left >= LEAST else None
        if more is not None and _size(more) <= left + PLACE:
            taken.append(more)
    left = room - sum(map(_size, taken[1:])) - PLACE
    whole = excerpt(wanted, first.section, left)
    return (whole if whole is not None and _size(whole) <= left + PLACE else taken[0], *taken[1:])


def _size(one: Excerpt) -> int:
    return len(one.text) + NUMBER * len(one.citations) + PLACE


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
    def likelihood(self) -> float:
        """The probability in [0, 1] that it answers."""
        return self.likelihood_of(self.ranked[0], self.excerpts)

    def likelihood_of(self, one: Candidate, shown: Sequence[Excerpt]) -> float:
        """The same of excerpts of which the first is one candidate's: little where they lack what alone can answer."""
        signs = self.signs_of(one, shown)
        probable = likelihood().at(signs)
        return min(probable, LACKING) if self.lacks(signs, shown) else probable

    def signs_of(self, one: Candidate, shown: Sequence[Excerpt]) -> dict[str, float]:
        """Features of the likelihood, by name."""
        hits = [hit for each in self.ranked for hit in each.section.found]
        others = [other.worth for other in self.ranked if other is not one]
        codes = codes_of(self.wanted.text)
        text = "\n".join(f"{each.section.headings}\n{each.text}" for each in shown)
        covered = self.wanted.share(self.wanted.held(text))
        return {
            "ahead": covered * min(one.worth - max(others, default=one.worth), MARGIN),
            "unnamed": float(bool(codes) and named(codes, text) is None),
            "unknown": self.wanted.share(self.wanted.missing),
            "relevance": max(hit.relevance for hit in hits),
            "covered": covered,
            **self._said(shown),
        }

    def _said(self, shown: Sequence[Excerpt]) -> dict[str, float]:
        """The same of the sentences: what the best of them covers that has the kind of thing asked for, and how much
        of the words for that thing none of them has."""
        asked = self.wanted
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

    def lacks(self, signs: Mapping[str, float], shown: Sequence[Excerpt]) -> bool:
        """Whether a thing is asked for that none of the excerpts has, or that only a page of one's own can have."""
        asked = self.wanted
        if asked.ours and not any(OWN.search(hit.text) for each in shown for hit in each.section.hits):
            return True
        return asked.kind is not None and asked.kind.strict and not signs["said"]

    def grade(self, again: bool = False) -> Grade:
        """The same as a grade, with its reason; what was found `again`, by other words, has to be likelier."""
        enough = likelihood().threshold + AGAIN * again
        verdict = (
            "the best section is likely to answer" if self.likelihood >= enough else "no section is likely to answer"
        )
        return Grade(
            self.likelihood >= enough,
            self.likelihood,
            f"{verdict}: {self.likelihood:.2f} where {enough:.2f} is enough (cosine {self.ranked[0].cosine:.2f}, "
            f"words covered {self.ranked[0].covered:.2f})",
        )


def select(question: str, found: Sequence[Hit], beside: Sequence[Hit] = (), failure: bool = False) -> Selection | None:
    """The excerpts for a question; None where nothing of what was found can be quoted, or where it is no documents.

    For a `failure` whatever is found will do, and what says step by step what to do comes first.
    """
    if not found or not (failure or documents(found)):
        return None
    sought = wanted(question, [hit.words | digits(hit.text) for hit in found], counted=not failure)
    ranked = candidates(sought, sections(found, beside))
    if failure:
        ranked = tuple(sorted(ranked, key=lambda one: -(one.worth + STEPS * one.instructs)))
    if not ranked:
        return None
    return Selection(sought, ranked, chosen(sought, ranked, proposed if failure else quoted))
