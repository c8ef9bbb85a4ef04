"""Commands that say what fixed it and which incidents are the same: what they ask of the API, and what they print."""

from typing import Any

import pytest
from typer.testing import CliRunner
from ui.cli_server import ScriptedApi

from counterpoint.cli.main import app
from counterpoint.proto.attempts import ReportOutcome

PAIR = {
    "link_id": "link-1",
    "project": "orders",
    "relation": "same",
    "pair": [{"task_id": "t1"}, {"task_id": "t2"}],
    "by": "ada",
    "by_kind": "person",
    "reason": "one certificate",
    "at": "2026-03-02T03:00:01Z",
}


def run(api: ScriptedApi, *arguments: str) -> Any:
    return CliRunner().invoke(app, [*arguments, *api.options()])


def test_an_outcome_names_the_fix_and_attempts_at_other_failures(api: ScriptedApi) -> None:
    api.on("POST /v1/tasks/t1/outcome", (202, {"task_id": "t1", "late": False}))
    said = ("--by", "something-else", "--note", "unlocked the user", "--not-same", "a1", "--not-same", "a2")
    assert run(api, "outcome", "t1", "succeeded", *said).exit_code == 0
    (asked,) = api.asked
    assert asked.body == {
        "outcome": "succeeded",
        "by": "something_else",
        "note": "unlocked the user",
        "not_same": ["a1", "a2"],
    }
    assert ReportOutcome.model_validate(asked.body | {"task_id": "t1"}).by == "something_else"


def test_an_unknown_cause_is_misuse_and_the_help_names_the_known_ones(api: ScriptedApi) -> None:
    result = run(api, "outcome", "t1", "succeeded", "--by", "luck")
    assert (result.exit_code, api.asked) == (2, [])
    shown = CliRunner().invoke(app, ["outcome", "--help"]).output
    assert "something-else" in shown
    assert "instead of the proposal" in " ".join(shown.split())


@pytest.mark.parametrize(("verb", "relation"), [("link", "same"), ("split", "different"), ("merge", "merged")])
def test_a_pair_is_related_and_the_command_that_undoes_it_is_printed(
    api: ScriptedApi, verb: str, relation: str
) -> None:
    api.on("POST /v1/links", (201, {"items": [PAIR | {"relation": relation}]}))
    api.on("DELETE /v1/links", (200, {"items": [PAIR]}))
    result = run(api, verb, "t1", "t2", "--reason", "one certificate", "-p", "orders")
    assert result.exit_code == 0, result.output
    assert api.asked[0].body == {"relation": relation, "tasks": ["t1", "t2"], "reason": "one certificate"}
    assert f"counterpoint {verb} t1 t2 --undo --project orders" in result.stdout
    assert run(api, verb, "t1", "t2", "--undo").exit_code == 0
    assert (api.asked[1].method, api.asked[1].params["relation"]) == ("DELETE", relation)


def test_a_merge_says_into_which_one(api: ScriptedApi) -> None:
    api.on("POST /v1/links", (201, {"items": [PAIR | {"relation": "merged"}]}))
    assert run(api, "merge", "t1", "t2", "-p", "orders").stdout.startswith("t2: merged into t1; undo it with ")


def test_a_link_needs_two_incidents(api: ScriptedApi) -> None:
    assert run(api, "link", "t1").exit_code == 2


def test_links_are_listed(api: ScriptedApi) -> None:
    api.on("GET /v1/links", (200, {"items": [PAIR], "next_cursor": None}))
    assert run(api, "links", "t1").stdout == "t1 is the same as t2 (ada, 2026-03-02): one certificate\n"


def test_recoveries_print_the_question_and_its_answer(api: ScriptedApi) -> None:
    need = {"kind": "outcome", "what": "say what was changed", "how": "counterpoint outcome t1 succeeded"}
    task = {"task_id": "t1", "description": "the load fails", "needs": [need]}
    api.on("GET /v1/recoveries", (200, {"items": [task], "next_cursor": None}))
    shown = run(api, "recoveries").stdout
    assert "say what was changed" in shown
    assert "counterpoint outcome t1 succeeded" in shown
