"""Checks of a draft: its citations must support each sentence. Pure functions."""

import re
from collections.abc import Mapping, Sequence

from counterpoint.developer.excerpts.relevance import Hit
from counterpoint.developer.language.exact_forms import exact, words_of
from counterpoint.developer.rag.run import Draft, Sentence, Verdict
from counterpoint.proto.findings import Citation

SHARED = 0.5
"""Minimum share of a sentence's content words in its citations."""

MARK = re.compile(r"\[\d{1,3}(?:\s*[,;]\s*\d{1,3})*\]")
"""Citation marks of a sentence: [1], [2][3], [4, 5]."""


def verdicts_of(draft: Draft, hits: Sequence[Hit]) -> tuple[Verdict, ...]:
    """Return a verdict per sentence: its citations exist and match, and contain its numbers, dates, identifiers and at
    least half of its words."""
    chunks = {(hit.item.store, hit.item.id, hit.item.version): hit for hit in hits}
    return tuple(_verdict(sentence, draft.citations, chunks) for sentence in draft.sentences)


def resolves(citation: Citation, hit: Hit | None) -> bool:
    """Return whether a citation's span is in its chunk and has the cited text."""
    if hit is None:
        return False
    start, end = citation.start - hit.start, citation.end - hit.start
    return 0 <= start < end <= len(hit.text) and hit.text[start:end] == citation.quote


def _verdict(sentence: Sentence, citations: Sequence[Citation], chunks: Mapping[tuple[str, str, int], Hit]) -> Verdict:
    if not sentence.rests_on and not sentence.cites_unknown:
        return Verdict(supported=False, problem="cites nothing")
    # In checkpoints of older releases an unknown citation is an index out of range.
    cited = [citations[n] for n in sentence.rests_on if 0 <= n < len(citations)]
    if sentence.cites_unknown or len(cited) < len(sentence.rests_on):
        return Verdict(supported=False, problem="cites a passage that does not exist")
    for citation in cited:
        if not resolves(citation, chunks.get((citation.store, citation.id, citation.version))):
            return Verdict(supported=False, problem=f"its quote does not match {citation.source_path}:{citation.start}")
    text = MARK.sub("", sentence.text)
    hits = [chunks[citation.store, citation.id, citation.version] for citation in cited]
    cited_text = " ".join([*(citation.quote for citation in cited), *(hit.context for hit in hits)])
    missing = sorted(exact(text) - exact(cited_text))
    if missing:
        return Verdict(supported=False, problem=f"contains {', '.join(missing[:5])}, which the cited text does not")
    if any(text.split() == citation.quote.split() for citation in cited):
        return Verdict(supported=True)
    words = words_of(text)
    if not words and not exact(text):
        return Verdict(supported=False, problem="contains nothing that can be compared with the cited text")
    if words and len(words & words_of(cited_text)) < SHARED * len(words):
        return Verdict(supported=False, problem="has little in common with the cited text")
    return Verdict(supported=True)
