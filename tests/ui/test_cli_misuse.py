"""Refusals and misuse of the command: what it prints, and its exit code."""

import json
from pathlib import Path
from typing import get_args

import pytest
from ui.cli_server import ScriptedApi
from ui.command_runner import run

from counterpoint.cli.commands.tasks import STATES
from counterpoint.proto.tasks import State


def test_a_refusal_is_printed_with_its_fields_and_fails(api: ScriptedApi) -> None:
    problem = {
        "title": "Unprocessable Content",
        "status": 422,
        "code": "invalid",
        "errors": [{"field": "target.job.name", "problem": "is required"}],
    }
    api.on("POST /v1/tasks", (422, problem))
    people = run("submit", "plan", "x", *api.options())
    assert people.exit_code == 1
    assert people.stdout == ""
    assert "invalid" in people.stderr
    assert "target.job.name: is required" in people.stderr
    programs = run("submit", "plan", "x", "--json", *api.options())
    assert programs.exit_code == 1
    assert json.loads(programs.stdout) == problem


def test_the_command_that_explains_a_refusal_names_its_project(api: ScriptedApi) -> None:
    refusal = "01a21dfa-b8a3-7617-9704-4fbb6f87c1fb"
    api.on("POST /v1/tasks", (403, {"title": "Forbidden", "status": 403, "code": "role", "refusal": refusal}))
    result = run("submit", "plan", "x", "--project", "orders", *api.options())
    assert f"counterpoint explain {refusal} --project orders --url {api.url}" in result.stderr


def test_a_rule_that_forbids_a_command_is_told_as_the_api_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTERPOINT_BACKUP_PASSPHRASE", "a passphrase")
    (damaged := tmp_path / "a.backup").write_text("junk")
    people = run("verify", "--backup", str(damaged))
    assert people.exit_code == 1
    assert people.stderr.startswith("counterpoint: backup: the file is cut short or is not a backup")
    assert people.stderr.endswith(" (backup_damaged)\n")
    assert json.loads(run("verify", "--backup", str(damaged), "--json").stdout)["code"] == "backup_damaged"


def test_a_file_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    absent = tmp_path / "body.json"
    result = run("intake", "try", str(absent), "--source", "forge", "--url", "http://127.0.0.1:1", "--token", "t")
    assert result.stderr == f"counterpoint: {absent} cannot be read: No such file or directory\n"


def test_nothing_there_ends_with_3_and_says_how_to_start_it(tmp_path: Path) -> None:
    for where in (["--url", "http://127.0.0.1:1", "--token", "t"], ["--data-dir", str(tmp_path)]):
        result = run("tasks", *where)
        assert result.exit_code == 3
        assert "counterpoint up" in result.stderr
        assert json.loads(run("tasks", "--json", *where).stdout)["title"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["submit", "guess", "x"],
        ["submit", "plan", "x", "--job", "no-namespace"],
        ["submit", "plan", "  "],
        ["outcome", "t", "fine"],
        ["lineage", "ns/job", "--direction", "sideways"],
        ["principal", "create", "x", "--role", "king", "--in", "p"],
        ["principal", "create", "x"],
        ["up", "--url", "http://127.0.0.1:1"],
        ["tasks", "--url", "http://127.0.0.1:1"],
        ["tasks", "--no-such-option"],
        ["tasks", "--state", "bogus"],
        ["search", ""],
        ["show", ""],
        ["why", "../tasks"],
        ["dead-letters", "show", ""],
    ],
)
def test_misuse_ends_with_2(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COUNTERPOINT_TOKEN", raising=False)
    assert run(*arguments).exit_code == 2


def test_a_state_is_one_of_the_contract() -> None:
    assert get_args(State) == STATES


def test_status_and_down_say_that_nothing_runs(tmp_path: Path) -> None:
    status = run("status", "--json", "--data-dir", str(tmp_path))
    assert status.exit_code == 3
    assert json.loads(status.stdout)["running"] is False
    down = run("down", "--json", "--data-dir", str(tmp_path))
    assert (down.exit_code, json.loads(down.stdout)["stopped"]) == (0, False)


@pytest.mark.parametrize("arguments", [["up", "--detach"], ["down"], ["status"], ["tasks"]])
def test_a_data_folder_that_is_a_file_is_misuse(tmp_path: Path, arguments: list[str]) -> None:
    file = tmp_path / "afile"
    file.write_text("x")
    result = run(*arguments, "--data-dir", str(file))
    assert (result.exit_code, result.stderr) == (2, f"counterpoint: {file} is not a folder\n")


def test_a_data_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "afile").write_text("x")
    folder = tmp_path / "afile" / "data"
    result = run("up", "--detach", "--data-dir", str(folder))
    assert (result.exit_code, result.stderr) == (1, f"counterpoint: {folder}: Not a directory\n")
