"""Sections: the passages of a document under the same headings, joined from the hits of a search."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from counterpoint.developer.excerpts.passages import Passage
from counterpoint.developer.excerpts.relevance import Hit
from counterpoint.developer.excerpts.units import Unit, units
from counterpoint.developer.language.question_terms import words_of

PROGRAMS = frozenset({"python", "javascript", "typescript"})
STRUCTURED = frozenset({"markdown", "restructuredtext", "html", "notebook", "pdf"})
"""Types with headings."""
FIRST = 20
_REMEDY = re.compile(
    r"\b(?:mitigat\w*|resol(?:ution|ve|ving)\w*|remed(?:y|ies|iation)|fix(?:es|ing)?|solutions?|workarounds?|recover\w*"
    r"|what (?:to|can you|should you) do|how to (?:fix|react|respond|handle)|actions?|next steps"
    r"|behebung|lösung\w*|abhilfe|maßnahmen|vorgehen|was tun|workarounds?)\b",
    re.IGNORECASE,
)
"""Headings of a remedy. In runbooks it follows the meaning, the impact and the diagnosis of an alert."""
_CELL_TEXT = "{}: {}"
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
        return units(self.text, self.best.item.body.get("type") in PROGRAMS, self.start == 0)

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

    @property
    def headings(self) -> str:
        """The document title and the headings above it."""
        return "\n".join((str(self.best.item.body.get("title") or ""), self.best.context))

    @property
    def path(self) -> tuple[str, ...]:
        """The headings above it, outermost first; the document title without headings."""
        above = tuple(part for part in self.best.context.split(" > ") if part)
        return above or tuple(filter(None, [str(self.best.item.body.get("title") or "")]))

    @property
    def names(self) -> tuple[str, ...]:
        """The document title, the name of its file without the ending, and the headings above it."""
        file = self.source.rpartition("/")[2].partition(".")[0]
        return (str(self.best.item.body.get("title") or ""), file, *self.path)

    @property
    def is_remedy(self) -> bool:
        """Whether a heading above it, other than that of the document, announces a remedy."""
        return any(_REMEDY.search(heading) is not None for heading in self.path[1:])

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


def sections(hits: Sequence[Hit], neighbours: Iterable[Hit] = ()) -> tuple[Section, ...]:
    """Return the sections of hits, in their order; `neighbours` are adjacent passages."""
    known = {(hit.source, hit.start): hit for hit in (*neighbours, *hits)}
    plain = {place: " ".join(hit.text.split()) for place, hit in known.items()}
    copies = Counter(text for _, text in {(source, text) for (source, _), text in plain.items()})
    known = {place: hit for place, hit in known.items() if copies[plain[place]] < COPIES}
    places = {(hit.source, hit.start): place for place, hit in reversed(list(enumerate(hits)))}
    found: list[Section] = []
    for run in _runs(sorted(known.values(), key=lambda hit: (hit.source, hit.start))):
        among = [hit for hit in run if (hit.source, hit.start) in places]
        if among:
            best = min(among, key=lambda hit: places[hit.source, hit.start])
            found.append(Section(tuple(run), places[best.source, best.start], best))
    return tuple(sorted(found, key=lambda section: section.place))


def _cells(row: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in row.strip().strip("|").split("|"))


def _runs(ordered: Sequence[Hit]) -> Iterable[list[Hit]]:
    """Yield runs of consecutive passages with the same document and context."""
    run: list[Hit] = []
    for hit in ordered:
        if run and not _follows(run[-1], hit):
            yield run
            run = []
        run.append(hit)
    if run:
        yield run


def _follows(before: Hit, hit: Hit) -> bool:
    return (
        before.source == hit.source
        and before.context == hit.context
        and before.item.id.rpartition("-")[0] == hit.item.id.rpartition("-")[0]
        and _number(hit) == _number(before) + 1
        and hit.start >= before.start + len(before.text)
    )


def _number(hit: Hit) -> int:
    number = hit.item.id.rpartition("-")[2]
    return int(number) if number.isdecimal() else -1
