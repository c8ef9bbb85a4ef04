"""Findings of a result, and the caveats of citations from untrusted sources."""

from collections.abc import Sequence, Set

from counterpoint.developer.evidence.attempts import similar_attempts
from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.excerpts.citations import cite
from counterpoint.developer.excerpts.passages import Passage
from counterpoint.developer.excerpts.relevance import Hit
from counterpoint.developer.excerpts.sections import PROGRAMS
from counterpoint.developer.excerpts.units import BODY, units
from counterpoint.developer.language.words import content_words
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


def candidates(hits: Sequence[Hit], question: str) -> tuple[Citation, ...]:
    """Return of each of the best hits the block with most words of the question, for a person's further search."""
    words = content_words(question)
    best = ((hit, _block_about(words, hit)) for hit in hits[:CANDIDATES])
    return tuple(cite(hit, block).model_copy(update={"role": "candidate"}) for hit, block in best if block)


def _block_about(words: Set[str], hit: Hit) -> Passage | None:
    found = units(hit.text, hit.item.body.get("type") in PROGRAMS, hit.start == 0)
    blocks = [Passage("paragraph", unit.start, unit.end, unit.text) for unit in found if unit.kind in BODY]
    return max(blocks, key=lambda block: len(words & content_words(block.text)), default=None)
