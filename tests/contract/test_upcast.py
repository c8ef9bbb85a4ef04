"""Stored bodies stay readable: upcasters chain, and golden records of every version still load."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from counterpoint.proto import upcast
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.errors import Permanent
from counterpoint.proto.generate import FOLDER
from counterpoint.proto.line import Action
from counterpoint.proto.messages import Message, Shape
from counterpoint.proto.principals import Principal
from counterpoint.proto.tasks import Task

RECORDS = Path(__file__).parent / "records"
SHAPES: dict[str, type[Shape]] = {
    "actions": Action,
    "attempts": Attempt,
    "decisions": DecisionMade,
    "principals": Principal,
    "tasks": Task,
}


def trial() -> upcast.Upcasters:
    """Tasks at version 3: `text` became `description`, then `systems` was added."""
    register = upcast.Upcasters()

    @register.register("tasks", 1)
    def renamed(body: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in body.items() if key != "text"} | {"description": body["text"]}

    @register.register("tasks", 2)
    def widened(body: dict[str, Any]) -> dict[str, Any]:
        return body | {"systems": [body["system"]] if "system" in body else []}

    return register


GOLDEN = {
    1: {"id": "t-1", "text": "DNS fails", "system": "freeipa"},
    2: {"id": "t-1", "description": "DNS fails", "system": "freeipa"},
    3: {"id": "t-1", "description": "DNS fails", "system": "freeipa", "systems": ["freeipa"]},
}


@pytest.mark.parametrize("version", GOLDEN)
def test_a_record_of_any_version_comes_to_the_present_one(version: int) -> None:
    body = deepcopy(GOLDEN[version])
    assert trial().upcast("tasks", version, body) == (3, GOLDEN[3])
    assert body == GOLDEN[version], "upcasting is pure"


def test_a_shape_without_upcasters_is_at_version_one() -> None:
    assert trial().current("attempts") == 1
    assert trial().upcast("attempts", 1, {"a": 1}) == (1, {"a": 1})


def test_a_body_of_a_newer_release_is_left_as_it_is() -> None:
    assert trial().upcast("tasks", 4, {"new": 1}) == (4, {"new": 1})


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(Permanent, match="bad_version"):
        trial().upcast("tasks", 0, {})


def test_a_writer_older_than_the_stored_schema_is_refused() -> None:
    register = trial()
    register.check_writer("tasks", register.current("tasks"), 3)
    register.check_writer("tasks", 3, 2)
    with pytest.raises(Permanent) as caught:
        register.check_writer("tasks", 2, 3)
    assert caught.value.code == "old_writer"
    assert caught.value.problems[0].problem == "tasks is stored at version 3, but the writer has version 2"


@pytest.mark.parametrize("version", [1, 2, 4])
def test_steps_leave_no_gap_and_are_given_once(version: int) -> None:
    with pytest.raises(ValueError, match="starts at version 3"):
        trial().register("tasks", version)(lambda body: body)


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*/v*.json")), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_golden_records_still_load(path: Path) -> None:
    body = json.loads(path.read_text())
    version, present = upcast.upcast(path.parent.name, int(path.stem.removeprefix("v")), body)
    assert version == upcast.current_version(path.parent.name)
    record = SHAPES[path.parent.name].model_validate(present)
    assert present.keys() <= record.model_dump(mode="json", exclude_none=True).keys(), "nothing of it is lost"


@pytest.mark.parametrize("store", SHAPES)
def test_every_version_of_every_record_has_a_golden_one(store: str) -> None:
    versions = range(1, upcast.current_version(store) + 1)
    assert {path.stem for path in (RECORDS / store).glob("v*.json")} == {f"v{version}" for version in versions}


@pytest.mark.parametrize("message_type", sorted(Message.register))
def test_golden_messages_of_version_one_still_load(message_type: str) -> None:
    for path in (FOLDER / "examples" / message_type).glob("*.json"):
        _, body = upcast.upcast(message_type, 1, json.loads(path.read_text()))
        Message.register[message_type].model_validate(body)
