"""Approvals and delegations on the command line."""

import re
from decimal import Decimal

import pytest
from typer.testing import CliRunner
from ui.cli_server import ScriptedApi
from ui.pending_approvals import LIFT, URL

from counterpoint.cli.main import app
from counterpoint.proto.approvals import lifts_as_text

SHOWN = {
    "approval_id": "a1",
    "project": "orders",
    "task_id": "t1",
    "category": "spend",
    "autonomy": "supervised",
    "summary": "a model call was refused",
    "artifact": "Lift the limits:\n- the budget of the task: add 1 USD",
    "artifact_sha256": "ab" * 32,
    "state": "pending",
    "requested_at": "2026-03-02T03:00:00Z",
    "expires_at": "2026-03-03T03:00:00Z",
}


def run(api: ScriptedApi, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*words, *api.options()], env={"COLUMNS": "120"})
    return done.exit_code, " ".join(done.output.split())


def test_the_list_shows_the_text_the_hash_and_the_commands(api: ScriptedApi) -> None:
    decided = {"state": "rejected", "decided_by": "ben", "decided_at": "2026-03-02T04:00:00Z", "reason": "too dear"}
    items = [SHOWN, SHOWN | {"approval_id": "a2"} | decided]
    api.on(f"GET {URL}", (200, {"items": items, "next_cursor": None}), (200, {"items": [], "next_cursor": None}))
    code, shown = run(api, "approvals", "--project", "orders", "--state", "all", "--category", "spend", "--task", "t1")
    assert code == 0
    assert "a1 spend, pending, task t1 a model call was refused" in shown
    assert "- the budget of the task: add 1 USD sha256 abab" in shown
    assert "counterpoint approve a1 --project orders" in shown
    assert "by ben, 2026-03-02 04:00:00 UTC: too dear" in shown
    asked = api.asked[0].params
    assert {name: asked[name] for name in ("state", "category", "task_id")} == {
        "state": "all", "category": "spend", "task_id": "t1",
    }  # fmt: skip
    assert run(api, "approvals", "--project", "orders") == (0, "no approvals")


@pytest.mark.parametrize(
    ("words", "decision", "reason"),
    [(("approve", "a1"), "approved", None), (("reject", "a1", "--reason", "too dear"), "rejected", "too dear")],
)
def test_a_decision_sends_the_hash_of_the_text_it_read(
    api: ScriptedApi, words: tuple[str, ...], decision: str, reason: str | None
) -> None:
    api.on(f"GET {URL}/a1", (200, SHOWN))
    api.on(f"POST {URL}/a1", (200, SHOWN | {"state": decision}))
    code, shown = run(api, *words, "--sha256", "ABAB")
    assert (code, shown.endswith(decision)) == (0, True)
    sent = {name: value for name, value in api.asked[1].body.items() if value is not None}
    expected = {"decision": decision, "artifact_sha256": "ab" * 32, "reason": reason}
    assert sent == {name: value for name, value in expected.items() if value is not None}


def test_no_text_to_approve_steers_the_terminal_or_is_read_in_another_order(api: ScriptedApi) -> None:
    steering = "\x1bc\x1b]52;c;ZXZpbA==\x1b\\\x9b2J\x07\x08"
    artifact = f"rm{steering} \u202e/tmp\u2069"
    api.on(f"GET {URL}", (200, {"items": [SHOWN | {"artifact": artifact}], "next_cursor": None}))
    done = CliRunner().invoke(app, ["approvals", "--project", "orders", *api.options()], env={"COLUMNS": "200"})
    assert "rmc]52;c;ZXZpbA==\\2J \\u202e/tmp\\u2069" in done.output
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", done.output)


def test_the_commands_on_delegations_say_who_decides_for_whom(api: ScriptedApi) -> None:
    one = {"to": "anna", "by": "ben", "project": "orders", "until": "2026-12-24T18:00:00Z"}
    api.on("PUT /v1/delegations", (200, one))
    api.on("GET /v1/delegations", (200, {"items": [one], "next_cursor": None}))
    api.on("DELETE /v1/delegations", (200, one))
    code, shown = run(api, "delegation", "set", "anna", "--until", "2026-12-24T18:00:00Z")
    assert (code, shown) == (0, "anna decides for ben in project orders until 2026-12-24T18:00:00Z")
    assert api.asked[0].body == {"to": "anna", "until": "2026-12-24T18:00:00Z"}
    assert "anna ben 2026-12-24 18:00:00 UTC" in run(api, "delegation", "list")[1]
    assert run(api, "delegation", "remove", "anna") == (0, "anna no longer decides for ben in project orders")
    assert api.asked[2].params["to"] == "anna"


def test_another_hash_than_expected_sends_nothing(api: ScriptedApi) -> None:
    api.on(f"GET {URL}/a1", (200, SHOWN))
    code, shown = run(api, "approve", "a1", "--sha256", "cd")
    assert (code, "the hash of the text is abab" in shown, len(api.asked)) == (1, True, 1)


def test_a_conflict_is_shown_with_who_decided(api: ScriptedApi) -> None:
    problem = {"title": "Conflict", "status": 409, "code": "conflict"}
    problem |= {"errors": [{"field": "decision", "problem": "comes too late: the approval was approved by ben"}]}
    api.on(f"GET {URL}/a1", (200, SHOWN))
    api.on(f"POST {URL}/a1", (409, problem))
    code, shown = run(api, "approve", "a1")
    assert (code, "was approved by ben" in shown) == (1, True)


def test_all_that_wait_are_shown_and_each_is_decided_on_the_text_that_was_shown(api: ScriptedApi) -> None:
    late = {"title": "Conflict", "status": 409, "code": "conflict"}
    late |= {"errors": [{"field": "decision", "problem": "comes too late: the approval was rejected by ben"}]}
    items = [SHOWN, SHOWN | {"approval_id": "a2", "artifact": "Lift another limit", "artifact_sha256": "cd" * 32}]
    api.on(f"GET {URL}", (200, {"items": items, "next_cursor": None}), (200, {"items": items, "next_cursor": None}))
    code, shown = run(api, "approve", "--all", "--category", "spend", "--task", "t1")
    assert (code, len(api.asked)) == (2, 1)
    assert "2 approvals would be approved; confirm with --yes" in shown
    api.on(f"POST {URL}/a1", (409, late))
    api.on(f"POST {URL}/a2", (200, items[1] | {"state": "approved"}))
    code, shown = run(api, "approve", "--all", "--category", "spend", "--task", "t1", "--yes")
    assert code == 1
    assert "Lift another limit sha256 cdcd" in shown
    assert "a1 not approved: decision comes too late: the approval was rejected by ben" in shown
    assert "a2 approved" in shown
    filters = {name: api.asked[1].params[name] for name in ("state", "category", "task_id")}
    assert filters == {"state": "pending", "category": "spend", "task_id": "t1"}
    assert [each.body["artifact_sha256"] for each in api.asked[2:]] == ["ab" * 32, "cd" * 32]


def test_rejecting_all_without_approvals_decides_nothing(api: ScriptedApi) -> None:
    api.on(f"GET {URL}", (200, {"items": [], "next_cursor": None}))
    assert run(api, "reject", "--all", "--reason", "too dear") == (0, "no approvals wait")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("approvals", "--state", "lost"), "a state is one of pending"),
        (("approvals", "--category", "merge"), "a category is one of spend, proposal"),
        (("reject", "a1"), "--reason"),
        (("approve",), "give the id of an approval, or --all"),
        (("approve", "a1", "--all"), "give the id of an approval, or --all"),
        (("approve", "a1", "--yes"), "need --all"),
        (("approve", "--all", "--sha256", "ab"), "--sha256 is for one approval"),
        (("reject", "--all", "--reason", "w", "--category", "merge"), "a category is one of spend, proposal"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_sent(
    api: ScriptedApi, words: tuple[str, ...], problem: str
) -> None:
    code, shown = run(api, *words)
    assert (code, problem in shown, api.asked) == (2, True, [])


def test_a_lift_states_all_amounts() -> None:
    dollars = {"cap_usd": Decimal("0.50"), "used_usd": Decimal("0.49"), "by_usd": Decimal("0.10")}
    text = lifts_as_text((LIFT.model_copy(update=dollars),))
    assert "add 0.10 USD to 0.50 USD, used 0.49 USD" in text
    assert "add 1000 tokens to 10 tokens, used 9 tokens" in text
