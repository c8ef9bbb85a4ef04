"""A value that begins in one text of a record and goes on in the next is found, in whichever commit the rest came."""

import uuid

import pytest
from access.sensitive_values import CARD, KEY, tables_with
from hypothesis import given
from hypothesis import strategies as st
from memory_service.house import House, task_body

from counterpoint.guard.judge import Judgement, judge
from counterpoint.guard.policy import policy
from counterpoint.proto.memory import Write

FIRST, SECOND = CARD[:9], CARD[10:]


def judged(*texts: str, name: str = "notes") -> Judgement:
    return judge(policy(), {name: list(texts)}, (name,), 1)


@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        ((FIRST, SECOND), ("[redacted:card]", "[redacted:card]")),
        ((FIRST.replace(" ", ""), SECOND.replace(" ", "")), ("[redacted:card]", "[redacted:card]")),
        (("the 5105-1051-", "0510-5100 one"), ("the [redacted:card]", "[redacted:card] one")),
        ((f"paid by {FIRST} ", f"  {SECOND}."), ("paid by [redacted:card] ", "  [redacted:card].")),
        (tuple(CARD.split()), ("[redacted:card]",) * 4),
        (("to DE89 3704 0044", "0532 0130 00"), ("to [redacted:iban]", "[redacted:iban]")),
        ((f"see {KEY[:9]}", f"{KEY[9:]} there"), ("see [redacted:aws_access_key]", "[redacted:aws_access_key] there")),
    ],
)
def test_a_value_split_over_two_texts_is_redacted_in_both(texts: tuple[str, ...], kept: tuple[str, ...]) -> None:
    assert judged(*texts).body == {"notes": list(kept)}
    assert judge(policy(), judged(*texts).body, ("notes",), 1).verdict == "allow"


def test_a_value_split_over_two_fields_is_found_beside_whole_ones() -> None:
    body = {"title": f"{CARD} and {FIRST}", "other": "x", "description": [{"text": f"{SECOND}, ann.lee@example.org"}]}
    found = judge(policy(), body, ("title", "description"), 1).body
    assert found["title"] == "[redacted:card] and [redacted:card]"
    assert found["description"] == [{"text": "[redacted:card], [redacted:email]"}]


def test_neighbours_that_are_strangers_are_left_alone() -> None:
    for texts in (
        (FIRST, "then", SECOND),
        ("2026-11-23", "2026-11-24", "2026-11-25"),
        ("1732374000", "1732374060", "1732374120"),
        ("orders_1", "orders_2", "orders_3"),
    ):
        assert judged(*texts).verdict == "allow"
    assert judged(FIRST.replace(" ", ""), SECOND.replace(" ", ""), name="offsets").verdict == "allow"


@given(st.lists(st.uuids().map(str), min_size=2, max_size=6))
def test_ids_beside_each_other_are_no_number(ids: list[str]) -> None:
    assert judged(*ids, str(uuid.UUID(int=1)), "2026").verdict == "allow"


@pytest.mark.parametrize(
    ("half", "whole"),
    [
        ({"description": f"paid by {FIRST}"}, {"description": f"paid by {FIRST} {SECOND}"}),
        ({"context": {"notes": [FIRST]}}, {"context": {"notes": [FIRST, SECOND]}}),
        ({"description": f"paid by {FIRST}"}, {"description": f"paid by {FIRST}", "title": f"{SECOND} it was"}),
    ],
)
async def test_the_second_half_that_another_commit_adds_is_not_kept(
    house: House, project: str, half: dict[str, object], whole: dict[str, object]
) -> None:
    for expect, fields in enumerate((half, whole)):
        manager = house.delivery(await house.reported(project, "t-1"))
        write = Write(store="tasks", id="t-1", body=task_body("t-1", **fields), expect=expect)
        await house.apply("manager", manager, writes=(write,))
    assert await tables_with(house, project, SECOND) == set()
    kept = await house.body(project, "tasks", "t-1")
    assert FIRST not in repr(kept)
    assert "[redacted:card]" in repr(kept)
