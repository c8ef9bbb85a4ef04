"""Chunking: each type of document is split by its structure.

Pure. For every input, the chunks are in the order of the text, do not overlap, and leave out white space alone:
`source[chunk.start:chunk.end] == chunk.text`. In a conversation, times and speakers are in the contexts instead.
HTML and notebooks have been converted to markdown (`ingest.readers`).
"""

from typing import assert_never

from counterpoint.memory.ingest.chunk.conversation import conversation
from counterpoint.memory.ingest.chunk.detect import detect
from counterpoint.memory.ingest.chunk.markdown import markdown
from counterpoint.memory.ingest.chunk.pages import pages
from counterpoint.memory.ingest.chunk.pieces import (
    MAX_CHARS,
    Chunk,
    ChunkedDocument,
    SourceSection,
    chunks_of,
    neighbour_ids,
)
from counterpoint.memory.ingest.chunk.python import PYTHON_LIMIT_CHARS, python
from counterpoint.memory.ingest.chunk.restructuredtext import restructuredtext
from counterpoint.memory.ingest.chunk.script import script
from counterpoint.proto.ingest import ContentType

__all__ = [
    "MAX_CHARS",
    "PYTHON_LIMIT_CHARS",
    "Chunk",
    "ChunkedDocument",
    "ContentType",
    "chunk",
    "detect",
    "neighbour_ids",
]


FREE_CHUNKS, MEAN_CHARS = 2_000, 50
"""Chunks of any length that a document may have, and the mean length of all further ones. Each costs a record and a
vector, so a small file of empty sections would otherwise occupy memory for minutes."""
LIMIT_LINES = 50_000
"""Lines that are read by their structure. A list of a million short lines takes a minute and half a GB to parse."""
_NAMES = {"python": "Python", "javascript": "JavaScript", "typescript": "TypeScript"}


def chunk(source: str, type: ContentType, max_chars: int = MAX_CHARS, title: str = "") -> ChunkedDocument:
    """Cut a document into chunks of at most `max_chars` characters; `title` is that of the page it is part of.

    Python that does not parse, a program that is too long, and a document of very many short sections are cut as plain
    text, and `problem` says so; their type is still that of the document.
    """
    try:
        _check_lines(source, type)
        sections = _sections(source, type, max_chars, title)
        _check_length(source, sections)
    except ValueError as error:
        text = chunk(source, "text", max_chars)
        return ChunkedDocument(type, text.chunks, f"not read as {_NAMES.get(type, type)} but as plain text: {error}")
    return ChunkedDocument(type, tuple(chunks_of(source, sections, max_chars)))


def _check_lines(source: str, type: ContentType) -> None:
    lines = source.count("\n") + source.count("\r") + source.count("\f")
    if type != "text" and lines > LIMIT_LINES:
        raise ValueError(f"it has more than {LIMIT_LINES} lines")


def _check_length(source: str, sections: list[SourceSection]) -> None:
    """Raise `ValueError` if there are more sections than a document of this length may have."""
    limit = FREE_CHUNKS + len(source) // MEAN_CHARS
    if len(sections) > limit:
        raise ValueError(f"it has {len(sections)} sections, and at its length {limit} are possible")


def _sections(source: str, type: ContentType, max_chars: int, title: str) -> list[SourceSection]:
    """Return the sections of a source. Raises `ValueError` with the reason if it is not of this type."""
    match type:
        case "markdown" | "html" | "notebook":
            return markdown(source)
        case "restructuredtext":
            return restructuredtext(source)
        case "python":
            return python(source, max_chars)
        case "javascript" | "typescript":
            return script(source, type, max_chars)
        case "pdf":
            return pages(source, title)
        case "conversation":
            return list(conversation(source))
        case "text":
            return [SourceSection(0, len(source), "")]
        case _:
            assert_never(type)
