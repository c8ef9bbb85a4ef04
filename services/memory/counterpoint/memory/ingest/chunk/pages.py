"""Text of a PDF by page: a form feed separates two pages."""

import re

from counterpoint.memory.ingest.chunk.pieces import SourceSection, short

_PAGE = re.compile(r"[^\f]*\f?")


def pages(source: str, title: str) -> list[SourceSection]:
    """Return one section per page, whose context is the title and the number of the page, from 1."""
    before = f"{short(title)} > " if title else ""
    found = [page for page in _PAGE.finditer(source) if page.group()]
    return [SourceSection(page.start(), page.end(), f"{before}page {n}") for n, page in enumerate(found, 1)]
