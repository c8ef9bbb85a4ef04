"""Sections: the passages of a document under the same headings, joined from the hits of a search."""

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, takewhile

from counterpoint.developer.excerpts.passages import Passage
from counterpoint.developer.excerpts.relevance import Hit
from counterpoint.developer.excerpts.step_headings import are_consecutive, join_steps, step_units
from counterpoint.developer.excerpts.units import Unit, units
from counterpoint.developer.language.question_terms import words_of

PROGRAMS = frozenset({"python", "javascript", "typescript"})
STRUCTURED = frozenset({"markdown", "restructuredtext", "html", "notebook", "pdf"})
"""Types with headings."""
FIRST = 20
_REMEDY = re.compile(
    r"\b(?:mitigat\w*|resol(?:ution|ve|ving)\w*|remed(?:y|ies|iation)|fix(?:es|ed|ing)?|solutions?|workarounds?|recover\w*"
    r"|what (?:to|can you|should you) do|how to (?:fix|react|respond|handle)|actions?|next steps"
    r"|behebung|behoben|lösung\w*|abhilfe|maßnahmen|vorgehen|was tun|workarounds?)\b",
    re.IGNORECASE,
)
"""Headings of a remedy. In runbooks it follows the meaning, the impact and the diagnosis of an alert."""
_REMEDY_ALONE = re.compile(
    r"(?:(?:possible|suggested|recommended|mögliche)\s)?(?:mitigations?|resolutions?|remed(?:y|ies)|fix(?:es)?|solutions?"
    r"|workarounds?|what to do|next steps|behebung|lösung(?:en)?|abhilfe|maßnahmen|was tun)\W*",
    re.IGNORECASE,
)
"""First headings of a remedy, which may be the title of the document."""
_SYMPTOM = re.compile(
    r"(?:\w+\s){0,2}(?:symptoms?|descriptions?|overview|meaning|details|background|causes?|reasons?|diagnos(?:is|tics?)"
    r"|symptome?|beschreibung|fehlerbild|ursachen?|bedeutung|diagnose|hintergrund)\W*",
    re.IGNORECASE,
)
"""Headings in an entry about a failure, beside that of its remedy."""
_JOINTS = re.compile(r"[\W\d_]+")
_CELL_TEXT = "{}: {}"
ROW_BEGINNING = 30
"""Characters of the beginning of a row."""
COPIES = 3
"""Number of documents with the same passage from which it is boilerplate."""


@dataclass(frozen=True)
class Section:
    """Consecutive passages of one document. `place` is the rank of the best of them among the hits, from 0.

    `text` is their joined text, in which white space between passages is normalised; `start` is its offset in the
    document.
    """

    hits: tuple[Hit, ...]
    place: int
    best: Hit

    @cached_property
    def found_hits(self) -> tuple[Hit, ...]:
        """The passages that the search found."""
        return tuple(hit for hit in self.hits if hit.item.score is not None) or (self.best,)

    @property
    def source(self) -> str:
        """The name of the document."""
        return self.best.source

    @property
    def start(self) -> int:
        """Start of the section (characters of the document)."""
        return self.hits[0].start

    @cached_property
    def text(self) -> str:
        """The text of its passages, each at its offset."""
        parts, at = [], self.start
        for hit in self.hits:
            parts.append("\n" * (hit.start - at))
            parts.append(hit.text)
            at = hit.start + len(hit.text)
        return "".join(parts)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Its blocks, with offsets in `text`."""
        found = units(self.text, self.best.item.body.get("type") in PROGRAMS, self.start == 0)
        return step_units(found) if self.has_step_headings else found

    @property
    def has_step_headings(self) -> bool:
        """Whether its steps are headings, each with passages of its own."""
        return len({hit.context for hit in self.hits}) > 1

    @cached_property
    def context(self) -> str:
        """The headings above all of it."""
        first, last = (hit.context.split(" > ") for hit in (self.hits[0], self.hits[-1]))
        shared = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
        return " > ".join(heading for heading, _ in shared)

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """Return the statements of its blocks: each cell of a table row with its header, the text of any other
        block."""
        texts, headers = list[str](), tuple[str, ...]()
        for unit in self.units:
            if unit.kind == "header":
                headers = _cells(unit.text)
            elif unit.kind not in ("row", "markup"):
                headers = ()
            cells = _cells(unit.text) if unit.kind == "row" else ()
            paired = len(cells) == len(headers) > 0
            texts.append("; ".join(map(_CELL_TEXT.format, headers, cells)) if paired else unit.text)
        return tuple(texts)

    @cached_property
    def words(self) -> frozenset[str]:
        """The content words of its text, its headings and the document title."""
        return words_of(f"{self.text}\n{self.headings}")

    @cached_property
    def headings(self) -> str:
        """The document title and the headings above it."""
        return "\n".join((str(self.best.item.body.get("title") or ""), self.context))

    @cached_property
    def path(self) -> tuple[str, ...]:
        """The headings above it, outermost first; the document title without headings."""
        above = tuple(part for part in self.context.split(" > ") if part)
        return above or tuple(filter(None, [str(self.best.item.body.get("title") or "")]))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The document title, the name of its file without the ending, and the headings above it."""
        file = self.source.rpartition("/")[2].partition(".")[0]
        return (str(self.best.item.body.get("title") or ""), file, *self.path)

    @cached_property
    def subject(self) -> frozenset[str]:
        """The content words of the document title, the name of its file and its first heading, without numbers."""
        title, file, first, *_ = (*self.names, "")
        return words_of(_JOINTS.sub(" ", " ".join((title if title != self.source else "", file, first))))

    @property
    def is_answer(self) -> bool:
        """Whether it is under a heading that is a question."""
        return "".join(self.path[-1:]).endswith("?")

    @cached_property
    def is_remedy(self) -> bool:
        """Whether a heading above it, other than that of the document, announces a remedy."""
        first, *others = self.path or ("",)
        return _REMEDY_ALONE.fullmatch(first) is not None or any(map(_REMEDY.search, others))

    @property
    def row_beginnings(self) -> tuple[str, ...]:
        """The beginnings of its rows and terms, where lists of codes have the code."""
        return tuple(unit.text[:ROW_BEGINNING] for unit in self.units if unit.kind in ("row", "term"))

    @property
    def entry(self) -> tuple[str, ...] | None:
        """The headings above the entry whose symptom or cause it describes; None if it describes neither."""
        depth = next((n for n, heading in enumerate(self.path) if _SYMPTOM.fullmatch(heading)), None)
        return None if depth is None or self.is_remedy else self.path[:depth]

    def spans(self, start: int, end: int) -> tuple[tuple[Hit, Passage], ...]:
        """Return the passages that make up a span of `text`, each a part of a hit."""
        hits = []
        for hit in self.hits:
            at = hit.start - self.start
            first, last = max(start - at, 0), min(end - at, len(hit.text))
            body = hit.text[first:last]
            if first < last and body.strip():
                lead = first + len(body) - len(body.lstrip())
                hits.append((hit, Passage("paragraph", lead, lead + len(body.strip()), body.strip())))
        return tuple(hits)


def mostly_documents(hits: Sequence[Hit]) -> bool:
    """Return whether the best hits are documents, not only conversations, programs or loose texts."""
    first = hits[:FIRST]
    return 4 * sum((hit.item.body.get("type") or "markdown") in STRUCTURED for hit in first) >= len(first) > 0


def remedies_of(section: Section, among: Iterable[Section], about: Callable[[str], float]) -> tuple[Section, ...]:
    """Return the sections with the remedy for the symptom or cause that a section describes: the next ones in the same
    entry; if its headings announce none, the part with steps whose heading is most `about` the failure. For a section
    above its parts they are the only remedy directly below it."""
    later = sorted((one for one in among if one.source == section.source), key=lambda one: one.start)
    entry = section.path if section.entry is None and not section.is_remedy else section.entry
    if entry is None:
        return ()
    within = [one for one in later if one.start > section.start and one.path[: len(entry)] == entry]
    if section.entry is None:
        within = [
            one
            for one in within
            if _REMEDY.search(" ".join(one.path[len(entry) : len(entry) + 1])) or not one.is_remedy
        ]
    runs = [tuple(run) for is_remedy, run in groupby(within, key=lambda one: one.is_remedy) if is_remedy]
    if section.entry is None:
        return runs[0] if len(runs) == 1 else ()
    parts = [one for one in within if any(unit.kind == "step" for unit in one.units) and about(one.path[-1]) > 0]
    return runs[0] if runs else tuple(sorted(parts, key=lambda one: -about(one.path[-1]))[:1])


def sections(hits: Sequence[Hit], neighbours: Iterable[Hit] = (), found: bool = True) -> tuple[Section, ...]:
    """Return the sections of hits, in their order. `neighbours` are adjacent passages; sections of these alone follow,
    unless all must be `found`."""
    known = {(hit.source, hit.start): hit for hit in (*neighbours, *hits)}
    plain = {place: " ".join(hit.text.split()) for place, hit in known.items()}
    copies = Counter(text for _, text in {(source, text) for (source, _), text in plain.items()})
    known = {place: hit for place, hit in known.items() if copies[plain[place]] < COPIES}
    places = {(hit.source, hit.start): place for place, hit in reversed(list(enumerate(hits)))}
    made: list[Section] = []
    for run in join_steps(list(_runs(sorted(known.values(), key=lambda hit: (hit.source, hit.start))))):
        among = [hit for hit in run if (hit.source, hit.start) in places]
        if among or not found:
            best = min(among or run, key=lambda hit: places.get((hit.source, hit.start), len(hits)))
            made.append(Section(run, places.get((best.source, best.start), len(hits)), best))
    return tuple(sorted(made, key=lambda section: section.place))


def _cells(row: str) -> tuple[str, ...]:
    if "|" in row:
        return tuple(cell.strip() for cell in row.strip().strip("|").split("|"))
    return tuple(
        cell.strip() for cell in next(csv.reader([row.strip().removeprefix(":header:")], skipinitialspace=True), ())
    )


def _runs(ordered: Sequence[Hit]) -> Iterable[list[Hit]]:
    """Yield runs of consecutive passages with the same document and context."""
    run: list[Hit] = []
    for hit in ordered:
        if run and not (run[-1].context == hit.context and are_consecutive(run[-1], hit)):
            yield run
            run = []
        run.append(hit)
    if run:
        yield run
