"""Documents to chunks: each type by what it is made of (row C1).

Pure. Whatever the input, the chunks of a text are in its order, do not overlap, and leave out nothing but white space;
`source[chunk.start:chunk.end] == chunk.text` holds for every one of them. Of a conversation the times and speakers are
left out too: they are in the contexts. What a document was read from (`ingest.readers`) is text by now: HTML and
notebooks are markdown.
"""

from typing import assert_never

from counterpoint.memory.ingest.chunk.conversation import conversation
from counterpoint.memory.ingest.chunk.detect import detect
from counterpoint.memory.ingest.chunk.markdown import markdown
from counterpoint.memory.ingest.chunk.pages import pages
from counterpoint.memory.ingest.chunk.pieces import MAX_CHARS, Chunk, Chunked, Section, beside, chunk_id, chunks_of
from counterpoint.memory.ingest.chunk.python import PYTHON_LIMIT_CHARS, python
from counterpoint.memory.ingest.chunk.restructuredtext import restructuredtext
from counterpoint.memory.ingest.chunk.script import script
from counterpoint.proto.ingest import ContentType

__all__ = [
    "MAX_CHARS",
    "PYTHON_LIMIT_CHARS",
    "Chunk",
    "Chunked",
    "ContentType",
    "beside",
    "chunk",
    "chunk_id",
    "detect",
]


_NAMES = {"python": "Python", "javascript": "JavaScript", "typescript": "TypeScript"}


def chunk(source: str, type: ContentType, max_chars: int = MAX_CHARS, title: str = "") -> Chunked:
    """Cut a document into chunks of at most `max_chars` characters; `title` is what a page is a page of.

    Python that does not parse, and a program that is too long, are cut as plain text, and `problem` says so: programs
    they are for all that, and are searched as such.
    """
    try:
        sections = _sections(source, type, max_chars, title)
    except ValueError as error:
        text = chunk(source, "text", max_chars)
        return Chunked(type, text.chunks, f"not read as {_NAMES.get(type, type)} but as plain text: {error}")
    return Chunked(type, tuple(chunks_of(source, sections, max_chars)))


def _sections(source: str, type: ContentType, max_chars: int, title: str) -> list[Section]:
    """Raises `ValueError` with the reason where the source is not of this type."""
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
            return [Section(0, len(source), "")]
        case _:
            assert_never(type)
