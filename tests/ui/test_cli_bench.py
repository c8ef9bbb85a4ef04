"""`counterpoint bench`: which program measures what, and what the one for a running stack prints of it."""

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from counterpoint.bench.front import http_search, mcp_search
from counterpoint.bench.http_flow import FEW, RUNS, WARM, FlowSize, measure_stack
from counterpoint.bench.load import HALF, TaskMix
from counterpoint.cli.main import app
from counterpoint.local.stack import Stack

SIZE = FlowSize(alone=2, tasks=4, in_flight=2, chunks=FEW + 20, questions=2)
Executed = tuple[str, list[str], dict[str, str]]


@pytest.fixture
def executions(monkeypatch: pytest.MonkeyPatch) -> list[Executed]:
    """The programs that took the command's place: name, arguments and environment."""
    seen: list[Executed] = []

    def execve(python: str, arguments: list[str], environment: dict[str, str]) -> None:
        assert [python, "-m"] == arguments[:2]
        assert python == sys.executable
        package, _, module = arguments[2].rpartition(".")
        assert package == "counterpoint.bench"
        assert importlib.util.find_spec(arguments[2]) is not None
        seen.append((module, arguments[3:], environment))

    monkeypatch.setattr(os, "execve", execve)
    return seen


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["bench", *words])


@pytest.mark.parametrize("name", ["commit", "flow", "front", "incidents", "line", "memory"])
def test_a_stack_named_by_environment_or_folder_is_not_measured(
    name: str, executions: list[Executed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".counterpoint").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COUNTERPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("COUNTERPOINT_DATA_DIR", str(tmp_path))
    assert run(name, "--json").exit_code == 0
    assert executions == [(name, ["--json"], dict(os.environ))]


def test_memory_is_measured_in_sections_and_in_full(executions: list[Executed]) -> None:
    assert run("memory", "--only", "policy", "--only", "idle", "--full", "--json").exit_code == 0
    ((program, arguments, _),) = executions
    assert program == "memory"
    assert arguments == ["--json", "--full", "--only", "policy", "--only", "idle"]


def test_load_takes_a_mix_or_the_one_that_ships(executions: list[Executed], tmp_path: Path) -> None:
    mix = tmp_path / "mix.json"
    assert run("load", str(mix), "--rate", "40", "--seconds", "600").exit_code == 0
    assert executions[0][:2] == ("load", [str(mix), "--rate", "40.0", "--seconds", "600.0"])
    assert run("load").exit_code == 0
    assert executions[1][:2] == ("load", [])
    assert TaskMix.read(HALF).chunks > 0


def test_incidents_have_a_rate_and_a_length(executions: list[Executed]) -> None:
    assert run("incidents", "--rate", "2", "--seconds", "9", "--json").exit_code == 0
    assert executions[0][:2] == ("incidents", ["--json", "--rate", "2.0", "--seconds", "9.0"])
    assert run("flow", "--rate", "2").exit_code == 2


@pytest.mark.parametrize("option", [("--full",), ("--only", "policy")], ids=" ".join)
def test_only_memory_has_sections(option: tuple[str, ...], executions: list[Executed]) -> None:
    told = run("commit", *option)
    assert told.exit_code == 2
    assert "an option of the benchmark memory" in told.output
    assert executions == []


def test_a_url_is_measured_from_outside_with_its_token_out_of_sight(executions: list[Executed]) -> None:
    assert run("flow", "--url", "http://there", "--token", "secret").exit_code == 0
    ((program, arguments, environment),) = executions
    assert (program, arguments, environment["COUNTERPOINT_TOKEN"]) == ("http_flow", ["http://there"], "secret")


async def test_a_data_folder_is_measured_from_outside_with_its_health(stack: Stack, executions: list[Executed]) -> None:
    told = stack.endpoints
    assert run("flow", "--json", "--data-dir", str(stack.data_dir)).exit_code == 0
    ((program, arguments, environment),) = executions
    health = [service.health for service in told.services.values()]
    assert (program, arguments) == ("http_flow", [told.http, "--json", "--health", *health])
    assert environment["COUNTERPOINT_TOKEN"] == told.token


@pytest.mark.parametrize("named", [("--url", "http://there", "--token", "t"), ("--data-dir", "here")], ids=" ".join)
def test_a_commit_is_measured_on_no_stack_that_is_named(named: tuple[str, ...], executions: list[Executed]) -> None:
    told = run("commit", *named)
    assert told.exit_code == 2
    assert "only measures a temporary stack" in told.output
    assert executions == []


def test_a_folder_on_which_nothing_runs_is_not_reachable(executions: list[Executed], tmp_path: Path) -> None:
    assert run("flow", "--data-dir", str(tmp_path)).exit_code == 3
    assert executions == []


async def test_a_running_stack_is_measured_in_a_project_of_its_own(
    stack: Stack, http: httpx.AsyncClient, capsys: pytest.CaptureFixture[str]
) -> None:
    told = stack.endpoints
    health = [service.health for service in told.services.values()]
    report = json.loads((await measure_stack(told.http, told.token, health, SIZE)).as_json())
    assert len(report["machine"]["load"]) == 2 * RUNS
    names = [row["name"] for row in report["measures"]]
    assert names == [
        "submitted to completed p50, one in flight",
        "submitted to completed p99 / its p50",
        "tasks/s at 2 in flight",
        f"a distinct offline question over {SIZE.chunks} chunks, p50 (6 of 6 answered)",
    ]
    assert all(len(row["runs"]) == RUNS and min(row["runs"]) > 0 for row in report["measures"])
    assert [row["met"] is None for row in report["measures"]] == [True, False, True, False]
    (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("project ")]
    project = said.split()[1]
    assert project.startswith("bench-")
    tasks = (await http.get("/v1/tasks", params={"project": project, "limit": 200})).json()["items"]
    assert len(tasks) == 2 * WARM + RUNS * (SIZE.alone + SIZE.tasks + SIZE.questions)
    assert len({task["description"] for task in tasks}) >= WARM + RUNS * SIZE.questions


async def test_a_stack_that_is_not_ready_is_not_measured(stack: Stack) -> None:
    told = stack.endpoints
    with pytest.raises(httpx.HTTPStatusError, match="404"):
        await measure_stack(told.http, told.token, [f"{told.services['memory'].health}/nothing"], SIZE)


async def test_a_dead_address_and_a_wrong_token_end_without_a_traceback(stack: Stack) -> None:
    for url, code, told in (("http://127.0.0.1:1", 3, "no response from"), (stack.endpoints.http, 1, "HTTP 401")):
        options = ["bench", "flow", "--url", url, "--token", "wrong"]
        ended = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-m", "counterpoint.cli.main", *options], capture_output=True, text=True
        )
        assert (ended.returncode, ended.stdout) == (code, ""), ended.stderr
        assert told in ended.stderr
        assert "Traceback" not in ended.stderr


async def test_the_two_searches_at_the_front_door_find_something(stack: Stack) -> None:
    headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
    async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=60) as http:
        document = {"source": "resolver.md", "text": "# Resolver\n\nRestart the resolver.", "project": "bench"}
        (await http.post("/v1/documents", json=document)).raise_for_status()
        for search in (mcp_search(http), http_search(http)):
            assert await search("What to do when the resolver fails?")
