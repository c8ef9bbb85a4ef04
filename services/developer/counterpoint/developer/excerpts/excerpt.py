"""Excerpts: the coherent part of a section that is relevant to a question, within a character budget."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from counterpoint.developer.excerpts.citations import cite
from counterpoint.developer.excerpts.sections import Section
from counterpoint.developer.excerpts.units import BODY, Unit
from counterpoint.developer.language.question_terms import QuestionTerms
from counterpoint.proto.findings import Citation

BUDGET = 1_100
"""Maximum characters of an excerpt."""
LONG, LONGER = 400, 1_200
"""The weight of a unit longer than `LONG` characters decreases, to half at `LONG + LONGER`."""
HALF = 0.5
"""Minimum share of the question's words in a row that answers it alone."""
ASKED_WORDS_MIN, PROHIBITED_SHARE_MIN = 2, 0.3
"""Minimum number and share of the question's words in a prohibition of what it asks about."""
NARROWER = 0.5
"""Share relative to the block with most of these words that has to be exceeded."""
LISTED = frozenset({"step", "item", "term", "row", "code"})

_PROHIBITS = re.compile(
    r"\b(?:never|do(?:es)? not|don['’]t|must not|mustn['’]t|should not|shouldn['’]t|may not|cannot|can['’]t"
    r"|not (?:be )?(?:safe|supported|suitable|allowed|permitted|recommended)|unsafe|avoid|forbidden|prohibited|refrain"
    r"|niemals|nie|nicht|kein(?:e[nmrs]?)?|verboten|untersagt|unzulässig)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-ZÄÖÜ0-9`\"'(*])")
_TIMED = re.compile(r"[|*+\- ]{0,8}(?:\d{4}-\d\d-\d\d[ T])?\d{1,2}[:.]\d\d\b")
_LINE_END = re.compile(r"\n")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-ZÄÖÜ0-9`\"'(*-])|\n[ \t]*\n|\n(?=[ \t]*(?:[-*+]|\d{1,3}[.)])\s)")
MOST_RUNS = 400
"""Maximum number of compared runs of sentences or lines when a unit is cut."""


def prohibits(text: str) -> bool:
    """Return whether a text contains a prohibition."""
    return _PROHIBITS.search(text) is not None


@dataclass(frozen=True)
class Excerpt:
    """Units of a section in order, with the question coverage of the best.

    `clip` is the quoted part of a single unit that is too long. `ahead` is the unit that is quoted before the others.
    """

    section: Section
    units: tuple[int, ...]
    covered: float
    best: int
    clip: tuple[int, int] | None = None
    ahead: int | None = None

    @property
    def text(self) -> str:
        """The full text."""
        return "\n".join(quote for quote in self.quotes)

    @property
    def quotes(self) -> tuple[str, ...]:
        """The quoted texts."""
        return tuple(self.section.text[start:end] for start, end in self.stretches)

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """The sentences of its units; of a row of a table its cells with their headers."""
        statements = (self.section.sentences[n] for n in self.units)
        return tuple(each for said in statements for each in _SENTENCE.split(said) if each.strip())

    @property
    def is_table(self) -> bool:
        """Whether it quotes rows of tables alone."""
        return all(self.section.units[n].kind in ("header", "row") for n in self.units)

    @property
    def steps(self) -> tuple[int, int]:
        """The number of the steps that it quotes, and of all steps of their procedures."""
        units = self.section.units
        quoted = {n for n in self.units if units[n].kind == "step"}
        whole = {m for n in quoted for m in _procedure(units, n) if units[m].kind == "step"}
        return len(quoted), len(whole)

    @property
    def omits_steps(self) -> bool:
        """Whether it quotes some steps of a procedure without the others."""
        quoted, whole = self.steps
        return quoted < whole

    @property
    def stretches(self) -> tuple[tuple[int, int], ...]:
        """Its spans in the section; adjacent units are one span. The header of a table has its rule."""
        if self.clip is not None:
            return (self.clip,)
        units = self.section.units
        made: list[tuple[int, int]] = []
        last = -2
        for n in (each for each in self.units if each != self.ahead):
            ruled = units[n].kind == "header" and n + 1 < len(units) and units[n + 1].kind == "markup"
            end = n + 1 if ruled else n
            if n == last + 1 and made:
                made[-1] = (made[-1][0], units[end].end)
            else:
                made.append((units[n].start, units[end].end))
            last = end
        return tuple(made) if self.ahead is None else ((units[self.ahead].start, units[self.ahead].end), *made)

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Return its citations."""
        return tuple(
            cite(hit, passage) for start, end in self.stretches for hit, passage in self.section.spans(start, end)
        )


def scores(terms: QuestionTerms, section: Section) -> list[float]:
    """Return the question coverage of each unit, with a fraction for its headings and its lead-in."""
    about = terms.words_in(section.headings)
    values = []
    opener: frozenset[str] = frozenset()
    for unit, sentence in zip(section.units, section.sentences, strict=True):
        if unit.kind not in BODY:
            if unit.kind in ("heading", "header"):
                opener = terms.words_in(unit.text) if unit.kind == "heading" else opener | terms.words_in(unit.text)
            values.append(0.0)
            continue
        covered = terms.words_in(unit.text)
        value = terms.share(covered) + 0.35 * terms.share((opener | about) - covered)
        value += 0.25 * terms.fits(sentence)
        if terms.permission and prohibits(unit.text):
            value += 0.15 * (value > 0.1)
        value /= 1 + max(0, unit.end - unit.start - LONG) / LONGER
        values.append(value if covered else 0.5 * value)
        opener = covered if unit.opens else opener if unit.kind in LISTED else frozenset()
    return values


def excerpt(
    terms: QuestionTerms, section: Section, budget: int = BUDGET, subject: frozenset[str] = frozenset()
) -> Excerpt | None:
    """Return the relevant part of a section, or None if nothing can be quoted.

    `subject`: words for the subject of the question, without which nothing is quoted.
    """
    units = section.units
    every = [n for n, unit in enumerate(units) if unit.kind in BODY]
    body = _units_naming(terms, section, every, subject)
    if not body:
        return None
    worth = scores(terms, section)
    best = max(body, key=lambda n: (worth[n], -n))
    if not subject:
        body = _units_naming(terms, section, every, row_subject(terms, section, best))
    dropped = _off_topic(terms, section, best) | (set(every) - set(body))
    kept: set[int] = set()

    def size(of: set[int]) -> int:
        return sum(units[n].end - units[n].start + 2 for n in of)

    def take(n: int) -> None:
        more = {m for m in closure(units, n) if m not in dropped} | {n}
        for option in (more, {n}):
            if size(kept | option) <= budget:
                kept.update(option)
                return

    if section.has_step_headings:
        outline = {n for n in every if units[n].kind == "step" and units[n].indent == 0}
        kept |= next((part for part in (set(every), outline) if size(part) <= budget), set())
    take(best)
    if not kept:
        return Excerpt(section, (best,), worth[best], best, _clip(terms, units[best], budget))
    if section.is_answer:
        take(every[0])
    order = sorted(
        (n for n in body if n not in dropped),
        key=lambda n: (-(worth[n] / (worth[best] or 1)) + 0.9 * min(abs(n - best), 12) / 12, n),
    )
    for n in order:
        if n not in kept:
            take(n)
    return Excerpt(section, tuple(sorted(kept)), worth[best], best)


def with_prohibition_ahead(terms: QuestionTerms, one: Excerpt) -> Excerpt:
    """Return the excerpt for a yes-or-no question with the prohibition of what it asks about quoted first, if any.

    A prohibition that is all that is quoted of its list stays below the sentence that introduces it.
    """
    units = one.section.units
    words = {n: terms.words_in(units[n].text) for n in one.units if prohibits(units[n].text)}
    about = [n for n in words if len(words[n]) >= ASKED_WORDS_MIN and units[n].kind in ("paragraph", "item", "step")]
    if not terms.permission or one.clip is not None or not about:
        return one
    best = max(about, key=lambda n: (terms.share(words[n]), -n))
    most = max(terms.share(terms.words_in(units[n].text)) for n in one.units)
    share = terms.share(words[best])
    alone = any(units[n].opens and _opened(units, n) & set(one.units) == {best} for n in one.units)
    enough = share >= PROHIBITED_SHARE_MIN and share > NARROWER * most
    return replace(one, ahead=best) if enough and not alone else one


def _clip(terms: QuestionTerms, unit: Unit, budget: int) -> tuple[int, int]:
    """Return the span of sentences, or lines of other text, with the highest question coverage within the budget."""
    cut = _SENTENCE_END if unit.kind in ("paragraph", "item", "step", "term") else _LINE_END
    edges = [0, *(each.end() for each in cut.finditer(unit.text)), len(unit.text)]
    runs = [
        (first, last)
        for n, first in enumerate(edges[:-1])
        for m, last in enumerate(edges[n + 1 :])
        if last > first and (m == 0 or last - first <= budget)
    ][:MOST_RUNS]
    first, last = max(
        runs,
        key=lambda run: (round(terms.share(terms.words_in(unit.text[slice(*run)])), 3), min(run[1] - run[0], budget)),
    )
    body = unit.text[first : min(last, first + budget)].rstrip()
    return unit.start + first, unit.start + first + len(body)


def closure(units: Sequence[Unit], n: int) -> set[int]:
    """Return the units that belong to a unit: the lead-in of its list, the other steps of its procedure, the headers of
    its row, the block that it introduces, and nested units."""
    unit = units[n]
    found = {n}
    if unit.opens:
        found |= _opened(units, n)
    for m in range(n + 1, len(units)):
        if units[m].indent <= unit.indent or unit.kind not in ("step", "item", "term"):
            break
        found.add(m)
    if unit.kind in LISTED:
        first = n
        beside = {"markup"} if unit.kind == "code" else LISTED | {"header", "markup"}
        while first > 0 and units[first - 1].kind in beside:
            first -= 1
            if units[first].kind == "header" or (units[first].indent < unit.indent and units[first].kind in LISTED):
                found.add(first)
        if first > 0 and units[first - 1].kind == "paragraph" and (units[first - 1].opens or unit.kind in ("step",)):
            found.add(first - 1)
        if unit.kind == "code" and first > 0 and units[first - 1].kind in BODY:
            found.add(first - 1)
    if unit.kind == "step":
        found |= _procedure(units, n)
    return found


def _opened(units: Sequence[Unit], n: int) -> set[int]:
    """Return the list, table or code block that a unit introduces."""
    found: set[int] = set()
    kind = None
    for m in range(n + 1, len(units)):
        each = units[m]
        if each.kind == "markup":
            continue
        if each.kind == "paragraph" and not found:
            return {m}
        if each.kind in ("heading", "paragraph") or (kind in ("code",) and each.kind != kind):
            break
        kind = each.kind
        found.add(m)
    return found


def _procedure(units: Sequence[Unit], n: int) -> set[int]:
    found = {n}
    for step in (-1, 1):
        m = n + step
        while 0 <= m < len(units) and (units[m].kind in LISTED | {"markup"} or units[m].indent > units[n].indent):
            if units[m].kind in BODY:
                found.add(m)
            m += step
    return found


def _off_topic(terms: QuestionTerms, section: Section, best: int) -> set[int]:
    """Return the siblings of the best unit about other subjects: those without the rarest question word that the best
    one and few others have. Of a timeline, unless a value is asked for, they are the entries before the best one, since
    a failure is followed by its remedy."""
    units = section.units
    kind = units[best].kind
    if kind not in ("item", "term", "row"):
        return set()
    first = last = best
    while first > 0 and units[first - 1].kind in LISTED:
        first -= 1
    while last + 1 < len(units) and units[last + 1].kind in LISTED:
        last += 1
    mates = [n for n in range(first, last + 1) if units[n].kind == kind and units[n].indent == units[best].indent]
    if len(mates) < 3:
        return set()
    if terms.kind is None and all(_TIMED.match(units[n].text) for n in mates):
        return {n for n in mates if n < best}
    held = {n: terms.words_in(units[n].text) for n in mates}
    telling = {word for word in held[best] if sum(word in held[n] for n in mates) <= max(1, len(mates) // 4)}
    if terms.share(telling) < 0.3:
        return set()
    out = {n for n in mates if not held[n] & telling}
    return out | {
        n for n in range(first, last + 1) if units[n].indent > units[best].indent and _parent(units, n) in out
    }


def row_subject(terms: QuestionTerms, section: Section, best: int) -> frozenset[str]:
    """Return the words that name the subject of an ownership row; none if the best unit is not such a row."""
    unit = section.units[best]
    if unit.kind != "row" or terms.kind is None or terms.kind.name != "person":
        return frozenset()
    about = terms.words_in(terms.kind.asks.sub(" ", terms.text))
    named = terms.words_in(unit.text) & about
    return named if terms.share(named) >= HALF * terms.share(about) else frozenset()


def _units_naming(terms: QuestionTerms, section: Section, body: Sequence[int], subject: frozenset[str]) -> list[int]:
    """Return the units, except code, that name a subject by most of its words, or whose headings do; all without a
    subject."""

    def names(text: str) -> bool:
        return 2 * terms.share(terms.words_in(text) & subject) > terms.share(subject)

    if not subject:
        return list(body)
    above, units = names(section.headings), section.units
    return [n for n in body if units[n].kind != "code" and (above or names(units[n].text))]


def _parent(units: Sequence[Unit], n: int) -> int | None:
    for m in range(n - 1, -1, -1):
        if units[m].indent < units[n].indent:
            return m
    return None
