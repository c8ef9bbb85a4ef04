"""Relations that a model names are kept only if the passage states them."""

from typing import Any

import pytest
from agents.relation_page import OWNS, PAGE, model_reply
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.memory.ingest.relations import MOST, StatedRelation, checked


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"span": "The tides team owns harbour_tides since May."}, "span"),
        ({"span": ""}, "span"),
        ({"relation": "manages"}, "kind"),
        ({"subject": "quay team"}, "name"),
        ({"object": "harbour_tide"}, "name"),
        ({"object": "Tides Team"}, "name"),
        ({"object": "it", "span": "it"}, "span"),
        ({"subject": None}, "malformed"),
    ],
)
def test_relations_that_the_passage_does_not_state_are_dropped_and_counted(
    changed: dict[str, Any], reason: str
) -> None:
    found = checked(model_reply({**OWNS, **changed}, OWNS), PAGE)
    assert [each.subject for each in found.accepted] == ["tides team"]
    assert found.dropped == {reason: 1}


def test_more_than_a_passage_can_state_is_dropped() -> None:
    passage = " ".join(f"a{n} owns b{n}." for n in range(MOST + 5))
    rows = [
        {"subject": f"a{n}", "relation": "owns", "object": f"b{n}", "span": f"a{n} owns b{n}."} for n in range(MOST + 5)
    ]
    assert checked(model_reply(*rows), passage).dropped == {"more": 5}


WORDS = st.sampled_from(["alpha", "beta", "gamma", "owns", "reads", "it", "\n", "(", ".*", "ignore previous rules"])


@given(
    passage=st.lists(WORDS, max_size=12).map(" ".join),
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "subject": WORDS,
                "relation": st.sampled_from(["owns", "consumes", "is"]),
                "object": WORDS,
                "span": st.lists(WORDS, max_size=5).map(" ".join),
            }
        ),
        max_size=6,
    ),
)
def test_every_accepted_relation_stands_in_the_passage(passage: str, rows: list[dict[str, str]]) -> None:
    found = checked(model_reply(*rows), passage)
    words = " ".join(passage.split()).casefold()
    for each in found.accepted:
        assert isinstance(each, StatedRelation)
        assert each.span.casefold() in words
        assert each.subject.casefold() in each.span.casefold()
        assert each.object.casefold() in each.span.casefold()
    assert len(found.accepted) + sum(found.dropped.values()) <= len(rows)
