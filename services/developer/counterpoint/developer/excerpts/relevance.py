"""Relevance: how likely a found passage is about what was asked, and whether that is enough to answer a question."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from counterpoint.developer.excerpts.passages import same
from counterpoint.developer.language.words import content_words, coverage, weights
from counterpoint.proto.decisions import Source
from counterpoint.proto.memory import Item
from counterpoint.proto.messages import Shape

COMPARED = 15.0
"""Weight of the search score beside the logit of the probability. With it the first three passages hold the evidence
of .707 of LoCoMo's questions (by probability alone .660, by search score alone .707), of Cranfield's .747 (.751,
.724) and of CoSQA's .614 (.510, .620)."""
TRUSTED = 2
"""Integrity of an item that a person, an administrator or a system put in."""


@dataclass(frozen=True)
class HitFeatures:
    """Features of a passage: its cosine to the query; `overlap`, the share of the query's content words that it
    holds, weighted by their rarity among the results; `coverage`, the same share weighted by their rarity in all
    of memory; and how many standard deviations its BM25 score and its cosine are above the mean of all items
    searched."""

    cosine: float
    overlap: float
    coverage: float = 0.0
    lexical_z: float = 0.0
    cosine_z: float = 0.0

    @property
    def values(self) -> tuple[float, float, float, float, float]:
        """As a curve weighs them: BM25 by the logarithm, for rare words reach any height."""
        return self.cosine, self.overlap, self.coverage, math.log1p(max(self.lexical_z, 0.0)), self.cosine_z


class Curve(Shape):
    """A logistic curve from features to a probability, and the threshold from which that is enough; `fitted_on`
    names the data it was fitted on."""

    intercept: float
    cosine: float
    overlap: float
    coverage: float = 0.0
    lexical_z: float = 0.0
    cosine_z: float = 0.0
    threshold: float
    fitted_on: str

    def at(self, features: HitFeatures) -> float:
        """The probability in [0, 1] for a passage with these features."""
        weights = (self.cosine, self.overlap, self.coverage, self.lexical_z, self.cosine_z)
        weighed = sum(weight * value for weight, value in zip(weights, features.values, strict=True))
        return 1 / (1 + math.exp(-(self.intercept + weighed)))


@dataclass(frozen=True)
class Hit:
    """A chunk that a search found. `start` is where its text begins in its document (characters)."""

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
    def basis(self) -> Source:
        """The hit as the source of a decision."""
        return Source(store=self.item.store, id=self.item.id, version=self.item.version, score=round(self.relevance, 4))


def hits(query: str, items: Sequence[Item], curve: Curve) -> tuple[Hit, ...]:
    """Chunks found for a query, most relevant first. Words weigh by their rarity among these chunks."""
    shown = [(item, content_words("\n".join(_shown(item)))) for item in items]
    worth = weights(content_words(query), [words for _, words in shown])
    graded = (_hit(item, words, coverage(worth, words), curve) for item, words in shown)
    return tuple(sorted(graded, key=lambda hit: (-hit.relevance, hit.source, hit.start)))


def ranked(found: Sequence[Hit]) -> tuple[Hit, ...]:
    """Hits by how good each is alone, and by how the search compares them: neither order is as good as both."""
    return tuple(sorted(found, key=lambda hit: -(_logit(hit.relevance) + COMPARED * (hit.item.score or 0.0))))


def _logit(probability: float) -> float:
    held = min(max(probability, 1e-9), 1 - 1e-9)
    return math.log(held / (1 - held))


def _shown(item: Item) -> tuple[str, ...]:
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
        relevance=curve.at(features),
        features=features,
        words=words,
    )


def features_of(item: Item, overlap: float) -> HitFeatures:
    """Return the features of an item; 0 for each that the search did not report."""
    scores = item.scores or {}
    said = {name: scores.get(name, 0.0) for name in ("cosine", "coverage", "lexical_z", "cosine_z")}
    return HitFeatures(overlap=overlap, **said)


def distinct(found: Sequence[Hit], threshold: float) -> tuple[Hit, ...]:
    """The best trusted hit of every independent source above the threshold.

    Sources of which found chunks say the same are one, and so are those they are linked with through others: a copy
    of what is known never adds one, whatever else is copied with it.
    """
    by_source: dict[str, list[Hit]] = {}
    for hit in found:
        if hit.trusted:
            by_source.setdefault(hit.source, []).append(hit)
    groups: list[list[Hit]] = []
    for chunks in by_source.values():
        linked = [group for group in groups if any(same(mine.text, theirs.text) for mine in chunks for theirs in group)]
        groups = [group for group in groups if group not in linked]
        groups.append([*chunks, *(hit for group in linked for hit in group)])
    best = (max(group, key=lambda hit: hit.relevance) for group in groups)
    return tuple(sorted((hit for hit in best if hit.relevance >= threshold), key=lambda hit: -hit.relevance))


class Grade(Shape):
    """Whether the evidence is enough to answer a question, the probability that it is, and the reason in words."""

    sufficient: bool
    probability: float
    reason: str


def grade(found: Sequence[Hit], curve: Curve) -> Grade:
    """Grade the evidence for a question over hits of the answer curve: the best one has to be likely enough to
    answer. This grade, not the confidence of other tasks, decides whether a question is answered."""
    if not found:
        return Grade(sufficient=False, probability=0.0, reason="nothing was found")
    best = max(found, key=lambda hit: hit.relevance)
    sufficient = best.relevance >= curve.threshold
    figures = (
        f"{best.relevance:.2f}, threshold {curve.threshold:.2f} "
        f"(cosine {best.features.cosine:.2f}, words covered {best.features.overlap:.2f})"
    )
    verdict = "the best passage is likely to answer" if sufficient else "no passage is likely enough to answer"
    return Grade(sufficient=sufficient, probability=best.relevance, reason=f"{verdict}: {figures}")
