"""HTML to markdown: what is to be read of a page, without what runs, decorates or leads elsewhere.

What parses it takes the square of the time for some pages, and holds up every thread meanwhile: it is read apart.
"""

from dataclasses import dataclass

from counterpoint.memory.ingest.readers.sandbox import apart

HTML_LIMIT_CHARS = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Page:
    """A page as markdown, and its title."""

    text: str
    title: str | None


def html(source: str) -> Page:
    """The page as markdown. Raises `ValueError` with the reason for what is too long, nested too deeply, or takes too
    much."""
    if len(source) > HTML_LIMIT_CHARS:
        raise ValueError(f"is HTML of more than {HTML_LIMIT_CHARS} characters")
    said = apart("html", source.encode(errors="replace"))
    return Page(said["text"], said["title"] or None)
