"""Selection of the sections that are quoted for a question, with their features. Pure functions."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import dropwhile

from counterpoint.developer.excerpts.citations import attributed_text, quotes_text
from counterpoint.developer.excerpts.excerpt import Excerpt, excerpt, row_subject, with_prohibition_ahead
from counterpoint.developer.excerpts.likelihood import likelihood_model
from counterpoint.developer.excerpts.omissions import omits
from counterpoint.developer.excerpts.relevance import Grade, Hit
from counterpoint.developer.excerpts.sections import Section, mostly_documents, remedies_of, sections
from counterpoint.developer.language.codes import (
    COMMON,
    alert_in,
    alert_of,
    first_code_in,
    is_alert,
    messages_quoted,
    messages_shown,
    other_codes,
    quotes_in,
)
from counterpoint.developer.language.exact_forms import exact
from counterpoint.developer.language.question_terms import QuestionTerms, digits, question_terms, words_of
from counterpoint.proto.findings import Citation

COMPARED_SECTIONS = 12
"""Maximum number of compared sections."""
LIMIT, CUT, TRIES = 1_460, 40, 12
"""Maximum characters of an answer with references, the step by which excerpts are cut to fit, and the number of
steps."""
COMPARED_CHARS = 1_300
"""Maximum characters of the excerpts that are compared."""
MARGIN, BESIDE = 1.0, 3
"""Maximum score difference of a further section to the best one, and the maximum number of further sections."""
LONE_MARGIN = 0.25
"""Score difference of a section for a failure to the next one if there is none. The mean over the sets is .5; less,
since a page that does not help is alone as well."""
SHARE = 0.5
"""Share of an answer reserved for the best section if others are quoted too, unless its steps need more."""
OMITTED = 60
"""Room in characters, beside that of references, for the sentence that only some steps of a procedure are quoted."""
PLACE, NUMBER = 60, 25
"""Estimated characters of a reference, and of each of its numbers."""
STEPS = 0.3
"""Additional score of a section with steps or under the heading of a remedy, for a failure."""
EXACT_CHARS_MIN = 3
"""Minimum characters of a distinguishing number, name or code."""
LACKING_MAX = 0.2
"""Maximum likelihood of an answer without the requested kind of value, such as a port, a version or a price, or about
another subject."""
REWRITTEN_MARGIN = 0.045
"""Addition to the threshold for the results of a rewritten query, which are found more easily."""
SECTION_CHARS_MIN = 150
"""Minimum remaining characters for a further section."""


@dataclass(frozen=True)
class SectionCandidate:
    """A section with its excerpt and its features. `remedies` are the sections with the remedy for its symptom."""

    excerpt: Excerpt
    search: float
    cosine: float
    behind: float
    covered: float
    headings: float
    unit: float
    exact: float
    named: str | None = None
    alert: str | None = None
    remedies: tuple[Section, ...] = ()

    @property
    def instructs(self) -> bool:
        """Whether it contains steps or is under the heading of a remedy."""
        return self.section.is_remedy or any(self.section.units[n].kind == "step" for n in self.excerpt.units)

    @property
    def failure_rank(self) -> tuple[bool, float]:
        """Sort key for a failure: a remedy on the page of its alert first, whose other sections have more of its words
        because they say when it fires."""
        return self.alert is not None and self.section.is_remedy, self.worth + STEPS * self.instructs

    @property
    def section(self) -> Section:
        """The section."""
        return self.excerpt.section

    @property
    def worth(self) -> float:
        """Score, comparable among the candidates of one question."""
        return (
            self.search
            - 2 * self.behind
            + self.covered
            + 0.25 * self.headings
            + self.unit
            + self.exact
            + 0.5 * (self.named is not None)
        )


def rank_sections(
    terms: QuestionTerms, sections: Sequence[Section], failure: bool = False
) -> tuple[SectionCandidate, ...]:
    """Return the quotable sections, best first, without the pages of other alerts than that of a `failure`. A section
    that quotes its message names it."""
    if failure and (alert := alert_of(terms.text)) is not None:
        sections = [one for one in sections if alert in one.names or not any(map(is_alert, one.names[:3]))]
    compared = sections[:COMPARED_SECTIONS]
    nearest = max((hit.features.cosine for section in compared for hit in section.found_hits), default=0.0)
    forms = {form for form in exact(terms.text) if len(form) >= EXACT_CHARS_MIN}
    codes = _distinguishing(terms.codes, compared)
    messages = _distinguishing_messages(terms.text, compared, codes) if failure else [None] * len(compared)
    made = [
        _candidate(terms, section, nearest, forms, codes, message, failure)
        for section, message in zip(compared, messages, strict=True)
    ]
    return tuple(sorted((one for one in made if one is not None), key=lambda one: -one.worth))


def _distinguishing(codes: Sequence[str], compared: Sequence[Section]) -> tuple[str, ...]:
    """Return the codes that few of the sections contain, the rarest first."""
    texts = [f"{section.headings}\n{section.text}" for section in compared]
    counts = {code: sum(first_code_in((code,), text) is not None for text in texts) for code in codes}
    return tuple(sorted((code for code in codes if counts[code] < COMMON), key=lambda code: counts[code]))


def _distinguishing_messages(failure: str, compared: Sequence[Section], codes: tuple[str, ...]) -> list[str | None]:
    """Return the longest message of the failure that each section quotes, if few of the sections do; if none quotes
    one or has one of the codes, the longest that each shows."""
    texts = [f"{section.headings}\n{section.text}" for section in compared]
    found = [messages_quoted(text, failure) for text in texts]
    if not any(found) and all(first_code_in(codes, text) is None for text in texts):
        found = [messages_shown(text, failure) for text in texts]
    counts = Counter(message for each in found for message in each)
    return [max((one for one in each if counts[one] < COMMON), key=len, default=None) for each in found]


def _candidate(
    terms: QuestionTerms,
    section: Section,
    nearest: float,
    forms: set[str],
    codes: tuple[str, ...],
    message: str | None,
    failure: bool,
) -> SectionCandidate | None:
    made = excerpt(terms, section, COMPARED_CHARS)
    if made is None:
        return None
    cosine = max(hit.features.cosine for hit in section.found_hits)
    alert = alert_in(section.names, terms.text) if failure else None
    return SectionCandidate(
        excerpt=made,
        search=max(hit.item.score or 0.0 for hit in section.found_hits),
        cosine=cosine,
        behind=nearest - cosine,
        covered=terms.share(terms.words_in(f"{made.text}\n{section.headings}")),
        headings=terms.share(terms.words_in(section.headings)),
        unit=made.covered,
        exact=len(forms & exact(made.text)) / len(forms) if forms else 0.0,
        named=alert or first_code_in(codes, f"{section.headings}\n{section.text}") or message,
        alert=alert,
    )


def choose_excerpts(
    terms: QuestionTerms,
    ranked: Sequence[SectionCandidate],
    render: Callable[[Sequence[Citation]], str] = quotes_text,
    *,
    prohibition_first: bool = False,
) -> tuple[Excerpt, ...]:
    """Return the excerpts of an answer: of the best section, and if they fit of the next ones that are nearly as good.

    `render` renders citations as a text, whose limit is `LIMIT` characters.
    """
    room = LIMIT
    for _ in range(TRIES):
        first, *rest = _taken_excerpts(terms, ranked, room, with_others=prohibition_first)
        taken = (with_prohibition_ahead(terms, first) if prohibition_first else first, *rest)
        over = len(render([citation for each in taken for citation in each.citations])) - LIMIT
        over += OMITTED * taken[0].omits_steps
        if over <= 0:
            return taken
        room -= max(over, CUT)
    return (excerpt(terms, ranked[0].section, SECTION_CHARS_MIN) or ranked[0].excerpt,)


def _taken_excerpts(
    terms: QuestionTerms, ranked: Sequence[SectionCandidate], room: int, with_others: bool
) -> tuple[Excerpt, ...]:
    """Return the excerpts of the best sections; of a section that names the failure alone, or with the other
    instructions for its alert, unless `with_others`."""
    first, *rest = ranked
    if first.remedies:
        return _after_remedies(terms, first, room)
    subject = row_subject(terms, first.section, first.excerpt.best)
    near = [one for one in rest[:BESIDE] if one.worth >= first.worth - MARGIN]
    if not with_others and first.named is not None:
        near = [one for one in near if first.alert is not None and one.alert == first.alert and one.instructs]
    part = SHARE if near and not first.section.has_step_headings else 1
    best = excerpt(terms, first.section, int(part * room) - PLACE) or first.excerpt
    if best.omits_steps:
        best = excerpt(terms, first.section, room - PLACE) or best
    taken = [best]
    for one in near:
        left = room - sum(map(_size, taken)) - PLACE
        more = excerpt(terms, one.section, left, subject) if left >= SECTION_CHARS_MIN else None
        if more is not None and _size(more) <= left + PLACE:
            taken.append(more)
    left = room - sum(map(_size, taken[1:])) - PLACE
    whole = excerpt(terms, first.section, left)
    return (whole if whole is not None and _size(whole) <= left + PLACE else taken[0], *taken[1:])


def _after_remedies(terms: QuestionTerms, one: SectionCandidate, room: int) -> tuple[Excerpt, ...]:
    """Return the excerpts of the remedies, followed by that of the symptom, as far as they fit."""
    taken: list[Excerpt] = []
    for section in (*one.remedies, one.section):
        left = room - sum(map(_size, taken)) - PLACE
        more = excerpt(terms, section, left) if left >= SECTION_CHARS_MIN else None
        if more is not None and _size(more) <= left + PLACE:
            taken.append(more)
    return tuple(taken) or (one.excerpt,)


def _size(one: Excerpt) -> int:
    return len(one.text) + NUMBER * len(one.citations) + PLACE


@dataclass(frozen=True)
class Selection:
    """The quoted excerpts of a question or a `failure`, and all candidates, best first."""

    terms: QuestionTerms
    ranked: tuple[SectionCandidate, ...]
    excerpts: tuple[Excerpt, ...]
    failure: bool = False

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Return the spans that it quotes."""
        return tuple(citation for each in self.excerpts for citation in each.citations)

    @cached_property
    def likelihood(self) -> float:
        """The probability in [0, 1] that it answers the question."""
        return self.likelihood_of(self.ranked[0], self.excerpts)

    def likelihood_of(self, one: SectionCandidate, excerpts: Sequence[Excerpt]) -> float:
        """Return the likelihood of excerpts, the first of which is the candidate's; low if they lack the requested kind
        of value, or are about another error of the same family."""
        probable = likelihood_model().probability(self.features_of(one, excerpts), self.failure)
        return min(probable, LACKING_MAX) if self._is_of_another_code(one) or self.lacks(excerpts) else probable

    def _is_of_another_code(self, one: SectionCandidate) -> bool:
        """Whether a section is about another code, by its heading, its quoted messages or at least two rows, but its
        page has not that of the question. One in the title of a page, or in a single row, may be that of a ticket."""
        page = [each.section for each in self.ranked if each.section.source == one.section.source]
        if one.named is not None or any(first_code_in(self.terms.codes, each.text) for each in page):
            return False
        quoted = "\n".join(quote for each in page for quote in quotes_in(each.text))
        shown = (" ".join(one.section.path[1:][-1:]), quoted)
        rows = other_codes(self.terms.codes, "\n".join(one.section.row_beginnings))
        return len(rows) > 1 or any(other_codes(self.terms.codes, text) for text in shown)

    @property
    def misses_alert(self) -> bool:
        """Whether it is for an alert that no section names."""
        return self.failure and alert_of(self.terms.text) is not None and all(one.named is None for one in self.ranked)

    def features_of(self, one: SectionCandidate, excerpts: Sequence[Excerpt]) -> dict[str, float]:
        """Return the features of the likelihood, by name."""
        after = list(dropwhile(lambda each: each is not one, self.ranked))[1:]
        others = [other.worth for other in after if other.section.text != one.section.text]
        named = self.terms.telling_beside(self.terms.matching(excerpts[0].section.subject))
        shown = words_of("\n".join(f"{each.section.headings}\n{each.text}" for each in excerpts))
        terms = self.terms.with_similar(shown)
        headings = "\n".join(each.section.headings for each in excerpts)
        alone = LONE_MARGIN if self.failure else MARGIN
        ahead = min(one.worth - max(others, default=one.worth - alone), MARGIN)
        return {
            "ahead": terms.share(terms.matching(shown)) * max(ahead, 0.0),
            "said": max((terms.share_of(named, words) for words in _said(terms, excerpts)), default=0.0),
            "headings": terms.share_of(named, terms.words_in(headings)),
            "words": math.log1p(len(terms.worth)),
            "overlap": max(hit.features.overlap for each in excerpts for hit in each.section.found_hits),
        }

    def lacks(self, excerpts: Sequence[Excerpt]) -> bool:
        """Return whether the excerpts have nothing of what is asked for."""
        return omits(self.terms, [one.section for one in self.ranked], excerpts)

    def grade(self, rewritten: bool = False) -> Grade:
        """Return the likelihood as a grade; the threshold is higher for a `rewritten` query."""
        enough = likelihood_model().questions.threshold + REWRITTEN_MARGIN * rewritten
        sufficient = self.likelihood >= enough
        verdict = "the best section is likely to answer" if sufficient else "no section is likely to answer"
        best = self.ranked[0]
        figures = (
            f"{self.likelihood:.2f}, threshold {enough:.2f} "
            f"(cosine {best.cosine:.2f}, words covered {best.covered:.2f})"
        )
        return Grade(sufficient=sufficient, probability=self.likelihood, reason=f"{verdict}: {figures}")


def select(
    question: str,
    hits: Sequence[Hit],
    neighbours: Sequence[Hit] = (),
    failure: bool = False,
    common: frozenset[str] = frozenset(),
) -> Selection | None:
    """Select the excerpts for a question; None if nothing can be quoted, or if the hits are not documents.

    For a `failure` there is no minimum, and sections with steps are preferred. `common` are codes that distinguish
    nothing.
    """
    if not hits or not (failure or mostly_documents(hits)):
        return None
    words = [hit.words | digits(hit.text) for hit in hits]
    sought = question_terms(question, words, with_digits=not failure, common=common)
    ranked = rank_sections(sought, sections(hits, neighbours), failure)
    if failure:
        ranked = tuple(sorted(ranked, key=lambda one: one.failure_rank, reverse=True))
        among = sections(hits, neighbours, found=False)
        ranked = tuple(replace(one, remedies=remedies_of(one.section, among, sought.telling_share)) for one in ranked)
    if not ranked:
        return None
    render = attributed_text if failure else quotes_text
    return Selection(sought, ranked, choose_excerpts(sought, ranked, render, prohibition_first=not failure), failure)


def _said(terms: QuestionTerms, excerpts: Sequence[Excerpt]) -> Iterator[frozenset[str]]:
    """Yield the words of the question in each sentence with the requested kind of value, and in its headings."""
    for each in excerpts:
        about = terms.words_in(each.section.headings)
        for sentence in each.sentences:
            words = terms.words_in(sentence)
            if words and (terms.kind is None or terms.fits(sentence)):
                yield words | about
