"""Generated schemas and AsyncAPI match the models, are valid and complete."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from contract.node_client import NodeClient
from jsonschema import Draft7Validator, Draft202012Validator

from counterpoint.bus import codec
from counterpoint.proto import asyncapi, generate, schemas, subjects
from counterpoint.proto.messages import Message

PROTO = generate.FOLDER
POLICY = PROTO.parent / "libs/guard/counterpoint/guard/policy.yaml"


def test_committed_files_equal_the_generated_ones() -> None:
    assert generate.differing(PROTO) == ()


def test_generation_is_the_same_every_time(tmp_path: Path) -> None:
    assert set(generate.write(tmp_path)) == set(generate.documents())
    assert generate.write(tmp_path) == ()


def test_check_names_outdated_missing_and_surplus_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate.write(tmp_path)
    (tmp_path / "schemas/counterpoint.task.submit.v1.json").write_text("{}\n")
    (tmp_path / "asyncapi.yaml").unlink()
    (tmp_path / "schemas/counterpoint.task.forgotten.v1.json").write_text("{}\n")
    assert generate.main(["--check", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "differs: asyncapi.yaml",
        "differs: schemas/counterpoint.task.forgotten.v1.json",
        "differs: schemas/counterpoint.task.submit.v1.json",
    ]
    assert generate.main([str(tmp_path)]) == 0
    assert generate.main(["--check", str(tmp_path)]) == 0


def test_every_message_with_a_subject_has_a_model() -> None:
    assert set(subjects.message_types()) <= set(Message.register)


@pytest.mark.parametrize("message_type", sorted(Message.register))
def test_schema_is_valid_and_open(message_type: str) -> None:
    schema = schemas.of(message_type)
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"https://counterpoint.dev/schemas/{message_type}"
    for node in _nodes(schema):
        assert node.get("additionalProperties") is not False
        if schema["x-sent-by"] == "counterpoint":
            assert node.get("type") != "null", "an absent value is left out, never null"
    if schema["x-sent-by"] == "counterpoint":
        for holder in _nodes(schema):
            values = [v for k, v in holder.items() if k not in ("anyOf", "properties")] + [*_properties(holder)]
            for value in values:
                closed = isinstance(value, dict) and "enum" in value
                assert not closed, f"{value} is a closed set that readers would rely on"


def test_asyncapi_has_no_dangling_references() -> None:
    document = yaml.safe_load((PROTO / "asyncapi.yaml").read_text())
    for node in _nodes(document):
        reference = node.get("$ref")
        if reference is None:
            continue
        if reference.startswith("#/"):
            here: Any = document
            for token in reference.removeprefix("#/").split("/"):
                here = here[token]
        else:
            assert (PROTO / reference).is_file(), reference


def test_asyncapi_shows_outsiders_exactly_the_grants_of_the_policy() -> None:
    granted = yaml.safe_load(POLICY.read_text())["nats"]
    document = asyncapi.document()
    reached: dict[str, set[str]] = {"publisher": set(), "observer": set()}
    for operation in document["operations"].values():
        channel = document["channels"][operation["channel"]["$ref"].removeprefix("#/channels/")]
        users = {tag["name"] for tag in operation["tags"]}
        verb = {"send": "publish", "receive": "subscribe"}[operation["action"]]
        for user, rights in reached.items():
            allowed = any(_covers(pattern, channel["address"]) for pattern in granted[user][verb])
            assert allowed == (user in users), (user, verb, channel["address"])
            if allowed:
                rights.add(channel["address"])
    streams = [subjects.TASKS, subjects.DECISIONS, subjects.CHANGES]
    of_a_stream = [t for t in subjects.message_types() if subjects.stream_of(subjects.of(t, "*")) in streams]
    assert len(reached["observer"]) == len(of_a_stream)


def test_asyncapi_is_valid_by_the_official_schema(node_client: NodeClient) -> None:
    official = json.loads((node_client.modules / "@asyncapi/specs/schemas/3.0.0.json").read_text())
    validator = Draft7Validator(official)
    document = yaml.safe_load((PROTO / "asyncapi.yaml").read_text())
    assert [error.message for error in validator.iter_errors(document)] == []
    document["operations"]["sendSubmitTask"]["action"] = "publish"
    assert not validator.is_valid(document)


def test_asyncapi_tells_every_header_that_is_sent_but_those_of_the_house() -> None:
    sent = codec.headers(
        message_id="m",
        message_type="counterpoint.task.completed.v1",
        source="manager",
        time=datetime(2026, 11, 17, tzinfo=UTC),
        task_id="t",
        cause="c",
        task_version=3,
        publication=1,
        seq=7,
        capability="token",
    )
    told = asyncapi.document()["components"]["schemas"]["EmittedHeaders"]
    assert sent.keys() - told["properties"].keys() == {"Nats-Msg-Id", "ce-capability"}
    assert set(told["required"]) <= sent.keys()


def test_a_new_message_appears_in_the_documents(tmp_path: Path) -> None:
    shutil.copytree(PROTO / "schemas", tmp_path / "schemas")
    (tmp_path / "schemas/counterpoint.task.due.v1.json").unlink()
    assert "schemas/counterpoint.task.due.v1.json" in generate.write(tmp_path)


def _nodes(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value, *(node for inner in value.values() for node in _nodes(inner))]
    if isinstance(value, list):
        return [node for inner in value for node in _nodes(inner)]
    return []


def _properties(node: dict[str, Any]) -> list[Any]:
    fields = node.get("properties")
    return list(fields.values()) if isinstance(fields, dict) else []


def _covers(pattern: str, address: str) -> bool:
    """Whether a NATS pattern of the policy, `{project}` standing for itself, holds an address."""
    wanted, given = pattern.split("."), address.split(".")
    for position, token in enumerate(wanted):
        if token == ">":
            return len(given) > position
        if position >= len(given) or token not in ("*", given[position]):
            return False
    return len(wanted) == len(given)
