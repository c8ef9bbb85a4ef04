"""Citations: quotes and their positions."""

from collections.abc import Sequence

from counterpoint.developer.excerpts.passages import Passage
from counterpoint.developer.excerpts.relevance import Hit
from counterpoint.proto.findings import Citation


def cite(hit: Hit, passage: Passage) -> Citation:
    """Return the citation of a passage of a hit, with character offsets in the document."""
    return Citation(
        store=hit.item.store,
        id=hit.item.id,
        version=hit.item.version,
        source_path=hit.source,
        start=hit.start + passage.start,
        end=hit.start + passage.end,
        quote=passage.text,
    )


def references(citations: Sequence[Citation]) -> str:
    """Return the numbered list of citations; consecutive ones of a document share a line."""
    lines: list[str] = []
    before = None
    for number, citation in enumerate(citations, 1):
        if citation.source_path == before:
            lines[-1] += f"; [{number}] {citation.start} to {citation.end}"
        else:
            lines.append(f"[{number}] {citation.source_path}, characters {citation.start} to {citation.end}")
        before = citation.source_path
    return "\n".join(f"{line}  " for line in lines)


def quotes_text(citations: Sequence[Citation]) -> str:
    """Return a text of numbered quotes and their references."""
    quotes = [
        f"{citation.quote}{chr(10) if citation.quote.endswith('```') else ' '}[{number}]"
        for number, citation in enumerate(citations, 1)
    ]
    return "\n\n".join([*quotes, references(citations)])


def attributed_quotes(citations: Sequence[Citation]) -> list[str]:
    """Return numbered quotes; the first of consecutive ones of a document is preceded by its name."""
    parts: list[str] = []
    before = None
    for number, citation in enumerate(citations, 1):
        same = citation.source_path == before
        label = "and" if same else f"{'See also' if parts else 'From'} {citation.source_path}"
        parts += labelled_quote(label, citation.quote, number)
        before = citation.source_path
    return parts


def attributed_text(citations: Sequence[Citation]) -> str:
    """Return a text of quotes with their documents and references."""
    return "\n\n".join([*attributed_quotes(citations), references(citations)])


def labelled_quote(label: str, text: str, number: int) -> list[str]:
    """Return a quote under a label, with the number of its citation."""
    return [f"{label} [{number}]:", "\n".join(f"> {line}".rstrip() for line in text.splitlines())]
