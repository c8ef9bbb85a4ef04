"""Relevance: the probability that a passage is about the query, and the grade of evidence for a question."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from counterpoint.developer.excerpts.passages import is_same_text
from counterpoint.developer.language.question_terms import german_words, question_terms
from counterpoint.developer.language.words import content_words
from counterpoint.proto.decisions import Source
from counterpoint.proto.memory import Item
from counterpoint.proto.messages import Shape

SEARCH_SCORE_WEIGHT = 15.0
"""Weight of the search score relative to the logit of the probability. With it the first three passages contain the
evidence of .707 of the questions of LoCoMo (by probability alone .660, by search score alone .707), .747 of Cranfield
(.751, .724) and .614 of CoSQA (.510, .620)."""
TRUSTED = 2
"""Minimum integrity of a trusted item."""


@dataclass(frozen=True)
class HitFeatures:
    """Features of a passage: its cosine to the query; `overlap`, the share of the query's content words in it,
    idf-weighted within the results; `coverage`, the same share, idf-weighted in all of memory; and the z-scores of its
    BM25 score and its cosine over all searched items."""

    cosine: float
    overlap: float
    coverage: float = 0.0
    lexical_z: float = 0.0
    cosine_z: float = 0.0

    @property
    def values(self) -> tuple[float, float, float, float, float]:
        """The features of a curve; that of BM25 is logarithmic, since rare words have no upper bound."""
        return self.cosine, self.overlap, self.coverage, math.log1p(max(self.lexical_z, 0.0)), self.cosine_z


class Curve(Shape):
    """A logistic curve from features to a probability, and the threshold of sufficient evidence. `fitted_on` names the
    data."""

    intercept: float
    cosine: float
    overlap: float
    coverage: float = 0.0
    lexical_z: float = 0.0
    cosine_z: float = 0.0
    threshold: float
    fitted_on: str

    def probability(self, features: HitFeatures) -> float:
        """Return the probability in [0, 1] for features."""
        weights = (self.cosine, self.overlap, self.coverage, self.lexical_z, self.cosine_z)
        weighed = sum(weight * value for weight, value in zip(weights, features.values, strict=True))
        return 1 / (1 + math.exp(-(self.intercept + weighed)))


@dataclass(frozen=True)
class Hit:
    """A chunk found by a search. `start` is the character offset of its text in the document."""

    item: Item
    source: str
    text: str
    context: str
    start: int
    markdown: bool
    relevance: float
    features: HitFeatures
    words: frozenset[str]

    @property
    def trusted(self) -> bool:
        """Whether a decision may rest on it."""
        return self.item.integrity >= TRUSTED

    @property
    def as_source(self) -> Source:
        """The hit as a source of a decision."""
        return Source(store=self.item.store, id=self.item.id, version=self.item.version, score=round(self.relevance, 4))


def hits(query: str, items: Sequence[Item], curve: Curve) -> tuple[Hit, ...]:
    """Return the chunks of a query, most relevant first. Words are idf-weighted within these chunks."""
    texts = ["\n".join(_shown_texts(item)) for item in items]
    shown = [(item, content_words(text) | german_words(text)) for item, text in zip(items, texts, strict=True)]
    terms = question_terms(query, [words for _, words in shown], with_digits=False)
    graded = (_hit(item, words, terms.share(terms.matching(words)), curve) for item, words in shown)
    return tuple(sorted(graded, key=lambda hit: (-hit.relevance, hit.source, hit.start)))


def rank_hits(found_hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return hits by a combination of probability and search score, which is better than either."""
    return tuple(
        sorted(found_hits, key=lambda hit: -(_logit(hit.relevance) + SEARCH_SCORE_WEIGHT * (hit.item.score or 0.0)))
    )


def _logit(probability: float) -> float:
    clipped = min(max(probability, 1e-9), 1 - 1e-9)
    return math.log(clipped / (1 - clipped))


def _shown_texts(item: Item) -> tuple[str, ...]:
    beside = item.body.get("around", ())[:1]
    return item.body.get("title") or "", item.body.get("context") or "", *beside, item.body["text"]


def _hit(item: Item, words: frozenset[str], covered: float, curve: Curve) -> Hit:
    body = item.body
    features = features_of(item, covered)
    return Hit(
        item=item,
        source=body["source"],
        text=body["text"],
        context=body.get("context") or "",
        start=body["start"],
        markdown=body.get("type") in (None, "markdown"),
        relevance=curve.probability(features),
        features=features,
        words=words,
    )


def features_of(item: Item, overlap: float) -> HitFeatures:
    """Return the features of an item; those that the search did not report are 0."""
    scores = item.scores or {}
    reported = {name: scores.get(name, 0.0) for name in ("cosine", "coverage", "lexical_z", "cosine_z")}
    return HitFeatures(overlap=overlap, **reported)


def independent_sources(found_hits: Sequence[Hit], threshold: float) -> tuple[Hit, ...]:
    """Return the best trusted hit of every independent source above the threshold.

    Sources with the same text, directly or through others, count as one, so that a copy never adds a source.
    """
    by_source: dict[str, list[Hit]] = {}
    for hit in found_hits:
        if hit.trusted:
            by_source.setdefault(hit.source, []).append(hit)
    groups: list[list[Hit]] = []
    for chunks in by_source.values():
        linked = [
            group
            for group in groups
            if any(is_same_text(mine.text, theirs.text) for mine in chunks for theirs in group)
        ]
        groups = [group for group in groups if group not in linked]
        groups.append([*chunks, *(hit for group in linked for hit in group)])
    best = (max(group, key=lambda hit: hit.relevance) for group in groups)
    return tuple(sorted((hit for hit in best if hit.relevance >= threshold), key=lambda hit: -hit.relevance))


class Grade(Shape):
    """Whether the evidence suffices to answer a question, the probability, and the reason in words."""

    sufficient: bool
    probability: float
    reason: str


def grade(found_hits: Sequence[Hit], curve: Curve) -> Grade:
    """Grade the evidence for a question by its best hit on the answer curve. The grade, not a confidence, decides
    whether a question is answered."""
    if not found_hits:
        return Grade(sufficient=False, probability=0.0, reason="nothing was found")
    best = max(found_hits, key=lambda hit: hit.relevance)
    sufficient = best.relevance >= curve.threshold
    figures = (
        f"{best.relevance:.2f}, threshold {curve.threshold:.2f} "
        f"(cosine {best.features.cosine:.2f}, words covered {best.features.overlap:.2f})"
    )
    verdict = "the best passage is likely to answer" if sufficient else "no passage is likely enough to answer"
    return Grade(sufficient=sufficient, probability=best.relevance, reason=f"{verdict}: {figures}")
