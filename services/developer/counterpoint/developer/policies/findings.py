"""Findings of a result, and the caveats of citations from untrusted sources."""

from collections.abc import Sequence

from counterpoint.developer.evidence.attempts import similar_attempts
from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.excerpts.citations import cite
from counterpoint.developer.excerpts.passages import passages
from counterpoint.developer.excerpts.relevance import Hit
from counterpoint.proto.findings import Citation, Findings

CANDIDATES = 3
LINEAGE = "what the events of lineage state"


def findings_of(
    evidence: Evidence,
    citations: tuple[Citation, ...],
    caveats: tuple[str, ...],
    next_steps: tuple[str, ...] = (),
    likelihood: float | None = None,
) -> Findings:
    """Return the findings of a result with these citations, without downstream rows."""
    return Findings(
        similar_attempts=similar_attempts(evidence.attempts),
        citations=citations,
        next_steps=next_steps,
        caveats=(*caveats, *unvouched_sources(evidence, citations)),
        likelihood=likelihood,
    )


def unvouched_sources(evidence: Evidence, citations: Sequence[Citation]) -> tuple[str, ...]:
    """Return a caveat for each cited untrusted source."""
    cited = {citation.id for citation in citations}
    hits = (*evidence.owners, *evidence.answers, *evidence.neighbours, *evidence.found)
    unvouched = [hit for hit in hits if hit.item.id in cited and not hit.trusted]
    sources = dict.fromkeys(LINEAGE if hit in evidence.owners else hit.source for hit in unvouched)
    return tuple(f"no trusted person has vouched for {source}" for source in sources)


def under_caveats(caveats: Sequence[str], text: str) -> str:
    """Return the text, preceded by a sentence per caveat."""
    return "\n\n".join([*(f"{caveat[0].upper()}{caveat[1:]}." for caveat in caveats), text])


def candidates(hits: Sequence[Hit]) -> tuple[Citation, ...]:
    """Return the first passage of each of the best hits, for a person's further search."""
    firsts = ((hit, passages(hit.text, hit.markdown)) for hit in hits[:CANDIDATES])
    return tuple(cite(hit, split[0]).model_copy(update={"role": "candidate"}) for hit, split in firsts if split)
