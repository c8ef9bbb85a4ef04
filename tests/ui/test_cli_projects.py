"""Nobody looks into the wrong project unawares: which one is shown is said, and `up` shows them all."""

import queue
import threading

import pytest
from typer.testing import CliRunner
from ui.cli_server import TOKEN, ScriptedApi
from ui.test_cli_watch import decision_event

from counterpoint.cli.address import Address
from counterpoint.cli.decisions import STREAM, follow_all
from counterpoint.cli.main import app
from counterpoint.cli.session import CommandSession

PRINCIPALS = "GET /v1/principals"


def principal(name: str, *projects: str, revoked: bool = False) -> dict[str, object]:
    ended = {"revoked_at": "2026-01-01T00:00:00Z"} if revoked else {}
    return {"name": name, "kind": "system", "roles": ["report"], "projects": list(projects), **ended}


def page(*principals: dict[str, object]) -> tuple[int, dict[str, object]]:
    return 200, {"items": list(principals), "next_cursor": None}


@pytest.mark.parametrize("command", ["tasks", "escalations"])
def test_a_list_says_which_project_it_shows_and_which_others_there_are(api: ScriptedApi, command: str) -> None:
    api.on(f"GET /v1/{command}", (200, {"items": [], "next_cursor": None}))
    api.on(
        PRINCIPALS, page(principal("airflow", "orders"), principal("admin", "*"), principal("old", "x", revoked=True))
    )
    shown = CliRunner().invoke(app, [command, *api.options()])
    assert shown.exit_code == 0
    assert f"project default; other projects: orders; try `counterpoint {command} --project orders`" in shown.stderr
    named = CliRunner().invoke(app, [command, "--project", "orders", *api.options()])
    assert named.stderr == ""


@pytest.mark.parametrize(
    ("words", "request_", "command"),
    [
        (["attempts"], "GET /v1/attempts", "attempts"),
        (["links"], "GET /v1/links", "links"),
        (["recoveries"], "GET /v1/recoveries", "recoveries"),
        (["dead-letters", "list"], "GET /v1/dead-letters", "dead-letters list"),
        (["entities"], "GET /v1/entities", "entities"),
        (["search", "a pump"], "POST /v1/search", "search 'a pump'"),
    ],
)
def test_a_command_that_finds_nothing_in_the_default_project_names_the_others(
    api: ScriptedApi, words: list[str], request_: str, command: str
) -> None:
    api.on(PRINCIPALS, page(principal("airflow", "orders")))
    api.on(request_, (200, {"items": [], "next_cursor": None}))
    shown = CliRunner().invoke(app, [*words, *api.options()])
    assert shown.exit_code == 0
    assert f"try `counterpoint {command} --project orders`" in shown.stderr
    assert CliRunner().invoke(app, [*words, "--project", "orders", *api.options()]).stderr == ""


def test_who_may_not_list_principals_is_told_the_project_alone(api: ScriptedApi) -> None:
    api.on("GET /v1/tasks", (200, {"items": [], "next_cursor": None}))
    api.on(PRINCIPALS, (403, {"title": "Forbidden", "status": 403, "code": "role"}))
    shown = CliRunner().invoke(app, ["tasks", *api.options()])
    assert (shown.exit_code, shown.stderr.strip()) == (0, "project default; select another with --project")


def test_a_new_principal_comes_with_the_place_where_its_work_is_seen(api: ScriptedApi) -> None:
    api.on("POST /v1/principals", (201, {"name": "airflow", "token": "t-1"}))
    create = ["principal", "create", "airflow", "--role", "report", "--in", "orders"]
    made = CliRunner().invoke(app, [*create, *api.options()])
    assert made.stdout.strip() == "t-1"
    assert "`counterpoint tasks --project orders`, `counterpoint watch --project orders`" in made.stderr


def test_the_decisions_of_a_project_are_shown_as_soon_as_a_principal_is_for_it(
    api: ScriptedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterpoint.cli.projects.POLL_S", 0.01)
    api.on(PRINCIPALS, page(), (503, {"title": "Service Unavailable", "status": 503}), page(principal("a", "orders")))
    api.on(
        f"GET {STREAM}",
        (200, decision_event(1, "t-default")),
        (200, decision_event(1, "t-orders")),
        (403, {"title": "Forbidden"}),
    )
    stopped = threading.Event()
    session, lines = CommandSession(None, None, None, None, False), queue.SimpleQueue[str]()
    # Captured output may not be read while another thread prints.
    monkeypatch.setattr(CommandSession, "line", lambda _self, _decision, render: lines.put(render().plain))
    following = threading.Thread(target=follow_all, args=(session, Address(api.url, TOKEN), stopped))
    following.start()
    try:
        shown = {" ".join(lines.get().split()[:3]) for _ in range(2)}
    finally:
        stopped.set()
        following.join()
    assert {asked.params["project"] for asked in api.asked if asked.path == STREAM} == {"default", "orders"}
    assert shown == {"05:30:12 orders developer", "05:30:12 default developer"}


def test_a_named_project_is_shown_alone(api: ScriptedApi, capsys: pytest.CaptureFixture[str]) -> None:
    stopped = threading.Event()
    stopped.set()
    follow_all(CommandSession(None, None, None, "orders", False), Address(api.url, TOKEN), stopped)
    assert PRINCIPALS not in {f"{asked.method} {asked.path}" for asked in api.asked}
