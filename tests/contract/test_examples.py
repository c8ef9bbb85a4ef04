"""Golden examples are legal for model and schema alike; rejected ones are refused by field."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from counterpoint.proto import schemas
from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.generate import FOLDER
from counterpoint.proto.messages import Message
from counterpoint.proto.validation import OPAQUE, check_submission, ignored_fields, parse

EXAMPLES = sorted((FOLDER / "examples").glob("*/*.json"))
MAPS = ("tests", "problems")
REJECTED = sorted((FOLDER / "rejected").glob("*/*.json"))


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def _load(path: Path) -> Any:
    return json.loads(path.read_text())


def _validator(message_type: str) -> Draft202012Validator:
    return Draft202012Validator(_load(FOLDER / "schemas" / f"{message_type}.json"))


@pytest.mark.parametrize("message_type", sorted(Message.register))
def test_every_type_has_a_minimal_a_full_and_a_rejected_example(message_type: str) -> None:
    model = Message.register[message_type]
    held = {path.stem: _load(path) for path in EXAMPLES if path.parent.name == message_type}
    assert {"minimal", "full"} <= held.keys()
    assert any(path.parent.name == message_type for path in REJECTED)
    if message_type not in OPAQUE:
        assert held["full"].keys() == model.model_fields.keys(), "full names every field"
        required = {name for name, field in model.model_fields.items() if field.is_required()}
        assert held["minimal"].keys() == required, "minimal names only what is required"


@pytest.mark.parametrize("path", EXAMPLES, ids=_name)
def test_golden_example_is_legal_for_model_and_schema(path: Path) -> None:
    message_type, body = path.parent.name, _load(path)
    message = parse(message_type, body)
    assert ignored_fields(message_type, body) == ()
    assert [error.message for error in _validator(message_type).iter_errors(body)] == []
    again = message.model_dump(mode="json", exclude_none=True)
    assert parse(message_type, again) == message, "what is sent can be read"
    if schemas.sender(message_type) == "counterpoint":
        assert [error.message for error in _validator(message_type).iter_errors(again)] == []
        if path.stem == "full":
            assert _without_defaults(again, body) == body


@pytest.mark.parametrize("path", EXAMPLES, ids=_name)
def test_readers_accept_unknown_fields_everywhere(path: Path) -> None:
    message_type, body = path.parent.name, _load(path)
    wider = _widened(body)
    assert parse(message_type, wider)
    assert _validator(message_type).is_valid(wider)


@pytest.mark.parametrize("path", REJECTED, ids=_name)
def test_rejected_example_is_refused_with_exactly_its_fields(path: Path) -> None:
    message_type, example = path.parent.name, _load(path)
    found = _refusal(message_type, example)
    assert [problem.field for problem in found] == [expected["field"] for expected in example["problems"]]
    for problem, expected in zip(found, example["problems"], strict=True):
        assert expected["problem"] in problem.problem
    assert _validator(message_type).is_valid(example["body"]) == (example["refused_by"] == "rule")


def _refusal(message_type: str, example: dict[str, Any]) -> tuple[Problem, ...]:
    if "sent_to" in example:
        received_at = datetime.fromisoformat(example["received_at"])
        return check_submission(
            parse(message_type, example["body"]), project=example["sent_to"], received_at=received_at
        )
    with pytest.raises(Permanent, match=r"^invalid") as caught:
        parse(message_type, example["body"])
    return caught.value.problems


def _widened(value: Any) -> Any:
    """The value with a field in every object that no one knows; the keys of a map are no fields."""
    if isinstance(value, dict):
        inner = {key: held if key in MAPS else _widened(held) for key, held in value.items()}
        return inner | {"x_added_later": {"since": 2}}
    if isinstance(value, list):
        return [_widened(inner) for inner in value]
    return value


def _without_defaults(sent: Any, given: Any) -> Any:
    """Return a sent message with the given fields only: a nested submission gains its defaults."""
    if isinstance(sent, dict) and isinstance(given, dict):
        return {key: _without_defaults(inner, given[key]) for key, inner in sent.items() if key in given}
    if isinstance(sent, list) and isinstance(given, list):
        return [_without_defaults(*pair) for pair in zip(sent, given, strict=True)]
    return sent
