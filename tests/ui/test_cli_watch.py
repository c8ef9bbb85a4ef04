"""The decision stream: what is shown of it, and that it goes on where it broke."""

import json
from itertools import islice

import pytest
from typer.testing import CliRunner
from ui.cli_server import TOKEN, ScriptedApi

from counterpoint.cli.address import Address
from counterpoint.cli.api import ApiClient
from counterpoint.cli.decisions import STREAM
from counterpoint.cli.errors import ApiError, NotReachable
from counterpoint.cli.main import app


def decision_event(number: int, task: str = "t1") -> str:
    decision = {
        "task_id": task,
        "agent": "developer",
        "decision_type": "confidence",
        "decision": "go on",
        "reasoning": "two sources",
        "confidence": {"score": 0.7, "band": "medium"},
        "made_at": "2026-11-17T05:30:12Z",
    }
    cloud_event = {"specversion": "1.0", "type": "counterpoint.decision.made.v1", "data": decision}
    return f"id: {number}\ndata: {json.dumps(cloud_event)}\n\n"


DENIED = (403, {"title": "Forbidden", "status": 403, "code": "role"})


def test_a_stream_that_breaks_is_opened_again_after_the_last_event_seen(api: ScriptedApi) -> None:
    api.on(
        f"GET {STREAM}",
        (200, ": open\n\n" + decision_event(1) + decision_event(2)),
        (503, {"title": "Service Unavailable", "status": 503}),
        (200, ": open\n\n" + decision_event(3)),
    )
    with ApiClient(Address(api.url, TOKEN)) as client:
        events = list(islice(client.stream(STREAM, project="orders"), 3))
    assert [event.id for event in events] == ["1", "2", "3"]
    assert [asked.headers.get("last-event-id") for asked in api.asked] == [None, "2", "2"]
    assert {asked.params["project"] for asked in api.asked} == {"orders"}


def test_a_stream_that_was_never_open_or_is_forbidden_is_no_stream(api: ScriptedApi) -> None:
    api.on(f"GET {STREAM}", DENIED)
    with ApiClient(Address(api.url, TOKEN)) as client, pytest.raises(ApiError):
        next(client.stream(STREAM))
    with ApiClient(Address("http://127.0.0.1:1", TOKEN)) as client, pytest.raises(NotReachable):
        next(client.stream(STREAM))


def test_watch_shows_decisions_of_a_task_and_gaps(api: ScriptedApi) -> None:
    gap = 'event: gap\ndata: {"after": 4}\n\n'
    api.on("GET /v1/tasks/t1", (200, {"task_id": "t1"}))
    api.on(f"GET {STREAM}", (200, gap + decision_event(7, "t1") + decision_event(8, "t2")), DENIED)
    shown = CliRunner().invoke(app, ["watch", "--task", "t1", "--since", "4", *api.options()])
    assert shown.exit_code == 1
    (line,) = shown.stdout.splitlines()
    assert line == "05:30:12 developer confidence: go on  0.70 medium  two sources  t1"
    assert "gap" in shown.stderr
    assert api.asked[1].headers["last-event-id"] == "4"


def test_a_task_that_is_not_there_is_not_waited_for(api: ScriptedApi) -> None:
    api.on(f"GET {STREAM}", (200, decision_event(7)), DENIED)
    shown = CliRunner().invoke(app, ["watch", "--task", "nope", *api.options()])
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert [asked.path for asked in api.asked] == ["/v1/tasks/nope"]


def test_watching_is_ended_well_by_ctrl_c(api: ScriptedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("counterpoint.cli.decisions.show", interrupted)
    assert CliRunner().invoke(app, ["watch", *api.options()]).exit_code == 0


def test_watch_prints_json_lines_for_programs(api: ScriptedApi) -> None:
    api.on(f"GET {STREAM}", (200, decision_event(7) + decision_event(8)), DENIED)
    shown = CliRunner().invoke(app, ["watch", "--json", *api.options()])
    lines = [json.loads(line) for line in shown.stdout.splitlines()[:2]]
    assert [line["id"] for line in lines] == ["7", "8"]
    assert lines[0]["event"]["data"]["agent"] == "developer"
