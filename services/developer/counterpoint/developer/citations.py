"""Citations: what is quoted, and where it stands."""

from collections.abc import Sequence

from counterpoint.developer.passages import Passage
from counterpoint.developer.relevance import Hit
from counterpoint.proto.findings import Citation


def cite(hit: Hit, passage: Passage) -> Citation:
    """The citation of a passage of a hit; offsets count characters of the whole document."""
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
    """The numbered list of what a text cites."""
    return "\n".join(
        f"[{number}] {citation.source_path}, characters {citation.start} to {citation.end}  "
        for number, citation in enumerate(citations, 1)
    )
