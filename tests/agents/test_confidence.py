"""Confidence: the vectors test the function, 30 labelled tasks test its inputs."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.developer.evidence.calibration import load_calibration
from counterpoint.developer.excerpts.relevance import Hit, hits, independent_sources
from counterpoint.developer.policies.confidence import band, confidence_of, confidence_terms, score, weaknesses
from counterpoint.proto.decisions import ConfidenceTerms
from counterpoint.proto.memory import Item
from counterpoint.proto.messages import utc_now

TOPIC = load_calibration().topic
Passage = tuple[str, str, float, int]
"""Source, text, cosine with the task, integrity."""


def given_terms(similarity: float, count: int, provider: bool | str, similar: bool) -> ConfidenceTerms:
    return ConfidenceTerms.model_validate(
        {"rag_similarity": similarity, "rag_hits": count, "provider_exists": provider, "similar_dag": similar}
    )


@pytest.mark.parametrize(
    ("similarity", "count", "provider", "similar", "expected"),
    [
        (0.85, 5, True, False, 0.84),
        (1.0, 5, True, True, 1.0),
        (0.0, 0, False, False, 0.0),
        (0.9, 2, False, False, 0.48),
        (0.85, 5, "not applicable", False, 0.84),
        (0.5, 50, True, False, 0.7),
    ],
)
def test_vectors(similarity: float, count: int, provider: bool | str, similar: bool, expected: float) -> None:
    assert score(given_terms(similarity, count, provider, similar)) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1.0, "high"), (0.8, "high"), (0.7999, "medium"), (0.6, "medium"), (0.5999, "low"), (0.0, "low")],
)
def test_bands(value: float, expected: str) -> None:
    assert band(value) == expected


_unit = st.floats(0, 1)
_terms = st.builds(
    given_terms, _unit, st.integers(0, 30), st.sampled_from([True, False, "not applicable"]), st.booleans()
)


@given(_terms, _terms)
def test_the_score_is_monotone_in_every_input(left: ConfidenceTerms, right: ConfidenceTerms) -> None:
    best = given_terms(
        max(left.rag_similarity, right.rag_similarity),
        max(left.rag_hits, right.rag_hits),
        left.provider_exists is not False or right.provider_exists is not False,
        left.similar_dag or right.similar_dag,
    )
    assert 0 <= score(left) <= score(best) <= 1


def hits_of(task: str, passages: Sequence[Passage]) -> tuple[Hit, ...]:
    items = [
        Item(
            store="chunks",
            id=str(number),
            project="shop",
            version=1,
            body={"document_id": source, "source": source, "text": text, "context": "", "start": 0, "type": "markdown"},
            author="memory",
            label=1,
            integrity=integrity,
            seq=number + 1,
            at=utc_now(),
            scores={"cosine": cosine},
        )
        for number, (source, text, cosine, integrity) in enumerate(passages)
    ]
    return hits(task, items, TOPIC)


def near(source: str, text: str, integrity: int = 2) -> Passage:
    return (source, text, 0.75, integrity)


def far(source: str, text: str) -> Passage:
    return (source, text, 0.2, 2)


LOAD = "loading invoices into the warehouse fails with a duplicate key"
STEPS = "When loading invoices fails with a duplicate key, empty the staging table of the warehouse and load again."
COPY = STEPS.replace("empty the", "empty  the").upper()
EDITED = STEPS.replace("again", "once more")
NOTE = "Invoices have one key for each supplier and number; duplicate keys come from a second delivery of a file."
HISTORY = "In spring the warehouse refused invoices twice because a supplier had used a number again."
DESIGN = "The warehouse loads invoices by merge; a failed merge leaves the staging table full."
OWNER = "The invoices job is owned by team-billing, who are told when loading into the warehouse fails."
CAKE = "The cake for birthdays is ordered on Mondays."
MANY = [near("a", STEPS), near("b", NOTE), near("c", HISTORY), near("d", DESIGN), near("e", OWNER)]

Labelled = tuple[str, list[Passage], bool | None, bool, int, str]
TASKS: list[Labelled] = [
    ("nothing is known", [], None, False, 0, "low"),
    ("nothing is known, but done before", [], None, True, 0, "low"),
    ("nothing is known, a provider is there", [], True, False, 0, "low"),
    ("only far passages", [far("a", CAKE), far("b", CAKE + " Plates are in the kitchen.")], None, False, 0, "low"),
    ("one source", [near("a", STEPS)], None, False, 1, "medium"),
    ("one source, provider", [near("a", STEPS)], True, False, 1, "medium"),
    ("one source, no provider", [near("a", STEPS)], False, False, 1, "low"),
    ("one source, no provider, done before", [near("a", STEPS)], False, True, 1, "low"),
    ("one source, done before", [near("a", STEPS)], None, True, 1, "medium"),
    ("one source, two chunks", [near("a", STEPS), near("a", NOTE)], None, False, 1, "medium"),
    ("one source and a far one", [near("a", STEPS), far("b", CAKE)], None, False, 1, "medium"),
    ("one source and an exact copy", [near("a", STEPS), near("b", STEPS)], None, False, 1, "medium"),
    ("one source and a copy in capitals", [near("a", STEPS), near("b", COPY)], None, False, 1, "medium"),
    ("one source and an edited copy", [near("a", STEPS), near("b", EDITED)], None, False, 1, "medium"),
    ("one source and ten copies", [near(str(n), STEPS) for n in range(11)], None, False, 1, "medium"),
    ("a copy that adds a chunk", [near("a", STEPS), near("b", STEPS), near("b", NOTE)], None, False, 1, "medium"),
    ("two sources", MANY[:2], None, False, 2, "medium"),
    ("two sources, no provider", MANY[:2], False, False, 2, "low"),
    ("three sources", MANY[:3], None, False, 3, "medium"),
    ("three sources, done before", MANY[:3], None, True, 3, "high"),
    ("four sources", MANY[:4], None, False, 4, "high"),
    ("five sources", MANY, None, False, 5, "high"),
    ("five sources, provider", MANY, True, True, 5, "high"),
    ("five sources, no provider", MANY, False, False, 5, "medium"),
    ("five sources, no provider, done before", MANY, False, True, 5, "medium"),
    ("untrusted alone", [(s, t, c, 0) for s, t, c, _ in MANY], None, False, 0, "low"),
    ("untrusted alone, everything else good", [(s, t, 1.0, 0) for s, t, _, _ in MANY], True, True, 0, "low"),
    ("by agents alone", [(s, t, c, 1) for s, t, c, _ in MANY], None, True, 0, "low"),
    ("trusted and not", [near("a", STEPS), near("b", NOTE, 0), near("c", HISTORY, 1)], None, False, 1, "medium"),
    ("untrusted beside a far trusted one", [near("a", STEPS, 0), far("b", CAKE)], True, True, 0, "low"),
]  # fmt: skip


def test_there_are_thirty_labelled_tasks() -> None:
    assert len(TASKS) == 30


@pytest.mark.parametrize(
    ("name", "passages", "provider", "similar", "count", "expected"), TASKS, ids=lambda v: str(v)[:40]
)
def test_inputs_of_labelled_tasks(
    name: str, passages: list[Passage], provider: bool | None, similar: bool, count: int, expected: str
) -> None:
    inputs = confidence_terms(hits_of(LOAD, passages), provider, similar, TOPIC)
    assert inputs.rag_hits == count
    assert confidence_of(inputs).band == expected
    assert inputs.provider_exists == ("not applicable" if provider is None else provider)


_any_passage = st.tuples(st.sampled_from("abcdefgh"), st.sampled_from([STEPS, NOTE, HISTORY, DESIGN, CAKE]), _unit)


@given(st.lists(_any_passage, max_size=20), st.sampled_from([True, False, None]), st.booleans())
def test_untrusted_content_alone_never_lifts_a_score_over_medium(
    passages: list[tuple[str, str, float]], provider: bool | None, similar: bool
) -> None:
    untrusted = [(source, text, cosine, 0) for source, text, cosine in passages]
    alone = confidence_of(confidence_terms(hits_of(LOAD, untrusted), provider, similar, TOPIC))
    nothing = confidence_of(confidence_terms((), provider, similar, TOPIC))
    assert alone == nothing
    assert alone.score < 0.6


@given(st.lists(_any_passage, min_size=1, max_size=8), st.data())
def test_a_copy_under_another_name_adds_no_source(passages: list[tuple[str, str, float]], data: st.DataObject) -> None:
    trusted = [(source, text, cosine, 2) for source, text, cosine in passages]
    _, text, cosine, _ = data.draw(st.sampled_from(trusted))
    after = hits_of(LOAD, [*trusted, ("copy", text, cosine, 2)])
    before = [hit for hit in after if hit.source != "copy"]
    assert len(independent_sources(after, TOPIC.threshold)) <= len(independent_sources(before, TOPIC.threshold))


def test_a_medium_confidence_names_its_missing_evidence() -> None:
    (said,) = weaknesses(confidence_of(confidence_terms(hits_of(LOAD, MANY[:2]), False, False, TOPIC)))
    assert "2 of 5" in said
    assert "provider" in said
    assert "succeeded" in said
    assert weaknesses(confidence_of(confidence_terms(hits_of(LOAD, MANY), True, True, TOPIC))) == ()
