"""The command that sums up what model calls cost."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner
from ui.cli_server import ScriptedApi

from counterpoint.cli.main import app
from counterpoint.cli.render.limits import dollars

URL = "/v1/costs"


def line(key: str | None, usd: str, **more: Any) -> dict[str, Any]:
    rest = {"calls": 3, "unpriced": 0, "unknown": 0, "input_tokens": 2100, "output_tokens": 40}
    rest |= {"under_way": 0, "reserved_tokens": 0}
    return rest | {"usd": usd, "reserved_usd": "0"} | more | ({"key": key} if key is not None else {})


def report(by: str, *lines: dict[str, Any], total: str = "0") -> dict[str, Any]:
    return {"by": by, "lines": list(lines), "total": line(None, total), "truncated": False}


def run(api: ScriptedApi, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["costs", *words, *api.options()], env={"COLUMNS": "120"})
    return done.exit_code, done.output


def test_each_group_has_a_line_and_more_than_one_a_total(api: ScriptedApi) -> None:
    notes = {"unpriced": 2, "unknown": 1, "under_way": 1, "reserved_usd": "0.004"}
    api.on(
        f"GET {URL}",
        (200, report("model", line("ahorn/tief", "1.5", **notes), line("esche", "0.00031"), total="1.50031")),
    )
    code, shown = run(api, "--since", "2026-11-01T00:00:00Z", "--project", "orders")
    assert code == 0
    assert api.asked[0].params == {"by": "model", "since": "2026-11-01T00:00:00Z", "limit": "50", "project": "orders"}
    rows = [" ".join(row.split()) for row in shown.splitlines()]
    assert rows[1].startswith("ahorn/tief 1.50 3 2,100 40 2 without a known price; 1 of unknown outcome")
    assert "0.0040 reserved" in shown
    assert rows[-2:] == ["esche 0.00031 3 2,100 40", "total 1.50 3 2,100 40"]


def test_no_calls_and_an_unknown_group(api: ScriptedApi) -> None:
    api.on(f"GET {URL}", (200, report("day")))
    assert run(api, "--by", "day") == (0, "no model calls\n")
    code, shown = run(api, "--by", "colour")
    assert code == 2
    assert "costs are grouped by agent, day, model, project, session, task, not colour" in " ".join(shown.split())


def test_every_project_is_summed_up(api: ScriptedApi) -> None:
    api.on("GET /v1/principals", (200, {"items": [{"projects": ["orders", "*"]}]}))
    played = (200, report("project")), (200, report("project", line("orders", "0.25"), total="0.25"))
    api.on(f"GET {URL}", *played, *played)
    limit = {
        "scope": "organisation",
        "everywhere": True,
        "period": "month",
        "usd": "20",
        "by": "me",
        "used_usd": "0.25",
    }
    limit |= {"used_tokens": 9, "reached": False, "most_used": "orders", "reached_at": "2026-11-29T10:00:00Z"}
    api.on("GET /v1/limits", (200, {"items": [{"scope": "project"}, limit]}))
    code, shown = run(api, "--by", "project")
    assert (code, "organisation (all projects) month 0.25 of 20 - - orders" in " ".join(shown.split())) == (0, True)
    api.asked.clear()
    code, shown = run(api, "--by", "project", "--json")
    assert code == 0
    said = json.loads(shown)
    assert [each["key"] for each in said["lines"]] == ["orders"]
    assert (said["total"]["usd"], said["total"]["calls"]) == ("0.25", 6)
    assert said["organisation_limits"] == [limit]
    assert [each.params["project"] for each in api.asked if each.path == URL] == ["default", "orders"]


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("0", "0.00"),
        ("0.000000001", "0.0000000010"),
        ("0.0456", "0.046"),
        ("12.346", "12.35"),
        ("1234567", "1,234,567.00"),
    ],
)
def test_small_amounts_keep_two_digits(amount: str, shown: str) -> None:
    assert dollars(amount) == shown
