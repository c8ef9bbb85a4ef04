"""HTML to markdown: the readable content of a page, without scripts, decoration and navigation.

Parsing takes quadratic time for some pages, and blocks every thread meanwhile: it runs in a process of its own.
"""

from dataclasses import dataclass

from counterpoint.memory.ingest.readers.reader_process import read_in_worker

HTML_LIMIT_CHARS = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Page:
    """A page as markdown, and its title."""

    text: str
    title: str | None


def html(source: str) -> Page:
    """Return the page as markdown. Raises `ValueError` with the reason if it is too long, nested too deeply, or takes
    too much memory or time."""
    if len(source) > HTML_LIMIT_CHARS:
        raise ValueError(f"is HTML of more than {HTML_LIMIT_CHARS} characters")
    result = read_in_worker("html", source.encode(errors="replace"))
    return Page(result.text, result.title or None)
