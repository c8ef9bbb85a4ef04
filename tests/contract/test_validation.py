"""Every field at fault is named, nothing PostgreSQL cannot hold gets through, and misspelt fields are told."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.errors import Permanent
from counterpoint.proto.tasks import SubmitTask
from counterpoint.proto.validation import DEPTH_LIMIT, NAME_LIMIT, PROBLEMS_LIMIT, ignored_fields, parse

SUBMIT = SubmitTask.TYPE
GOOD: dict[str, Any] = {"kind": "question", "description": "Which port does FreeIPA need for DNS?"}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters()), inner, max_size=4),
    max_leaves=20,
)


def problems(body: Any, message_type: str = SUBMIT) -> dict[str, str]:
    with pytest.raises(Permanent) as caught:
        parse(message_type, body)
    assert caught.value.code == "invalid"
    return {problem.field: problem.problem for problem in caught.value.problems}


def test_an_unknown_type_is_named() -> None:
    assert problems(GOOD, "counterpoint.task.submit.v9") == {"type": "unknown message type counterpoint.task.submit.v9"}


@pytest.mark.parametrize("body", [None, [], "text", 3, True])
def test_a_body_that_is_no_object_is_refused(body: Any) -> None:
    assert problems(body) == {"body": "must be a JSON object"}


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_numbers_that_json_does_not_know_are_refused_wherever_they_stand(number: float) -> None:
    assert problems(GOOD | {"context": {"load": [1, number]}}) == {"context.load[1]": "must be a finite number"}


def test_numbers_beyond_every_database_are_refused() -> None:
    assert problems(GOOD | {"context": {"n": 10**400}}) == {"context.n": "is a number outside of the supported range"}
    parse(SUBMIT, GOOD | {"context": {"n": 2**128}})


def test_unknown_fields_must_be_storable_too() -> None:
    assert problems(GOOD | {"note": "a\0b"}) == {"note": "must not contain the character U+0000"}


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_nesting_is_legal_up_to_the_limit_and_no_further() -> None:
    parse(SUBMIT, GOOD | {"context": {"in": nested(DEPTH_LIMIT - 2)}})
    (field,) = problems(GOOD | {"context": {"in": nested(DEPTH_LIMIT - 1)}})
    assert field.startswith("context.in[0]")


def test_a_whole_body_of_faults_is_told_in_bounds() -> None:
    found = problems(GOOD | {"context": {"k" * 1000: ["\0"] * 5000}})
    assert all(len(field) <= NAME_LIMIT for field in found)
    with pytest.raises(Permanent) as caught:
        parse(SUBMIT, GOOD | {"target": {"paths": [1] * 200}})
    assert len(caught.value.problems) == PROBLEMS_LIMIT


@given(JSON)
def test_any_json_is_parsed_or_refused_by_field(value: Any) -> None:
    for body in (value, GOOD | {"context": value}, GOOD | {"x": value}, GOOD | {"target": value, "systems": value}):
        stored, refused = outcome(body)
        assert (stored is None) == bool(refused)
        assert all(refused)
        assert "\0" not in "".join(refused)
        assert NUL not in (stored or "").replace("\\\\", "")
        "".join(refused).encode()


NUL = json.dumps("\0")[1:-1]


def outcome(body: Any) -> tuple[str | None, list[str]]:
    """The message as it would be stored, or the fields and words of its refusal."""
    try:
        message = parse(SUBMIT, body)
    except Permanent as error:
        return None, [word for problem in error.problems for word in (problem.field, problem.problem)]
    return json.dumps(message.model_dump(mode="json", exclude_none=True)), []


@given(JSON)
def test_ignored_fields_of_any_json_are_bounded(value: Any) -> None:
    if isinstance(value, dict):
        found = ignored_fields(SUBMIT, value)
        assert len(found) <= PROBLEMS_LIMIT
        assert all(len(name) <= NAME_LIMIT for name in found)


def test_ignored_fields_are_named_by_path() -> None:
    body = GOOD | {
        "prioritiy": "high",
        "target": {"branch": "main", "job": {"namespace": "prod", "name": "orders", "owner": "ana"}},
        "budget": {"eur": "2"},
        "context": {"anything": {"goes": 1}},
    }
    assert ignored_fields(SUBMIT, body) == ("prioritiy", "target.branch", "target.job.owner", "budget.eur")
    assert ignored_fields(ReportOutcome.TYPE, {"task_id": "a", "outcome": "failed", "attemt": 2}) == ("attemt",)


def test_ignored_fields_inside_lists_are_named_by_index() -> None:
    body = {"sources": [{"store": "chunks", "id": "c", "version": 1}, {"store": "chunks", "ident": "d"}]}
    assert ignored_fields("counterpoint.decision.made.v1", body) == ("sources[1].ident",)


def test_a_lineage_event_has_no_unknown_field() -> None:
    assert ignored_fields("counterpoint.lineage.event.v1", {"eventType": "START", "vendor": {"x": 1}}) == ()


def test_the_problems_of_an_open_set_are_one_problem_of_its_field() -> None:
    made = {"score": 0.5, "band": 3, "terms": {"rag_similarity": 1}}
    found = problems({"confidence": made}, "counterpoint.decision.made.v1")
    assert found["confidence.band"] == "must be 'high', 'medium' or 'low', or must be text"
    assert found["confidence.terms.rag_hits"] == "is required"
