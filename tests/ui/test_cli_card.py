"""The card and the tree: what they show of a task and its line."""

import io
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from ui.cli_data import INCIDENT, RUNBOOK, answered, escalated, incident

from counterpoint.cli.card import card, normalised, panel, text
from counterpoint.cli.tree import drawn
from counterpoint.proto.tasks import Task


def shown(task: dict[str, Any]) -> str:
    return text(card(Task.model_validate(task)))


def flat(shown: str) -> str:
    return " ".join(shown.split())


def test_the_card_of_an_incident_says_all_that_a_person_would_look_up() -> None:
    lines = flat(shown(incident()))
    for said in (
        "fetch_orders failed: could not resolve ldap.internal",
        "attempt 1 waits for its outcome",
        INCIDENT,
        "DNS lookup timed out after 5 s (resolver 10.20.0.2:53)",
        "tries 3 of 3, the last at 2026-11-17 05:30:12 UTC",
        "http://airflow.example/log?try=3",
        "owner team-ingest",
        "1 hop job clean_orders team-ingest",
        "nothing yet: earlier attempts were looked for, and there are none",
        "1 document about it",
        f"> {RUNBOOK}",
        "runbooks/orders.md, characters 10 to 94",
        "0.66, medium",
        "0.4 × similarity 0.85 + 0.3 × 2/5 sources + 0.2 × provider (not applicable, counts as yes)"
        " + 0.1 × similar success (no)",
        "Restart the resolver's cache.",
        "only two sources",
        f"report counterpoint outcome {INCIDENT} succeeded --attempt 1 --project orders or `failed` or `partial`",
    ):
        assert said in lines


def test_what_is_quoted_in_the_proposal_is_not_quoted_again() -> None:
    assert shown(incident()).count("dig @RESOLVER") == 1
    without = shown(incident(proposal=None))
    assert f"“{RUNBOOK}”" in without
    assert "runbooks/orders.md, characters 10 to 94" in without


def test_an_escalated_card_says_what_was_tried_by_whom_and_what_is_needed_how() -> None:
    lines = flat(shown(escalated()))
    assert "escalated to calling_llm (repeated_failure), waits for override" in lines
    assert "counterpoint outcome" not in lines
    assert "tried since: 2 attempts, 2 failed" in lines
    assert "2026-11-17 failed (reported), developer: “thing 1”" in lines
    how = f'counterpoint override {INCIDENT} "INSTRUCTION" --reason "WHY" --project orders'
    assert f"decision: how to go on {how}" in lines


def test_attempts_of_earlier_tasks_are_told_apart_from_those_of_this_one() -> None:
    lines = flat(shown(escalated(submitted_at="2026-11-17T06:01:30Z")))
    assert "seen before: 1 attempt, 1 failed" in lines
    assert "tried since: 1 attempt, 1 failed" in lines


def test_where_no_document_is_about_it_the_nearest_are_called_the_nearest() -> None:
    escalation = {"to": "calling_llm", "code": "low_confidence", "searched_for": ["documents about " + "x " * 200]}
    lines = flat(shown(incident(proposal=None, waiting_for="documents", escalation=escalation)))
    assert "no document that is about it, the nearest are quoted below looked for documents about x" in lines
    assert "nearest “Ask the resolver" in lines


def test_code_without_a_plan_quotes_the_nearest_and_with_one_what_it_rests_on() -> None:
    escalation = {"to": "calling_llm", "code": "no_model"}
    given = {"kind": "develop", "proposal": None, "waiting_for": "override", "escalation": escalation}
    assert "1 document about it" in flat(shown(incident(**given)))
    without = incident()["findings"] | {"next_steps": []}
    assert "nearest “Ask the resolver" in flat(shown(incident(**given, findings=without)))


def test_a_proposal_is_set_anew_but_its_quotes_lists_and_references_stay_lines() -> None:
    proposal = "From a.md [1]:\n\n> 1. Ask\n>    the resolver.\n> 2. Restart\n> it.\n\n[1] a.md  \n[2] b.md  "
    lines = [line.strip() for line in shown(incident(proposal=proposal)).splitlines()]
    start = lines.index("proposed      From a.md [1]:")
    assert lines[start + 1 : start + 8] == [
        "",
        "> 1. Ask the resolver.",
        "> 2. Restart it.",
        "",
        "[1] a.md",
        "[2] b.md",
        "",
    ]


def test_a_task_that_nobody_has_looked_at_does_not_say_that_nothing_is_known() -> None:
    lines = shown(incident(findings=None))
    assert "not looked yet" in lines
    assert "nothing yet" not in lines


def test_the_card_of_a_question_is_its_answer() -> None:
    lines = shown(answered())
    assert "team-finance [1]" in lines
    assert "known" not in lines


def test_no_line_is_wider_than_the_page_unless_one_word_is() -> None:
    for task in (incident(), escalated(), answered()):
        assert max(map(len, shown(task).splitlines())) <= 100


@given(st.text(max_size=400), st.text(max_size=400))
def test_any_text_makes_a_card(error: str, proposal: str) -> None:
    task = Task.model_validate(incident(error_message=error, proposal=proposal))
    made = text(card(task))
    for word in error.split():
        assert word in made
    Console(file=io.StringIO(), width=80).print(panel(card(task)))


def test_cards_of_two_runs_are_equal_but_for_ids_and_times() -> None:
    other = incident(
        task_id="incident-ffffffffffffffffffffffff",
        context=incident()["context"] | {"failed_at": "2026-11-18T06:11:59.123456+00:00"},
    )
    assert shown(incident()) != shown(other)
    assert normalised(shown(incident())) == normalised(shown(other))
    assert normalised(shown(incident())) != normalised(shown(incident(attempt=2)))


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
    return drawn({"items": list(actions), "decisions": [decision], "sources": sources}).splitlines()


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


def test_no_action_stands_above_one_that_led_to_it_whatever_the_record_says() -> None:
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
