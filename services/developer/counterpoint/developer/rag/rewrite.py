"""Rewriting of queries with insufficient results. Pure functions."""

import re
from collections.abc import Sequence

from counterpoint.developer.evidence.search_query import QUERY_CHARS, SearchQuery
from counterpoint.developer.excerpts.relevance import Hit
from counterpoint.developer.language.words import content_words, stem_of
from counterpoint.developer.rag.run import Run

PARTS = 3
EXPANSION_WORDS = 6
_BEST = 3

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_PART = re.compile(r"[,;:?]?\s(?:and|or|as well as|then)\s|[,;?]\s|:\s", re.IGNORECASE)
_WORD = re.compile(r"(?<![\w./:-])[\w./:-]*\w")
_INTERROGATIVE = re.compile(
    r"\b(?:who|whom|whose|what|when|where|which|why|how|is|are|does|do|did|can|could|should)\b", re.IGNORECASE
)
_ME = r"(?:me|us)\b(?: (?:again|once more))?"
_POLITE = (
    r"\b(?:please,? (?:help|clarify|check|(?:(?:tell|remind|show|explain to|help) {me}|explain|let {me} know))"
    r"|(?:tell|remind|show) {me}|let {me} know|do you (?:happen to )?know|does any(?:body|one) (?:here )?know"
    r"|i(?: am|['’]m| was)? (?:just )?wonder(?:ing)?|i(?: would|['’]d) like to know|i(?: need| want) to know"
    r"|would you know|any idea)\b[,:]?\s*".replace("{me}", _ME)
)
_COURTESY, _POLITELY = re.compile(f"^.*?{_POLITE}", re.IGNORECASE), re.compile(_POLITE, re.IGNORECASE)
_CHATTER = re.compile(
    r"^\W*(?:hi|hello|hey|dear|good (?:morning|afternoon|evening|day)|greetings|cheers|thanks|thank you|many thanks"
    r"|hallo|guten (?:morgen|tag|abend)|danke|vielen dank)\b(?:\W+\w+){0,3}\W*$|\bby the way\b|\bübrigens\b",
    re.IGNORECASE,
)
"""Greetings, thanks and asides, which are not part of a question."""
_THANKS = re.compile(r"[,;]? ?\b(?:please|thanks|thank you|many thanks)\b[^?]*(?=\?|$)", re.IGNORECASE)


def rewrite(question: str, previous: SearchQuery, hits: Sequence[Hit], rewrites: int) -> SearchQuery | None:
    """Return the next query, or None without a new one.

    The first rewriting is the core question and its parts; the second adds words that co-occur in the best results. A
    query is never repeated.
    """
    first = _core_question(question) if rewrites == 0 else None
    options = (first, _expanded(question, hits))
    return next((each for each in options if each is not None and _new(each, question, previous)), None)


def text_to_grade(run: Run) -> str:
    """Return the text that results are graded against: the question, after a rewriting without greetings, asides and
    courtesy. Results of other words would otherwise be graded by those words."""
    if not run.rewrites:
        return run.meant
    sentences = (" ".join(sentence.split()) for sentence in _SENTENCE.split(run.meant))
    trimmed = (_THANKS.sub("", _POLITELY.sub("", sentence)) for sentence in sentences if not _CHATTER.search(sentence))
    text = " ".join(sentence for sentence in trimmed if sentence)
    return text if content_words(text) else run.meant


def _new(other: SearchQuery, question: str, previous: SearchQuery) -> bool:
    texts = {other.text, *other.also}
    return not texts <= {previous.text, *previous.also, question[:QUERY_CHARS]}


def _core_question(question: str) -> SearchQuery | None:
    sentences = [" ".join(sentence.split()) for sentence in _SENTENCE.split(question)]
    asks = [sentence for sentence in sentences if sentence.endswith("?")] or [
        sentence for sentence in sentences if _INTERROGATIVE.search(sentence)
    ]
    point = " ".join(_without_courtesy(sentence) for sentence in asks).strip()[:QUERY_CHARS]
    if not content_words(point):
        return None
    parts = (part.strip(" ?.!") for part in _PART.split(point) if len(content_words(part)) >= 2)
    also = tuple(part for part in dict.fromkeys(parts) if part != point.strip(" ?.!"))[:PARTS]
    return SearchQuery(text=point, also=also, why="the question alone, and its parts" if also else "the question alone")


def _without_courtesy(sentence: str) -> str:
    """Return a sentence without courtesy phrases, unless nothing would remain."""
    bare = _THANKS.sub("", _COURTESY.sub("", sentence))
    return bare if content_words(bare) else sentence


def _expanded(question: str, hits: Sequence[Hit]) -> SearchQuery | None:
    point = _core_question(question) or SearchQuery(text=question[:QUERY_CHARS])
    wanted = content_words(point.text)
    keywords = [word for word in dict.fromkeys(_WORD.findall(point.text)) if content_words(word)]
    counts: dict[str, int] = {}
    for hit in hits[:_BEST]:
        for word in dict.fromkeys(_WORD.findall(f"{hit.context} {hit.text}".lower())):
            if (stem := stem_of(word)) and stem not in wanted:
                counts[word] = counts.get(word, 0) + 1
    beside = [word for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if count > 1]
    text = " ".join([*keywords, *beside[:EXPANSION_WORDS]])[:QUERY_CHARS]
    if not keywords:
        return None
    why = "its words, and words next to them in the results"
    return SearchQuery(text=point.text, also=(text, *point.also), why=why)
