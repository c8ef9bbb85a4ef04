"""Citations: quotes and their positions."""

import re
from collections.abc import Sequence

from counterpoint.developer.excerpts.passages import Passage
from counterpoint.developer.excerpts.relevance import Hit
from counterpoint.proto.findings import Citation

SPACE_MAX = 5
"""Maximum characters between two passages of one text: line breaks and the indentation of the second. A heading is
longer."""

_TABLE_START = re.compile(r"\|[^\n]*\n[ \t]*+\|?[ \t]*+:?-[-:| \t]*(?:\n|$)")


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
        f"{quote}{chr(10) if quote.endswith('```') else ' '}{''.join(f'[{number + 1}]' for number in numbers)}"
        for quote, numbers in joined_quotes(citations)
    ]
    return "\n\n".join([*quotes, references(citations)])


def joined_quotes(citations: Sequence[Citation]) -> list[tuple[str, tuple[int, ...]]]:
    """Return each quote with the indices of its citations. The parts of a text that was stored as consecutive passages
    are one quote, and so are the header and the rows of a table."""
    quotes: list[tuple[str, tuple[int, ...]]] = []
    for n, citation in enumerate(citations):
        space = _space_between(citations[n - 1], citation) if n else None
        if space is not None:
            quote, numbers = quotes.pop()
            quotes.append((f"{quote}{space}{citation.quote}", (*numbers, n)))
        else:
            quotes.append((citation.quote, (n,)))
    return quotes


def _space_between(before: Citation, after: Citation) -> str | None:
    """Return the white space between two citations of one text, or rows of one table; None if they are separate."""
    if before.source_path != after.source_path or before.end > after.start:
        return None
    space = after.start - before.end
    if 0 < space <= SPACE_MAX and before.id != after.id:
        return "\n\n" if space == len("\n\n") else "\n" + " " * (space - 1)
    in_table = before.quote.rpartition("\n")[2].lstrip().startswith("|") and after.quote.startswith("|")
    return "\n" if in_table and _TABLE_START.match(after.quote) is None else None


def attributed_quotes(citations: Sequence[Citation]) -> list[str]:
    """Return numbered quotes; the first of consecutive ones of a document is preceded by its name."""
    parts: list[str] = []
    before = None
    for quote, numbers in joined_quotes(citations):
        source = citations[numbers[0]].source_path
        label = "and" if source == before else f"{'See also' if parts else 'From'} {source}"
        parts += labelled_quote(label, quote, *(number + 1 for number in numbers))
        before = source
    return parts


def attributed_text(citations: Sequence[Citation]) -> str:
    """Return a text of quotes with their documents and references."""
    return "\n\n".join([*attributed_quotes(citations), references(citations)])


def labelled_quote(label: str, text: str, *numbers: int) -> list[str]:
    """Return a quote under a label, with the numbers of its citations."""
    return [
        f"{label} {''.join(f'[{number}]' for number in numbers)}:",
        "\n".join(f"> {line}".rstrip() for line in text.splitlines()),
    ]
