"""A text that is in a message and in a record of its commit is stored once. Readers of the log get complete bodies."""

import json
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from memory_service.house import WORKED, House, decision
from memory_service.learning_project import wish

from counterpoint.memory.commit.relay import __package__ as relay_room
from counterpoint.memory.record.canonical import canonical
from counterpoint.memory.record.message_bodies import CommitTexts, StoredBody, whole_body
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.memory import LogAfter, Outgoing, Write

LONG = "The port is 7777, and the runbook says so. " * 6
FINDINGS = {"citations": [], "next_steps": [LONG], "caveats": [], "numbers": [1, 1.5, True, None]}
VALUES = st.sampled_from([LONG, FINDINGS, [LONG, 1], [LONG, 1.0], [LONG, True], "short", 7, None, {}, True, 1.0])
BODIES = st.dictionaries(st.sampled_from(["text", "result", "findings", "parts", "a"]), VALUES, max_size=4)


def row(stored: StoredBody, bodies: list[str | None]) -> dict[str, Any]:
    """The row of the log, as a statement returns it."""
    repeated = None
    if stored.records is not None:
        repeated = json.dumps([json.loads(bodies[index] or "null") for index in stored.records])
    return {"body": stored.text, "records": stored.records, "parts": stored.parts, "repeated": repeated}


@given(st.lists(st.none() | BODIES, max_size=3), BODIES)
@example([{"result": LONG, "findings": FINDINGS}], {"text": LONG, "findings": FINDINGS, "a": 7})
@example([{"a": [LONG, 1]}], {"a": [LONG, 1.0], "text": 7})
def test_a_body_is_whole_again(records: list[dict[str, Any] | None], data: dict[str, Any]) -> None:
    bodies = [None if each is None else canonical(each) for each in records]
    body = canonical(data)
    stored = CommitTexts(bodies).stored(body, data)
    assert whole_body(row(stored, bodies)) == body
    assert len(stored.text) <= len(body)


def test_large_fields_of_any_name_are_stored_once() -> None:
    record = canonical({"result": LONG, "findings": FINDINGS})
    data = {"task_id": "t-1", "text": LONG, "findings": FINDINGS}
    stored = CommitTexts([None, record]).stored(canonical(data), data)
    assert (stored.text, stored.records) == ('{"task_id":"t-1"}', (1,))


def test_a_body_without_its_records_is_lost_and_no_error() -> None:
    record = canonical({"result": LONG})
    data = {"task_id": "t-1", "text": LONG}
    of_it = row(CommitTexts([record]).stored(canonical(data), data), [record])
    for change in ({"repeated": None}, {"repeated": "[]"}, {"repeated": "[null]"}, {"parts": "x"}, {"records": None}):
        assert "lost" in json.loads(whole_body({**of_it, **change}))


def test_a_record_is_read_once_for_all_messages_of_its_commit() -> None:
    record = canonical({"result": LONG, "findings": FINDINGS, "short": "x"})
    texts = CommitTexts([record])
    with patch("counterpoint.memory.record.message_bodies.json.loads", side_effect=json.loads) as reading:
        stored = [texts.stored(canonical(data), data) for data in ({"text": LONG, "n": n} for n in range(3))]
    assert [each.records for each in stored] == [(0,)] * 3
    assert reading.call_count == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(-0.0, "0.0"), (-0.01, "-0.01"), (1e22, "1" + "0" * 22), (1e-7, "1e-07"), ("e+ -0.0 1e+2", '"e+ -0.0 1e+2"')],
)
def test_canonical_numbers_are_those_of_the_database(value: object, text: str) -> None:
    assert canonical([value]) == f"[{text}]"


def test_a_small_negative_number_needs_no_second_reading() -> None:
    with patch("counterpoint.memory.record.canonical.json.loads", side_effect=AssertionError("read")):
        assert canonical({"cosine": -0.0625, "name": "e+x"}) == '{"cosine":-0.0625,"name":"e+x"}'


async def logged(house: House, project: str) -> dict[str, Any]:
    """The bodies of the log, by type."""
    found = await house.answer("router", house.standing(project), LogAfter(after=0, kinds=("tasks", "decisions")))
    return {each.body["type"]: json.loads(each.body["data"]) for each in found.items}


async def test_the_log_and_the_relay_have_whole_bodies_though_a_record_was_superseded(
    house: House, project: str
) -> None:
    made = decision(reasoning=LONG)
    worked = Outgoing(type=WORKED, data={"task_id": "t-1", "text": LONG, "outcome": "answered"})
    developer = house.delivery(await house.delegated(project, "t-1"))
    attempt = Write(store="attempts", id="a-1", body={"task_id": "t-1", "summary": LONG})
    await house.apply("developer", developer, writes=(attempt,), messages=(made, worked))
    assert (await logged(house, project))[WORKED] == worked.data
    await wish(house, project, "quarantine", store="attempts", id="a-1")
    await wish(house, project, "quarantine", store="decisions", id=made.data["decision_id"])
    assert (await logged(house, project))[made.type] == made.data
    async with house.superuser() as connection:
        stored = "SELECT id, body, type FROM messages WHERE project = $1 AND records IS NOT NULL"
        rows = await connection.fetch(stored, project)
        assert {each["type"] for each in rows} == {made.type, WORKED}
        assert LONG not in "".join(each["body"] for each in rows)
    async with house.database.reading(project) as connection:
        ids = [each["id"] for each in rows]
        again = await connection.fetch(load_statements(relay_room)["messages_by_id"], ids)
    assert {each["type"]: json.loads(whole_body(each)) for each in again} == {
        made.type: made.data,
        WORKED: worked.data,
    }
    assert (await house.verify(project))["ok"]
