"""Confidence: how well memory covers a task, as a score and a band."""

from collections.abc import Sequence

from counterpoint.developer.evidence.attempts import EarlierAttempt
from counterpoint.developer.evidence.lessons import combined_likelihood
from counterpoint.developer.excerpts.passages import is_same_text
from counterpoint.developer.excerpts.relevance import Curve, Hit, independent_sources
from counterpoint.proto.decisions import Band, Confidence, ConfidenceTerms

HIGH = 0.8
MEDIUM = 0.6
ENOUGH_HITS = 5
MOST_UNVOUCHED = 0.79


def score(terms: ConfidenceTerms) -> float:
    """Return 0.4 similarity + 0.3 min(hits / 5, 1) + 0.2 provider + 0.1 similar earlier success, to four places.

    For a task without external systems the provider term is 1.
    """
    return round(
        0.4 * terms.rag_similarity
        + 0.3 * min(terms.rag_hits / ENOUGH_HITS, 1)
        + 0.2 * (terms.provider_exists is not False)
        + 0.1 * terms.similar_dag,
        4,
    )


def band(value: float) -> Band:
    """Return `high` from 0.8: proceed; `medium` from 0.6: proceed with caveats; `low`: stop and escalate."""
    if value >= HIGH:
        return "high"
    return "medium" if value >= MEDIUM else "low"


def below_high(confidence: Confidence) -> Confidence:
    """Return the confidence limited to medium, for results that rest on an agent's statement or on untrusted texts."""
    if confidence.band != "high":
        return confidence
    return confidence.model_copy(update={"score": MOST_UNVOUCHED, "band": band(MOST_UNVOUCHED)})


def confidence_of(terms: ConfidenceTerms) -> Confidence:
    """Return the confidence with score, band and terms."""
    value = score(terms)
    return Confidence(score=value, band=band(value), terms=terms)


def confidence_terms(
    hits: Sequence[Hit],
    provider: bool | None,
    similar_success: bool,
    curve: Curve,
    proven: Sequence[EarlierAttempt] = (),
) -> ConfidenceTerms:
    """Return the inputs of the score.

    Similarity is the relevance of the best trusted hit, hits is the number of independent trusted sources above the
    threshold of the topic curve. An earlier incident with a `proven` fix is a source too, with its likeness as
    relevance, unless a hit has the same text. `provider` is None for a task without external systems.
    """
    sources = independent_sources(hits, curve.threshold)
    more = [one for one in proven if not any(is_same_text(one.attempt.tried, hit.text) for hit in sources)]
    relevances = [
        *(hit.relevance for hit in hits if hit.trusted),
        combined_likelihood([one.likeness for one in proven]),
    ]
    return ConfidenceTerms(
        rag_similarity=round(max(relevances, default=0.0), 4),
        rag_hits=len(sources) + len(more),
        provider_exists="not applicable" if provider is None else provider,
        similar_dag=similar_success,
    )


def weaknesses(confidence: Confidence) -> tuple[str, ...]:
    """Return the reasons why a confidence is below high, in words; empty when it is high."""
    inputs = confidence.terms
    if inputs is None or confidence.band == "high":
        return ()
    texts = [f"confidence is {confidence.band} ({confidence.score:.2f})"]
    if inputs.rag_hits < ENOUGH_HITS:
        verb = "is" if inputs.rag_hits == 1 else "are"
        texts.append(f"{inputs.rag_hits} of {ENOUGH_HITS} independent trusted sources {verb} relevant")
    if inputs.rag_similarity < HIGH:
        texts.append(f"the best of them matches by {inputs.rag_similarity:.2f}")
    if inputs.provider_exists is False:
        texts.append("the provider index lacks a system that the task names")
    if not inputs.similar_dag:
        texts.append("no similar task is known to have succeeded")
    return ("; ".join(texts),)
