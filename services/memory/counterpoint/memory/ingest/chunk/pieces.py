"""Pieces of a document, and the division of a section that is too long. Pure."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from counterpoint.proto.ingest import ContentType, chunk_id

MAX_CHARS = 1_000
MAX_TITLE_CHARS = 160

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
# Places to cut a text that is too long, best first; the cut is after the match.
_CUTS = tuple(re.compile(cut) for cut in (r"\n[ \t]*\r?\n", r"\n", r"[.!?][\"')\]]*\s", r"\s"))
_WORD = re.compile(r"\S")


@dataclass(frozen=True)
class Chunk:
    """A piece of a document. `start` and `end` are character offsets into it.

    `context` is what the piece alone does not contain: the path of titles above it, its class and signature, its page,
    or its time and speaker. The lexical leg reads it with the text; the dense leg reads the text alone, of a turn with
    its `speaker` before it. `around` are the turns just before and after a turn, then those one step further away: the
    lexical leg reads them too, with a weight that decreases with the distance.
    """

    text: str
    start: int
    end: int
    context: str
    speaker: str = ""
    around: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChunkedDocument:
    """The chunks of a document and the type it was read as; `problem` says why that is not the type expected."""

    type: ContentType
    chunks: tuple[Chunk, ...]
    problem: str | None = None


@dataclass(frozen=True)
class SourceSection:
    """A section of the source with one context; `breaks` are good places to cut it, ascending, inside it."""

    start: int
    end: int
    context: str
    breaks: tuple[int, ...] = ()
    speaker: str = ""
    around: tuple[str, ...] = ()


def chunks_of(source: str, sections: Iterable[SourceSection], max_chars: int) -> Iterator[Chunk]:
    """Return the chunks of sections in their order, each of at most `max_chars` characters and without blank lines
    around."""
    for section in sections:
        for start, end in _spans(source, section, max_chars):
            yield Chunk(source[start:end], start, end, section.context, section.speaker, section.around)


def neighbour_ids(id: str, steps: int) -> list[str]:
    """Return the ids of the chunks up to so many steps before and after one; the last has no successor."""
    document_id, _, n = id.rpartition("-")
    places = (int(n) + step for step in range(-steps, steps + 1) if step)
    return [chunk_id(document_id, place) for place in places if place >= 0]


def line_starts(source: str) -> list[int]:
    """Return the offset of each line, with line ends as in Python and CommonMark, and the end of the source."""
    return [line.start() for line in _LINE.finditer(source)] + [len(source)]


def short(title: str) -> str:
    """Return a title on one line, cut to the length limit of a context."""
    return " ".join(title.split())[:MAX_TITLE_CHARS]


def _spans(source: str, section: SourceSection, max_chars: int) -> Iterator[tuple[int, int]]:
    start = _skip_blank(source, section.start, section.end)
    while start < section.end:
        cut = min(section.end, start + max_chars)
        if cut < section.end:
            cut = _cut(source, start, cut, section.breaks)
        length = len(source[start:cut].rstrip())
        if length:
            yield start, start + length
        start = _skip_blank(source, cut, section.end)


def _cut(source: str, start: int, limit: int, breaks: tuple[int, ...]) -> int:
    """Return the end of the piece that begins at `start`: the last good boundary in the second half before `limit`."""
    half = start + (limit - start + 1) // 2
    place = bisect_right(breaks, limit) - 1
    if place >= 0 and breaks[place] >= half:
        return breaks[place]
    for pattern in _CUTS:
        places = [found.end() for found in pattern.finditer(source, half, limit)]
        if places:
            return places[-1]
    return limit


def _skip_blank(source: str, start: int, end: int) -> int:
    """Return the beginning of the first line at or after `start` that is not blank, or `end`."""
    word = _WORD.search(source, start, end)
    if word is None:
        return end
    return max(start, source.rfind("\n", start, word.start()) + 1, source.rfind("\r", start, word.start()) + 1)
