"""Whether each sentence of a draft is borne out by what it cites (row C5). Pure."""

import re
from collections.abc import Mapping, Sequence

from counterpoint.developer.rag.run import Draft, Sentence, Verdict
from counterpoint.developer.relevance import Hit
from counterpoint.developer.words import content_words
from counterpoint.proto.findings import Citation

SHARED = 0.5
"""Share of a sentence's content words that what it cites has to hold."""

_MARK = re.compile(r"\[\d+\]")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,:/-]\d+)*(?![\w])")
_IDENTIFIER = re.compile(r"\b(?:\w+(?:[_./:-]\w+)+|[a-z]+[A-Z]\w*|[A-Z]{2,}\w*\d\w*|\w*\d\w*[A-Za-z]\w*)\b")
_PLAIN = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)*")


def verdicts(draft: Draft, found: Sequence[Hit]) -> tuple[Verdict, ...]:
    """One a sentence: what it cites exists and is as it says, holds its numbers, dates and identifiers, and half of its
    words at least."""
    chunks = {(hit.item.store, hit.item.id, hit.item.version): hit for hit in found}
    return tuple(_verdict(sentence, draft.citations, chunks) for sentence in draft.sentences)


def resolves(citation: Citation, hit: Hit | None) -> bool:
    """Whether a citation's span is in the chunk it names and reads as it says."""
    if hit is None:
        return False
    start, end = citation.start - hit.start, citation.end - hit.start
    return 0 <= start < end <= len(hit.text) and hit.text[start:end] == citation.quote


def _verdict(sentence: Sentence, citations: Sequence[Citation], chunks: Mapping[tuple[str, str, int], Hit]) -> Verdict:
    if not sentence.rests_on:
        return Verdict(supported=False, problem="cites nothing")
    cited = [citations[n] for n in sentence.rests_on if 0 <= n < len(citations)]
    if len(cited) < len(sentence.rests_on):
        return Verdict(supported=False, problem="cites what is not there")
    for citation in cited:
        if not resolves(citation, chunks.get((citation.store, citation.id, citation.version))):
            return Verdict(supported=False, problem=f"what it quotes is not at {citation.source_path}:{citation.start}")
    said = _MARK.sub("", sentence.text)
    hits = [chunks[citation.store, citation.id, citation.version] for citation in cited]
    held = " ".join([*(citation.quote for citation in cited), *(hit.context for hit in hits)])
    missing = sorted(exact(said) - exact(held))
    if missing:
        return Verdict(supported=False, problem=f"says {', '.join(missing[:5])}, which what it cites does not")
    words = content_words(said)
    if words and len(words & content_words(held)) < SHARED * len(words):
        return Verdict(supported=False, problem="has little in common with what it cites")
    return Verdict(supported=True)


def exact(text: str) -> set[str]:
    """Numbers, dates, times and identifiers, in lower case."""
    found = {each.lower() for each in _NUMBER.findall(text)}
    found |= {each.lower() for each in _IDENTIFIER.findall(text) if not _PLAIN.fullmatch(each)}
    return found
