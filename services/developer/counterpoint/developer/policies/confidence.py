"""Confidence: how well memory knows the subject of a task, and the bands that follow from it."""

from collections.abc import Sequence

from counterpoint.developer.evidence.attempts import EarlierAttempt
from counterpoint.developer.evidence.lessons import combined_likelihood
from counterpoint.developer.excerpts.passages import same
from counterpoint.developer.excerpts.relevance import Curve, Hit, distinct
from counterpoint.proto.decisions import Band, Confidence, ConfidenceTerms

HIGH = 0.8
MEDIUM = 0.6
ENOUGH_HITS = 5
MOST_UNVOUCHED = 0.79


def score(terms: ConfidenceTerms) -> float:
    """0.4 similarity + 0.3 min(hits / 5, 1) + 0.2 provider + 0.1 similar earlier success, to four places.

    A task that names no external system counts the provider as there.
    """
    return round(
        0.4 * terms.rag_similarity
        + 0.3 * min(terms.rag_hits / ENOUGH_HITS, 1)
        + 0.2 * (terms.provider_exists is not False)
        + 0.1 * terms.similar_dag,
        4,
    )


def band(value: float) -> Band:
    """`high` from 0.8: proceed; `medium` from 0.6: proceed with caveats; `low`: stop and escalate."""
    if value >= HIGH:
        return "high"
    return "medium" if value >= MEDIUM else "low"


def below_high(assessed: Confidence) -> Confidence:
    """The same, never high: for what rests on the word of an agent, or on a text that nobody trusted has put in."""
    if assessed.band != "high":
        return assessed
    return assessed.model_copy(update={"score": MOST_UNVOUCHED, "band": band(MOST_UNVOUCHED)})


def confidence_of(terms: ConfidenceTerms) -> Confidence:
    """The score of the terms, its band, and the terms."""
    value = score(terms)
    return Confidence(score=value, band=band(value), terms=terms)


def confidence_terms(
    found: Sequence[Hit],
    provider: bool | None,
    similar_success: bool,
    curve: Curve,
    proven: Sequence[EarlierAttempt] = (),
) -> ConfidenceTerms:
    """The inputs of the score.

    Similarity is the relevance of the best trusted hit of the topic curve, hits the number of distinct trusted
    sources above its threshold: untrusted content adds to neither. An earlier incident whose fix is `proven` is a
    source as well, its relevance its likeness, unless a source among the hits says the same already.

    `provider` is None when the task names no external system.
    """
    sources = distinct(found, curve.threshold)
    more = [one for one in proven if not any(same(one.attempt.tried, hit.text) for hit in sources)]
    relevances = [
        *(hit.relevance for hit in found if hit.trusted),
        combined_likelihood([one.likeness for one in proven]),
    ]
    return ConfidenceTerms(
        rag_similarity=round(max(relevances, default=0.0), 4),
        rag_hits=len(sources) + len(more),
        provider_exists="not applicable" if provider is None else provider,
        similar_dag=similar_success,
    )


def weaknesses(assessed: Confidence) -> tuple[str, ...]:
    """Return the reasons why a confidence is below high, in words; empty when it is high."""
    inputs = assessed.terms
    if inputs is None or assessed.band == "high":
        return ()
    said = [f"confidence is {assessed.band} ({assessed.score:.2f})"]
    if inputs.rag_hits < ENOUGH_HITS:
        said.append(f"{inputs.rag_hits} of {ENOUGH_HITS} independent trusted sources are relevant")
    if inputs.rag_similarity < HIGH:
        said.append(f"the best of them matches by {inputs.rag_similarity:.2f}")
    if inputs.provider_exists is False:
        said.append("the provider index lacks a system that the task names")
    if not inputs.similar_dag:
        said.append("no similar task is known to have succeeded")
    return ("; ".join(said),)
