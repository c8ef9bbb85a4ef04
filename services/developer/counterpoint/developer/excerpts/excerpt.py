"""Excerpts: of a section the coherent part that bears on a question, within a number of characters."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from counterpoint.developer.excerpts.citations import cite
from counterpoint.developer.excerpts.sections import Section
from counterpoint.developer.excerpts.units import BODY, Unit
from counterpoint.developer.language.question_terms import QuestionTerms
from counterpoint.proto.findings import Citation

BUDGET = 1_100
"""Characters of an excerpt: what people read at once, and room for its references."""
LONG, LONGER = 400, 1_200
"""A unit of more than `LONG` characters counts less the longer it is, half at `LONGER` more."""
HALF = 0.5
"""Share of what a question asks about that a row has to hold to be the answer about it alone."""
LISTED = frozenset({"step", "item", "term", "row", "code"})

_PROHIBITS = re.compile(
    r"\b(?:never|do(?:es)? not|don['’]t|must not|mustn['’]t|should not|shouldn['’]t|may not|cannot|can['’]t"
    r"|not (?:be )?(?:safe|supported|suitable|allowed|permitted|recommended)|unsafe|avoid|forbidden|prohibited|refrain"
    r"|niemals|nie|nicht|kein(?:e[nmrs]?)?|verboten|untersagt|unzulässig)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-ZÄÖÜ0-9`\"'(*])")
_LINE_END = re.compile(r"\n")
MOST_RUNS = 400
"""Runs of sentences or lines that are compared where a unit has to be cut."""


def prohibits(text: str) -> bool:
    """Whether a text says what may not be done."""
    return _PROHIBITS.search(text) is not None


@dataclass(frozen=True)
class Excerpt:
    """Units of a section in their order, with what the best of them covers of what was asked.

    `clip` is the part that is quoted of a single unit too long to be quoted whole.
    """

    section: Section
    units: tuple[int, ...]
    covered: float
    best: int
    clip: tuple[int, int] | None = None

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(quote for quote in self.quotes)

    @property
    def quotes(self) -> tuple[str, ...]:
        """Its stretches."""
        return tuple(self.section.text[start:end] for start, end in self.stretches)

    @property
    def stretches(self) -> tuple[tuple[int, int], ...]:
        """From where to where it runs in its section; units that follow one another, but for the line below the headers
        of a table, are one stretch."""
        if self.clip is not None:
            return (self.clip,)
        units = self.section.units
        made: list[tuple[int, int]] = []
        last = -2
        for n in self.units:
            ruled = made and n == last + 2 and units[last].kind == "header" and units[last + 1].kind == "markup"
            if (n == last + 1 or ruled) and made:
                made[-1] = (made[-1][0], units[n].end)
            else:
                made.append((units[n].start, units[n].end))
            last = n
        return tuple(made)

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Return the spans that it quotes."""
        return tuple(
            cite(hit, passage) for start, end in self.stretches for hit, passage in self.section.spans(start, end)
        )


def scores(terms: QuestionTerms, section: Section) -> list[float]:
    """Share of the question that each unit holds, by itself and a little by the headings and the opener above it."""
    about = terms.held(section.headings)
    found = []
    opener: frozenset[str] = frozenset()
    for unit, said in zip(section.units, section.sentences, strict=True):
        if unit.kind not in BODY:
            if unit.kind in ("heading", "header"):
                opener = terms.held(unit.text) if unit.kind == "heading" else opener | terms.held(unit.text)
            found.append(0.0)
            continue
        held = terms.held(unit.text)
        value = terms.share(held) + 0.35 * terms.share((opener | about) - held)
        value += 0.25 * terms.fits(said)
        if terms.permission and prohibits(unit.text):
            value += 0.15 * (value > 0.1)
        value /= 1 + max(0, unit.end - unit.start - LONG) / LONGER
        found.append(value if held else 0.5 * value)
        opener = held if unit.opens else opener if unit.kind in LISTED else frozenset()
    return found


def excerpt(
    terms: QuestionTerms, section: Section, budget: int = BUDGET, subject: frozenset[str] = frozenset()
) -> Excerpt | None:
    """The part of a section that bears on a question; None where nothing of it can be quoted.

    `subject`: words of the thing asked about, without which nothing is quoted.
    """
    units = section.units
    every = [n for n, unit in enumerate(units) if unit.kind in BODY]
    body = _naming(terms, section, every, subject)
    if not body:
        return None
    worth = scores(terms, section)
    best = max(body, key=lambda n: (worth[n], -n))
    if not subject:
        body = _naming(terms, section, every, row_subject(terms, section, best))
    dropped = _beside_the_point(terms, section, worth, best) | (set(every) - set(body))
    kept: set[int] = set()

    def size(of: set[int]) -> int:
        return sum(units[n].end - units[n].start + 2 for n in of)

    def take(n: int) -> None:
        more = {m for m in closure(units, n) if m not in dropped} | {n}
        for option in (more, {n}):
            if size(kept | option) <= budget:
                kept.update(option)
                return

    take(best)
    if not kept:
        return Excerpt(section, (best,), worth[best], best, _clip(terms, units[best], budget))
    order = sorted(
        (n for n in body if n not in dropped),
        key=lambda n: (-(worth[n] / (worth[best] or 1)) + 0.9 * min(abs(n - best), 12) / 12, n),
    )
    for n in order:
        if n not in kept:
            take(n)
    return Excerpt(section, tuple(sorted(kept)), worth[best], best)


def _clip(terms: QuestionTerms, unit: Unit, budget: int) -> tuple[int, int]:
    """The run of sentences, or of lines where it is no prose, that holds most of what was asked within the budget."""
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
        key=lambda run: (round(terms.share(terms.held(unit.text[slice(*run)])), 3), min(run[1] - run[0], budget)),
    )
    body = unit.text[first : min(last, first + budget)].rstrip()
    return unit.start + first, unit.start + first + len(body)


def closure(units: Sequence[Unit], n: int) -> set[int]:
    """Parts of a unit: the sentence that opens its list, the other steps of its procedure, the headers of its
    row, what it opens itself, and what is nested in it."""
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
    """Return the list, table or block of code that a unit leads over to."""
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


def _beside_the_point(terms: QuestionTerms, section: Section, worth: Sequence[float], best: int) -> set[int]:
    """Items, terms and rows beside the best one that are about something else: those without the rarest word of the
    question that the best one, and few others of its list, hold."""
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
    held = {n: terms.held(units[n].text) for n in mates}
    telling = {word for word in held[best] if sum(word in held[n] for n in mates) <= max(1, len(mates) // 4)}
    if terms.share(telling) < 0.3:
        return set()
    out = {n for n in mates if not held[n] & telling}
    return out | {
        n for n in range(first, last + 1) if units[n].indent > units[best].indent and _parent(units, n) in out
    }


def row_subject(terms: QuestionTerms, section: Section, best: int) -> frozenset[str]:
    """The words by which a row that says whose a thing is names it; none where the best unit is no such row."""
    unit = section.units[best]
    if unit.kind != "row" or terms.kind is None or terms.kind.name != "person":
        return frozenset()
    about = terms.held(terms.kind.asks.sub(" ", terms.text))
    named = terms.held(unit.text) & about
    return named if terms.share(named) >= HALF * terms.share(about) else frozenset()


def _naming(terms: QuestionTerms, section: Section, body: Sequence[int], subject: frozenset[str]) -> list[int]:
    """The units that name a subject by most of its words, or stand under headings that do, but no code; all where there
    is no subject."""

    def names(text: str) -> bool:
        return 2 * terms.share(terms.held(text) & subject) > terms.share(subject)

    if not subject:
        return list(body)
    above, units = names(section.headings), section.units
    return [n for n in body if units[n].kind != "code" and (above or names(units[n].text))]


def _parent(units: Sequence[Unit], n: int) -> int:
    for m in range(n - 1, -1, -1):
        if units[m].indent < units[n].indent:
            return m
    return -1
