"""The tree of the actions of a task."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from ui.cli_data import incident

from counterpoint.cli.render.tree import draw


def action(number: int, agent: str, kind: str, *after: int, **more: Any) -> dict[str, Any]:
    return {
        "action_id": f"a{number}",
        "task_id": "t",
        "agent": agent,
        "kind": kind,
        "reasoning": f"reason {number}",
        "after": [f"a{before}" for before in after],
        "at": "2026-11-17T05:30:12Z",
        "seq": number * 10,
    } | more


def tree_of(*actions: dict[str, Any]) -> list[str]:
    decision = {
        "decision_id": "d1",
        "project": "orders",
        "agent": "developer",
        "decision_type": "confidence",
        "decision": "go on",
        "reasoning": "why",
        "confidence": incident()["confidence"],
        "made_at": "2026-11-17T05:30:12Z",
    }
    sources = [{"store": "chunks", "id": "c1", "name": "runbooks/orders.md"}]
    return draw({"items": list(actions), "decisions": [decision], "sources": sources}).splitlines()


def test_a_line_keeps_its_column_and_a_branch_is_indented() -> None:
    lines = tree_of(
        action(1, "router", "route"),
        action(2, "manager", "plan", 1),
        action(3, "coder-1", "search", 2),
        action(4, "coder-2", "search", 2),
        action(5, "judge", "assess", 4, 3),
    )
    heads = [line for line in lines if ": " in line and line.strip(" │")[:1].isdigit()]
    assert heads == [
        "  1 router: route",
        "  2 manager: plan",
        "    │    3 coder-1: search",
        "  4 coder-2: search",
        "  5 judge: assess  (also after 3)",
    ]


def test_each_action_says_its_reasoning_its_result_and_its_basis() -> None:
    lines = tree_of(
        action(
            1,
            "developer",
            "assess",
            result="go on\nnow",
            decision_id="d1",
            sources=[
                {"store": "chunks", "id": "c1", "version": 1},
                {"store": "attempts", "id": "a9", "version": 3},
            ],
        )
    )
    assert [line.strip(" │") for line in lines[1:]] == [
        "reason 1",
        "→ go on",
        "now",
        "confidence 0.66 (medium): similarity 0.85, 2 sources, provider not applicable, success no",
        "on the basis of runbooks/orders.md, 1 more of attempts",
    ]


def test_no_action_stands_above_its_cause_in_any_record() -> None:
    lines = tree_of(
        action(1, "developer", "propose", 3), action(2, "developer", "search"), action(3, "developer", "assess", 2)
    )
    assert [line.strip() for line in lines if "developer" in line] == [
        "1 developer: search",
        "2 developer: assess",
        "3 developer: propose",
    ]


@given(st.lists(st.lists(st.integers(0, 60), max_size=3), min_size=1, max_size=60))
def test_every_action_stands_in_the_tree_once(after: list[list[int]]) -> None:
    earlier = [[before for before in each if before < number] for number, each in enumerate(after, 1)]
    actions = [action(number, "manager", "plan", *before) for number, before in enumerate(earlier, 1)]
    text = "\n".join(tree_of(*actions))
    for number in range(1, len(actions) + 1):
        assert text.count(f"reason {number}\n") + text.endswith(f"reason {number}") == 1


def test_a_long_line_is_drawn_without_recursion() -> None:
    actions = [action(number, "manager", "plan", number - 1) for number in range(1, 3000)]
    assert len(tree_of(*actions)) == 2 * 2999
