"""Answers that consist of quotes from the evidence, each with its citation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from counterpoint.developer.excerpts.citations import cite, quotes_text
from counterpoint.developer.excerpts.passages import Passage, passages, sentences
from counterpoint.developer.excerpts.relevance import Curve, Grade, Hit, grade
from counterpoint.developer.excerpts.selection import Selection, select
from counterpoint.developer.language.words import content_words, coverage, weights
from counterpoint.proto.findings import Citation

SPANS = 5
SOURCES = 3
STEPS = 12
CHUNKS = 5


@dataclass(frozen=True)
class QuotedAnswer:
    """A markdown text of quotes, and their citations in the order of their numbers."""

    text: str
    citations: tuple[Citation, ...]


@dataclass(frozen=True)
class QuestionHits:
    """The hits for a question, or those of a `rewritten` query, and adjacent passages. The excerpts are selected once,
    to be graded and quoted."""

    question: str
    hits: Sequence[Hit]
    neighbours: Sequence[Hit] = ()
    rewritten: bool = False

    @cached_property
    def selected(self) -> Selection | None:
        """The excerpts of documents; None for conversations and programs."""
        return select(self.question, self.hits, self.neighbours)

    def grade(self, curve: Curve) -> Grade:
        """Grade whether the hits suffice for an answer: documents by the likelihood of the excerpts, others by that of
        the best passage."""
        return grade(self.hits, curve) if self.selected is None else self.selected.grade(self.rewritten)

    def quoted(self, threshold: float) -> QuotedAnswer:
        """Quote the parts of the best hits that answer the question: documents by sections, others by spans. Needs at
        least one hit."""
        if self.selected is None:
            return _spans(self.question, self.hits, threshold)
        citations = self.selected.citations
        return QuotedAnswer(quotes_text(citations), citations)


def _spans(question: str, hits: Sequence[Hit], threshold: float) -> QuotedAnswer:
    """Return spans of the best hits: the best span of each of the first few, then those that cover further words.

    A later hit needs half the threshold. With a step come the other steps of its list, in order. Needs at least one
    hit.
    """
    chosen = [hits[0], *(hit for hit in hits[1:CHUNKS] if hit.relevance >= threshold / 2)]
    word_weights = weights(content_words(question), [hit.words for hit in hits])
    uncovered = dict(word_weights)
    total = math.fsum(word_weights.values())
    chosen_spans: list[tuple[Hit, Passage]] = []
    options = [
        (hit, sentence)
        for hit in chosen
        for passage in passages(hit.text, hit.markdown)
        for sentence in sentences(passage)
    ]

    def best(of: Sequence[tuple[Hit, Passage]]) -> tuple[float, Hit, Passage] | None:
        scored = [
            (_gain(hit, each, uncovered, word_weights), -chosen.index(hit), -each.start, hit, each) for hit, each in of
        ]
        gain, _, _, hit, sentence = max(scored, key=lambda option: option[:3], default=(0, 0, 0, None, None))
        return (gain, hit, sentence) if hit is not None and sentence is not None else None

    def take(hit: Hit, sentence: Passage) -> None:
        chosen_spans.append((hit, sentence))
        covered = content_words(sentence.text) | content_words(hit.context)
        for word in covered & uncovered.keys():
            del uncovered[word]

    for hit in chosen[:SOURCES]:
        if (picked := best([option for option in options if option[0] is hit])) is not None:
            take(*picked[1:])
    while (
        len(chosen_spans) < SPANS
        and (picked := best([option for option in options if option not in chosen_spans])) is not None
    ):
        if chosen_spans and picked[0] < 0.1 * total:
            break
        take(*picked[1:])
    chosen_spans.sort(key=lambda span: chosen.index(span[0]))
    return _rendered(_with_steps(chosen_spans))


def _gain(hit: Hit, sentence: Passage, uncovered: dict[str, float], weights: dict[str, float]) -> float:
    """Return the weight of the words that a sentence adds, and a fraction for repeated ones, times the relevance of its
    chunk."""
    words = content_words(sentence.text)
    added = math.fsum(value for word, value in uncovered.items() if word in words)
    return hit.relevance * (added + 0.05 * coverage(weights, words))


def _with_steps(chosen_spans: Sequence[tuple[Hit, Passage]]) -> list[tuple[Hit, Passage]]:
    whole: list[tuple[Hit, Passage]] = []
    for hit, passage in chosen_spans:
        steps = [step for step in passages(hit.text, hit.markdown) if step.kind == "step"]
        for span in steps[:STEPS] if passage.kind == "step" else [passage]:
            if (hit, span) not in whole:
                whole.append((hit, span))
    return whole


def _rendered(chosen_spans: Sequence[tuple[Hit, Passage]]) -> QuotedAnswer:
    citations = tuple(cite(hit, passage) for hit, passage in chosen_spans)
    return QuotedAnswer(quotes_text(citations), citations)
