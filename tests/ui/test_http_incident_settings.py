"""Settings of incidents and the report of the shadow over HTTP."""

from datetime import timedelta
from typing import Any

import pytest
from agents.router_house import NOW, PROJECT
from typer.testing import CliRunner
from ui.cli_server import ScriptedApi
from ui.http_front import RunningFront

from counterpoint.cli.main import app
from counterpoint.client.shadow import is_same_act
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.incident_settings import ShadowDue

JOB = {"namespace": "shop", "name": "load"}
URL = "/v1/incident-settings"


def attempt(front: RunningFront, attempt_id: str, task_id: str, **more: Any) -> None:
    body = {"project": PROJECT, "attempt": 1, "description": "d", "by": "ops", "at": NOW} | more
    made = Attempt.model_validate(body | {"attempt_id": attempt_id, "task_id": task_id})
    front.house.put("attempts", attempt_id, made.model_dump(mode="json", exclude_none=True))


async def test_settings_belong_to_a_project_or_job_and_unnamed_ones_stay(front: RunningFront) -> None:
    await front.me.put(URL, json={"quiet_s": 3600})
    await front.me.put(URL, json={"job": JOB, "shadow": True})
    changed = (await front.me.put(URL, json={"job": JOB, "quiet_s": 7200})).json()
    assert (changed["shadow"], changed["quiet_s"], changed["by"]) == (True, 7200, "me")
    assert changed["shadow_since"].startswith("2026-03-02")
    listed = (await front.me.get(URL)).json()["items"]
    assert [(each.get("job"), each.get("quiet_s")) for each in listed] == [(JOB, 7200), (None, 3600)]
    cleared = (await front.me.put(URL, json={"job": JOB, "quiet_s": None, "shadow": False})).json()
    assert {"quiet_s", "shadow_since"} & cleared.keys() == set()
    assert (await front.me.delete(URL, params={"job": "shop/load"})).status_code == 200
    assert (await front.me.delete(URL, params={"job": "shop/load"})).status_code == 404


async def test_a_shadow_reports_a_week_after_it_began_and_not_once_it_ended(front: RunningFront) -> None:
    await front.me.put(URL, json={"job": JOB, "shadow": True})
    await front.me.put(URL, json={"job": JOB, "quiet_s": 7200})
    (due,) = front.house.timers
    assert due.due_at == NOW + timedelta(days=7)
    assert ShadowDue.model_validate(due.data).since == NOW
    await front.me.put(URL, json={"job": JOB, "shadow": False})
    assert front.house.timers == []
    front.house.now = NOW + timedelta(hours=1)
    await front.me.put(URL, json={"job": JOB, "shadow": True})
    assert [due.due_at for due in front.house.timers] == [NOW + timedelta(days=7, hours=1)]
    await front.me.delete(URL, params={"job": "shop/load"})
    assert front.house.timers == []


async def test_settings_are_changed_by_operators_alone(front: RunningFront) -> None:
    async with front.as_principal("reader", "read", "report", "override") as reader:
        assert (await reader.put(URL, json={"shadow": True})).status_code == 403
        assert (await reader.get(URL)).status_code == 200
    assert (await front.me.put(URL, json={"quiet_s": 1})).status_code == 422


async def test_the_shadow_report_lists_proposals_and_their_accuracy(front: RunningFront) -> None:
    front.house.now = NOW - timedelta(days=8)
    await front.me.put(URL, json={"shadow": True})
    front.house.now = NOW
    said = {"outcome": "superseded", "shadow": True, "confidence": 0.8}
    attempt(front, "a1", "t1", tried="Renew the certificate of the gateway", **said)
    attempt(front, "a2", "t1", tried="renewed certificate of the gateway on node 3", attempt=2, outcome="succeeded")
    attempt(front, "b1", "t2", tried="Look at the export job", **said)
    attempt(front, "b2", "t2", tried="unlocked the user", attempt=2, outcome="succeeded")
    attempt(front, "c1", "t3", tried="Look at the export job", outcome="unknown", shadow=True)
    report = (await front.me.get("/v1/shadow")).json()
    assert (report["proposed"], report["explained"], report["right"], report["share"]) == (3, 2, 1, 0.5)
    assert (report["due"], report["due_at"][:10]) == (True, "2026-03-01")
    assert {one["task_id"]: one.get("right") for one in report["items"]} == {"t1": True, "t2": False, "t3": None}
    assert "fixed" not in next(one for one in report["items"] if one["task_id"] == "t3")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Restart the pool", "restart the pool", True),
        ("Raise the quota of bucket 7", "Raise the quota of bucket 9", True),
        ("Restart the pool", "Drop the replication slot", False),
        ("", "anything", False),
    ],
)
def test_acts_are_compared_by_their_words(one: str, other: str, same: bool) -> None:
    assert is_same_act(one, other) is same


def test_the_command_sends_the_given_settings_and_shows_those_in_force(api: ScriptedApi) -> None:
    stored = {
        "project": "orders",
        "job": JOB,
        "quiet_s": 43200.0,
        "shadow": False,
        "by": "me",
        "at": "2026-03-02T03:00Z",
    }
    api.on(f"PUT {URL}", (200, stored))
    words = (
        "incident-settings",
        "--job",
        "shop/load",
        "--quiet",
        "12h",
        "--open-after",
        "3",
        "--no-shadow",
        *api.options(),
    )
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    assert api.asked[0].body == {"job": JOB, "open_after": 3, "quiet_s": 43200, "shadow": False}
    assert result.stdout == "shop/load: closes after 12 hours without a failure, not in shadow (me, 2026-03-02)\n"
    wrong = CliRunner().invoke(app, ["incident-settings", "--quiet", "soon", *api.options()])
    assert wrong.exit_code == 2


def test_the_report_is_shown_in_words(api: ScriptedApi) -> None:
    item = {
        "task_id": "t1",
        "at": "2026-03-02T03:00:01Z",
        "proposed": "Restart it",
        "fixed": "Unlocked",
        "right": False,
    }
    report = {"proposed": 1, "explained": 1, "right": 0, "share": 0.0, "due": True, "items": [item]}
    api.on("GET /v1/shadow", (200, report))
    shown = CliRunner().invoke(app, ["shadow", *api.options()]).stdout
    assert "proposals recorded: 1; the outcome of 1 is known, and 0 would have been right" in shown
    assert "would have proposed: Restart it" in shown
