"""Other words for a question that found too little (row C4). Pure."""

import re
from collections.abc import Sequence

from counterpoint.developer.rag.run import Asked
from counterpoint.developer.relevance import Hit
from counterpoint.developer.words import content_words, stem_of

PARTS = 3
EXPANDED = 6
_BEST = 3

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
_PART = re.compile(r"\s*(?:[,;:?]|\band\b|\bor\b|\bas well as\b|\bthen\b)\s*", re.IGNORECASE)
_WORD = re.compile(r"[\w./:-]*\w")
_INTERROGATIVE = re.compile(
    r"\b(?:who|whom|whose|what|when|where|which|why|how|is|are|does|do|did|can|could|should)\b", re.IGNORECASE
)
_COURTESY = re.compile(
    r"^.*?\b(?:please (?:tell|remind|show) (?:me|us)|(?:tell|remind|show) (?:me|us)|do you (?:happen to )?know"
    r"|does any(?:body|one) know|i (?:was|am) wondering|i(?: would|'d) like to know|would you know)\b[,:]?\s*",
    re.IGNORECASE,
)


def rewritten(question: str, before: Asked, found: Sequence[Hit], rewrites: int) -> Asked | None:
    """What to look for next; None where nothing new comes to mind.

    First the question alone, without what is said around it, and its parts; then its words, with those that the best
    of what was found has beside them.
    """
    first = _to_the_point(question) if rewrites == 0 else None
    return first if first is not None and first.text != before.text else _widened(question, before, found)


def _to_the_point(question: str) -> Asked | None:
    said = [sentence.strip() for sentence in _SENTENCE.findall(question) if sentence.strip()]
    asks = [sentence for sentence in said if sentence.endswith("?")] or [
        sentence for sentence in said if _INTERROGATIVE.search(sentence)
    ]
    point = " ".join(_COURTESY.sub("", sentence) for sentence in asks).strip()
    if not content_words(point):
        return None
    parts = [part for part in _PART.split(point) if len(content_words(part)) >= 2]
    also = tuple(dict.fromkeys(part for part in parts if part != point))[:PARTS] if len(parts) > 1 else ()
    if point == question and not also:
        return None
    return Asked(text=point, also=also, why="the question alone, and its parts" if also else "the question alone")


def _widened(question: str, before: Asked, found: Sequence[Hit]) -> Asked | None:
    point = (_to_the_point(question) or Asked(text=question)).text
    wanted = content_words(point)
    keywords = [word for word in dict.fromkeys(_WORD.findall(point)) if stem_of(word) in wanted]
    counts: dict[str, int] = {}
    for hit in found[:_BEST]:
        for word in dict.fromkeys(_WORD.findall(f"{hit.context} {hit.text}".lower())):
            if (stem := stem_of(word)) and stem not in wanted:
                counts[word] = counts.get(word, 0) + 1
    beside = [word for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if count > 1]
    text = " ".join([*keywords, *beside[:EXPANDED]])
    if not keywords or text in before.also:
        return None
    # What is found by other words is graded by the question all the same: else they would prove themselves.
    return Asked(text=point, also=(text,), why="its words, and those that stand beside them in what was found")
